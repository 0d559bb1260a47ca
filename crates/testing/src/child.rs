//! Runs a test in a child process, for tests that end their process or count its resources.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::Location;
use std::path::Path;
use std::process::{Command, Output};

const TEST_VARIABLE: &str = "CRINGLE_TEST_CHILD";

/// Returns `sample`, or `full` with `CRINGLE_FULL=1` (`cargo xtask long --only scale`).
pub fn scaled(sample: usize, full: usize) -> usize {
    if std::env::var_os("CRINGLE_FULL").is_some() { full } else { sample }
}

/// Runs this test alone in a child, and returns its output. Returns `None` in the child, which must
/// then run the test's body.
#[track_caller]
pub fn run(test: &str) -> Option<Output> {
    run_with(test, |command| command)
}

/// Like [`run`], with a child whose command `prepare` changes.
#[track_caller]
pub fn run_with(test: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> Option<Output> {
    Some(prepare(&mut command(test)?).output().unwrap())
}

/// Returns the command that runs this test alone in a child, and `None` in the child.
#[track_caller]
pub fn command(test: &str) -> Option<Command> {
    if std::env::var(TEST_VARIABLE).is_ok_and(|name| name == test) {
        return None;
    }
    let mut command = this_program();
    command.args(["--exact", &full_name(test, Location::caller()), "--nocapture"]);
    command.arg("--test-threads=1");
    command.env(TEST_VARIABLE, test).env_remove("RUST_BACKTRACE").env_remove("RUST_MIN_STACK");
    // The watchdog's thread allocates and opens files.
    command.env("CRINGLE_WATCHDOG", "off");
    let restore_signals = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
            // SAFETY: no pointers are passed.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // A shell's background job ignores the first two, and `perf record` the last; their children
    // would, too.
    // SAFETY: `signal` is async-signal-safe, so the child may call it between `fork` and `exec`.
    unsafe { command.pre_exec(restore_signals) };
    Some(command)
}

/// Returns the command that runs this program again, by the same runner: a loader of another libc,
/// or an emulator (`.ci/glibcs`).
pub fn this_program() -> Command {
    let Ok(runner) = std::env::var("CRINGLE_TEST_RUNNER") else {
        return Command::new(std::env::current_exe().unwrap());
    };
    let mut words = runner.split_whitespace();
    let mut command = Command::new(words.next().expect("the runner is a command"));
    command.args(words).arg(std::env::args_os().next().expect("a program has a name"));
    command
}

/// Returns the test's name in its program: with the modules of the caller's file, as in
/// `fibers::locals::test`.
fn full_name(test: &str, caller: &Location<'_>) -> String {
    let file = Path::new(caller.file()).with_extension("");
    let names: Vec<_> = file.iter().filter_map(|name| name.to_str()).collect();
    let tests = names.iter().rposition(|&name| name == "tests").expect("a file in `tests`");
    let modules =
        names[tests + 1..].iter().skip(1).filter(|name| !matches!(**name, "main" | "mod"));
    modules.chain([&test]).copied().collect::<Vec<_>>().join("::")
}

/// Runs the body in a child that must succeed.
#[track_caller]
pub fn must_succeed(test: &str, body: impl FnOnce()) {
    must_succeed_with(test, |command| command, body);
}

/// Like [`must_succeed`], with a child whose command `prepare` changes.
#[track_caller]
pub fn must_succeed_with(
    test: &str,
    prepare: impl FnOnce(&mut Command) -> &mut Command,
    body: impl FnOnce(),
) {
    match run_with(test, prepare) {
        None => body(),
        Some(output) => {
            println!("{}", transcript(&output));
            assert!(output.status.success(), "the child failed");
            let out = String::from_utf8_lossy(&output.stdout);
            assert!(out.contains("running 1 test\n"), "{test} is not found by its name");
        }
    }
}

/// Returns the child's status, standard output and standard error.
pub fn transcript(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}\n{err}", output.status)
}

#[cfg(target_env = "musl")]
type Resource = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Resource = libc::__rlimit_resource_t;

/// Lowers a resource limit of this process. Call it in a child only.
pub fn limit(resource: Resource, to: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: the pointer is to a structure that lives for the call.
    match unsafe { libc::setrlimit(resource, &limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number of descriptors, mappings and threads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    pub descriptors: usize,
    pub mappings: usize,
    pub threads: usize,
}

impl Footprint {
    pub fn now() -> Footprint {
        let entries = |path| std::fs::read_dir(path).unwrap().count();
        Footprint {
            descriptors: entries("/proc/self/fd"),
            mappings: std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            threads: threads(),
        }
    }
}

/// Counts the program's threads that have not ended. The kernel still lists a thread for a moment
/// after it was joined, and lists the I/O workers of a ring for seconds after the ring is closed.
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

/// Returns a field of `/proc/self/status` in KiB.
pub fn status_kib(field: &str) -> u64 {
    field_kib("/proc/self/status", field)
}

/// Returns a field of a file like `/proc/meminfo` in KiB.
pub fn field_kib(path: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line =
        text.lines().find(|line| line.starts_with(field)).expect("the kernel reports the field");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Lets the kernel write a core file of this child, into this directory.
pub fn keep_core<'a>(command: &'a mut Command, directory: &Path) -> &'a mut Command {
    let raise_limit = || {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is to a structure that lives for the calls.
        unsafe {
            libc::getrlimit(libc::RLIMIT_CORE, &mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_CORE, &limit);
        }
        Ok(())
    };
    // SAFETY: both calls are async-signal-safe.
    unsafe { command.pre_exec(raise_limit) };
    command.current_dir(directory)
}

/// Returns whether the kernel writes the core file of a program without a runtime into its working
/// directory. Prints why not.
pub fn kernel_writes_cores() -> bool {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let directory = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    let shell = keep_core(shell.args(["-c", "kill -SEGV $$"]), directory.path());
    let writes = !pattern.contains(['|', '/'])
        && shell.status().is_ok_and(|status| status.core_dumped())
        && core_in(directory.path()).is_some();
    if !writes {
        let pattern = pattern.trim_end();
        eprintln!("skipped: no core file is written here (core_pattern is '{pattern}')");
    }
    writes
}

/// Returns the core file in a directory of [`keep_core`].
pub fn core_in(directory: &Path) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_core = |path: &std::path::PathBuf| {
        let mut start = [0; 4];
        let read = |mut file: std::fs::File| file.read_exact(&mut start);
        std::fs::File::open(path).and_then(read).is_ok() && start == *b"\x7fELF"
    };
    entries.into_iter().find(is_core)
}
