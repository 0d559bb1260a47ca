//! Starts a runtime in a child, to see what a program gets here.

use super::child::{Answer, ask_child};
use cringle::Builder;
use cringle::runtime::{self, Driver, ThreadLocals};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;

/// What a program that calls `cringle::run` gets here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Start {
    /// It runs on the ring.
    Ring,
    /// It runs on epoll.
    Fallback,
    /// `run` returns an error, or panics with it.
    Refuses,
    Killed,
    Unknown,
}

/// Returns how a runtime starts, and its reason if it does not use the ring.
pub(crate) fn try_start() -> (Start, String) {
    let answer = ask_child(|reply| {
        silence();
        let (number, why) = match Builder::new().run(runtime::driver) {
            Ok(Driver::Uring(_)) => (0, String::new()),
            Ok(Driver::Epoll(why)) => (1, why.to_string()),
            Ok(other) => (1, format!("{other:?}")),
            Err(error) => (2, error.to_string()),
        };
        reply.send(number);
        reply.send_text(&why);
    });
    let start = match &answer {
        Answer { unanswered: Some(_), .. } => Start::Unknown,
        Answer { signal: Some(_), .. } => Start::Killed,
        Answer { numbers, .. } => match numbers.first() {
            Some(0) => Start::Ring,
            Some(1) => Start::Fallback,
            Some(_) => Start::Refuses,
            None => Start::Unknown,
        },
    };
    (start, answer.text_from(1))
}

/// Returns why a program must not start that has these variables, besides those of this process:
/// one has an invalid value, they demand rings, which are refused, or neither can be tried.
///
/// The calling process must have only one thread.
pub fn refusal(variables: &[(&str, OsString)]) -> Option<String> {
    let answer = ask_child(|reply| {
        silence();
        // SAFETY: this child has one thread. The trace and the dumps are the program's.
        unsafe {
            variables.iter().for_each(|(name, value)| std::env::set_var(name, value));
            std::env::remove_var("CRINGLE_TRACE");
            if std::env::var("CRINGLE_DUMP").is_ok_and(|value| value.contains('/')) {
                std::env::remove_var("CRINGLE_DUMP");
            }
        }
        if let Some(error) = error_of_choices() {
            reply.send_text(&error);
        }
    });
    match &answer {
        Answer { unanswered: Some(why), .. } => Some(format!("cannot try to start: {why}")),
        Answer { signal: Some(signal), .. } => {
            Some(format!("killed by signal {signal} at the start"))
        }
        _ => Some(answer.text_from(0)).filter(|text| !text.is_empty()),
    }
}

fn error_of_choices() -> Option<String> {
    let run = |builder: Builder| -> Option<Error> { builder.run(|| ()).err() };
    let error = run(Builder::new())?;
    if error.kind() == ErrorKind::InvalidInput {
        return Some(error.to_string());
    }
    let driver = std::env::var("CRINGLE_DRIVER").ok();
    driver.filter(|driver| driver == "uring" || driver == "ring")?;
    // The program may have private thread-locals where this command, linked statically, has none.
    let error = run(Builder::new().thread_locals(ThreadLocals::Shared))?;
    Some(format!("{error}; or, without a ring, leave --driver and CRINGLE_DRIVER out"))
}

/// Discards the child's standard error: the report already has what a failing runtime prints.
fn silence() {
    if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
        // SAFETY: a system call with no pointers. Both descriptors are open, and the second is this
        // child's own copy.
        unsafe { libc::dup2(nowhere.as_raw_fd(), libc::STDERR_FILENO) };
    }
}
