//! For tests that need a process of their own: because they end it, or count what is in it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

const WHO: &str = "CRINGLE_TEST_CHILD";

/// The count of a test: a sample, or the full count with `CRINGLE_FULL=1` (`cargo xtask long --only
/// scale`).
pub(crate) fn scaled(sample: usize, full: usize) -> usize {
    if std::env::var_os("CRINGLE_FULL").is_some() { full } else { sample }
}

/// `None` in the child: do it. Else the child has run this test alone, and this is how it ended.
pub(crate) fn run(test: &str) -> Option<Output> {
    run_with(test, |command| command)
}

/// As [`run`], with something more said to the child's command.
pub(crate) fn run_with(
    test: &str,
    prepare: impl FnOnce(&mut Command) -> &mut Command,
) -> Option<Output> {
    Some(prepare(&mut command(test)?).output().unwrap())
}

/// `None` in the child; else what runs it.
pub(crate) fn command(test: &str) -> Option<Command> {
    if std::env::var(WHO).is_ok_and(|who| who == test) {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(WHO, test).env_remove("RUST_BACKTRACE").env_remove("RUST_MIN_STACK");
    // Its thread has a heap, and opens files.
    command.env("CRINGLE_WATCHDOG", "off");
    let listen = || {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: no pointers.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // A shell's job in the background ignores them, and so would its children.
    // SAFETY: `signal` may be called between fork and exec.
    unsafe { command.pre_exec(listen) };
    Some(command)
}

/// Runs the body in a child that must succeed.
pub(crate) fn must_succeed(test: &str, body: impl FnOnce()) {
    must_succeed_with(test, |command| command, body);
}

/// As [`must_succeed`], with something more said to the child's command.
pub(crate) fn must_succeed_with(
    test: &str,
    prepare: impl FnOnce(&mut Command) -> &mut Command,
    body: impl FnOnce(),
) {
    match run_with(test, prepare) {
        None => body(),
        Some(output) => {
            println!("{}", transcript(&output));
            assert!(output.status.success(), "the child failed");
        }
    }
}

/// What the child wrote.
pub(crate) fn transcript(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}\n{err}", output.status)
}

#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

/// Lowers a limit of this process: in a child, where it cannot hurt others.
pub(crate) fn limit(resource: Resource, to: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: the call reads the structure it is given.
    match unsafe { libc::setrlimit(resource, &limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Descriptors, mappings and threads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) descriptors: usize,
    pub(crate) mappings: usize,
    pub(crate) threads: usize,
}

impl Footprint {
    pub(crate) fn now() -> Footprint {
        let entries = |path| std::fs::read_dir(path).unwrap().count();
        Footprint {
            descriptors: entries("/proc/self/fd"),
            mappings: std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            threads: threads(),
        }
    }
}

/// Those of the program that have not ended. The kernel lists one for a moment after it was joined;
/// its own, which carry out operations of a ring, stay with the thread that had the ring for
/// seconds.
fn threads() -> usize {
    const EXITING: u32 = 0x4;
    const IO_WORKER: u32 = 0x10;
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let stats =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let flags = |stat: String| -> u32 {
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(6).unwrap().parse().unwrap()
    };
    stats.map(flags).filter(|flags| flags & (EXITING | IO_WORKER) == 0).count()
}

/// A field of `/proc/self/status` in KiB.
pub(crate) fn status_kib(field: &str) -> u64 {
    field_kib("/proc/self/status", field)
}

/// A field of a file like `/proc/meminfo` in KiB.
pub(crate) fn field_kib(path: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).expect("the kernel tells it");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
