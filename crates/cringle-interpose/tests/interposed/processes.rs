//! Child processes and signals.

use crate::{check, own};
use cringle::process::{Command, Stdio};
use cringle::signal::{self, Signal, Signals};
use cringle::{fiber, runtime};
use std::io::{Read, Write};

fn children() {
    // std's `Command` may hold descriptors, which its drop closes.
    let mut echo = own(|| Command::new("echo"));
    assert_eq!(echo.arg("rope").output().unwrap().stdout, b"rope\n");
    assert!(echo.stdout(Stdio::null()).status().unwrap().success());
    let mut cat = own(|| Command::new("cat"));
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    assert!(child.try_wait().unwrap().is_none());
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    fiber::scope(|s| {
        s.spawn_local(move || input.write_all(&[7; 100_000]).unwrap());
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 100_000);
    });
    assert!(child.wait().unwrap().success());
    let mut child = own(|| Command::new("cat")).stdin(Stdio::piped()).spawn().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(own(|| Command::new("/no/such/program")).spawn().is_err());
    own(|| drop((echo, cat)));
}

fn signals() {
    let signals = Signals::new(&[Signal::User1]).unwrap();
    fiber::scope(|s| {
        s.spawn_local(|| signals.wait().unwrap());
        fiber::yield_now();
        // SAFETY: by the contract of `raise`: it takes no pointer.
        unsafe { libc::raise(libc::SIGUSR1) };
    });
    drop(signals);
    drop(signal::cancel_on(&[Signal::User1]).unwrap());
    drop(signal::dump_on(&[Signal::User1]).unwrap());
}

fn dumps() {
    fiber::scope(|s| {
        s.spawn_daemon_local(fiber::park);
        fiber::yield_now();
        let dump = runtime::dump().unwrap();
        drop(dump.to_string());
        let dump = runtime::dump_with_backtraces().unwrap();
        drop(dump.to_string());
        drop(runtime::dump_all());
        drop(runtime::stats());
    });
}

#[test]
fn process_calls_pass_no_interposed_function() {
    check(children);
}

#[test]
fn diagnostic_calls_pass_no_interposed_function() {
    check(dumps);
}

/// Signals belong to the process: one fiber at a time uses them.
#[test]
fn signal_calls_pass_no_interposed_function() {
    crate::check_once(signals);
}
