//! Child processes behave as with std, and waiting for one suspends only the fiber.

use cringle::fs::File;
use cringle::os::unix::process::{ChildExt, CommandExt, ExitStatusExt};
use cringle::process::{Child, Command, Stdio};
use cringle::{fiber, time};
use cringle_testing::tools::*;
use cringle_testing::{child, disk};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

/// Starts a child that copies its input to its output, and exits at the end of its input.
fn cat() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Returns whether this process has a child that is not reaped.
fn has_children() -> bool {
    // SAFETY: an all-zero structure is valid, and the call fills it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_ALL, 0, &mut info, how) == 0
    }
}

/// Evaluates the same expression for a command of std and for one of the library, and compares the
/// results.
macro_rules! same_as_std {
    ($program:expr, |$command:ident| $body:expr) => {{
        let std = {
            let $command = &mut std::process::Command::new($program);
            format!("{:?}", $body)
        };
        let ours = || {
            let $command = &mut Command::new($program);
            format!("{:?}", $body)
        };
        assert_eq!(on_one_worker(ours), std);
        assert_eq!(ours(), std);
    }};
}

#[test]
fn commands_have_std_results() {
    same_as_std!("echo", |c| c.arg("a rope").output());
    same_as_std!("sh", |c| c.args(["-c", "echo out; echo err >&2; exit 7"]).output());
    same_as_std!("sh", |c| c.args(["-c", "kill -9 $$"]).output());
    same_as_std!("sh", |c| c.args(["-c", "exit 3"]).status());
    same_as_std!("cat", |c| c.output());
    same_as_std!("sh", |c| c
        .args(["-c", "echo $A$B"])
        .env("A", "1")
        .env("B", "2")
        .env_remove("B")
        .output());
    same_as_std!("/usr/bin/env", |c| c.env_clear().envs([("A", "1"), ("B", "2")]).output());
    same_as_std!("pwd", |c| c.current_dir("/usr").output());
    same_as_std!("cat", |c| c
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output());
    same_as_std!("sh", |c| c.args(["-c", "echo $0"]).arg0("name").output());
    same_as_std!("/nowhere/at all", |c| c.spawn().map(drop));
    same_as_std!("no program of this name", |c| c.output());
    same_as_std!("/etc/passwd", |c| c.status());
    same_as_std!("nul\0", |c| c.status());
    same_as_std!("echo", |c| c.current_dir("/nowhere").status());
    same_as_std!("echo", |c| {
        c.args(["a", "b"]).env("C", "d").env_remove("E").current_dir("/");
        format!(
            "{:?} {:?} {:?} {:?}",
            c.get_program(),
            c.get_args().collect::<Vec<_>>(),
            c.get_envs().collect::<Vec<_>>(),
            c.get_current_dir()
        )
    });
}

#[test]
fn wait_suspends_only_the_fiber() {
    on_one_worker(|| {
        let mut child = cat();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        fiber::scope(|s| {
            let waiter = s.spawn_local(|| child.wait().unwrap());
            let reads = s.spawn_local(|| {
                let mut text = String::new();
                stdout.read_to_string(&mut text).unwrap();
                text
            });
            let_others_wait();
            assert!(!waiter.is_finished() && !reads.is_finished());
            stdin.write_all(b"a rope").unwrap();
            drop(stdin);
            assert_eq!(reads.join().unwrap(), "a rope");
            assert!(waiter.join().unwrap().success());
        });
    });
}

#[test]
fn one_worker_waits_for_many_children() {
    on_one_worker(|| {
        let mut children: Vec<_> = (0..100).map(|_| cat()).collect();
        fiber::scope(|s| {
            let stdins: Vec<_> = children.iter_mut().map(|child| child.stdin.take()).collect();
            let waiters: Vec<_> =
                children.iter_mut().map(|child| s.spawn_local(|| child.wait().unwrap())).collect();
            let_others_wait();
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            drop(stdins);
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap().success()));
        });
    });
}

#[test]
fn output_reads_both_streams_concurrently() {
    on_one_worker(|| {
        // Each stream has more bytes than a pipe can hold.
        let mut both = shell("head -c 1000000 /dev/zero; head -c 900000 /dev/zero >&2; echo end");
        let output = both.output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (1_000_004, 900_000));
        let mut both = shell("head -c 900000 /dev/zero >&2; head -c 1000000 /dev/zero");
        let output = both.output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (1_000_000, 900_000));
    });
}

#[test]
fn wait_closes_stdin_first() {
    on_one_worker(|| {
        assert!(cat().wait().unwrap().success());
        assert!(cat().wait_with_output().unwrap().status.success());
    });
}

#[test]
fn cancelled_wait_leaves_the_child_usable() {
    on_one_worker(|| {
        let mut child = cat();
        let mut stdin = child.stdin.take().unwrap();
        let limit = Duration::from_millis(1);
        for _ in 0..20 {
            assert_elapsed(&time::timeout(limit, || child.wait()).unwrap_err(), limit);
        }
        fiber::scope(|s| {
            s.cancel();
            assert_cancelled(&child.wait().unwrap_err());
            assert_cancelled(&Command::new("echo").spawn().unwrap_err());
        });
        assert!(child.try_wait().unwrap().is_none());
        stdin.write_all(b"still there").unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"still there");
    });
}

#[test]
fn cancelled_output_kills_and_reaps_the_child() {
    child::must_succeed("cancelled_output_kills_and_reaps_the_child", || {
        on_one_worker(|| {
            let limit = Duration::from_millis(5);
            let times_out = |call: &dyn Fn() -> io::Result<()>| {
                assert_elapsed(&time::timeout(limit, call).unwrap_err(), limit);
            };
            times_out(&|| shell("exec sleep 3600").status().map(drop));
            times_out(&|| shell("exec sleep 3600").output().map(drop));
            times_out(&|| shell("exec cat /dev/zero >&2").output().map(drop));
            times_out(&|| shell("exec sleep 3600").spawn()?.wait_with_output().map(drop));
            assert!(!has_children());
            // As with std, dropping a child neither kills nor reaps it.
            drop(shell("exit").spawn().unwrap());
            assert!(has_children());
        });
    });
}

#[test]
fn exit_status_is_kept_after_wait() {
    on_one_worker(|| {
        let mut child = shell("exit 5").spawn().unwrap();
        let id = child.id();
        assert_eq!(child.wait().unwrap().code(), Some(5));
        assert_eq!(child.wait().unwrap().code(), Some(5));
        assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(5));
        assert_eq!(child.id(), id);
        // Another process may have its number now, so these calls send no signal.
        child.send_signal(libc::SIGKILL).unwrap();
        child.kill().unwrap();

        let mut child = cat();
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(child.send_signal(1000).unwrap_err().kind(), ErrorKind::InvalidInput);
        child.send_signal(libc::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        let mut child = cat();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn default_streams_depend_on_the_call() {
    // The child's standard output is a pipe of this test.
    let test = "default_streams_depend_on_the_call";
    let Some(output) = child::run_with(test, |c| c.stdin(std::process::Stdio::null())) else {
        return on_one_worker(|| {
            let mut command = shell("echo stdout; echo stderr >&2");
            // `output` captures both streams; `status` and `spawn` inherit them.
            assert_eq!(command.output().unwrap().stdout, b"stdout\n");
            assert!(command.status().unwrap().success());
            let child = command.spawn().unwrap();
            assert!(child.stdout.is_none() && child.stderr.is_none() && child.stdin.is_none());
            assert_eq!(child.wait_with_output().unwrap().stdout, b"");
            assert_eq!(command.output().unwrap().stderr, b"stderr\n");
            command.stderr(Stdio::null());
            let output = command.output().unwrap();
            assert_eq!((output.stdout, output.stderr), (b"stdout\n".into(), b"".into()));
        });
    };
    assert!(output.status.success(), "{}", child::transcript(&output));
    let count = |bytes: &[u8], word| String::from_utf8_lossy(bytes).matches(word).count();
    assert_eq!(count(&output.stdout, "stdout\n"), 2, "{}", child::transcript(&output));
    assert_eq!(count(&output.stderr, "stderr\n"), 2);
}

#[test]
fn streams_can_be_files_pipes_and_other_children() {
    on_one_worker(|| {
        let directory = disk::directory();
        let path = directory.path().join("file");
        let mut file = File::options().read(true).write(true).create(true).open(&path).unwrap();
        let (reader, mut writer) = cringle::io::pipe().unwrap();
        let mut first = Command::new("cat").stdin(reader).stdout(Stdio::piped()).spawn().unwrap();
        let mut second = Command::new("tr")
            .args(["a-z", "A-Z"])
            .stdin(first.stdout.take().unwrap())
            .stdout(file.try_clone().unwrap())
            .spawn()
            .unwrap();
        writer.write_all(b"a rope").unwrap();
        drop(writer);
        assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "A ROPE");

        let mut child = cat();
        let stdin: OwnedFd = child.stdin.take().unwrap().into();
        let stdout: std::process::ChildStdout = child.stdout.take().unwrap().into();
        child.stdin = Some(stdin.into());
        child.stdout = Some(stdout.into());
        let clone = child.stdin.as_ref().unwrap().as_fd().try_clone_to_owned().unwrap();
        std::fs::File::from(clone).write_all(b"by a clone").unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"by a clone");
        let stderr = shell("echo err >&2").stderr(Stdio::piped()).spawn().unwrap().stderr.unwrap();
        let stderr: std::process::ChildStderr = stderr.into();
        assert_eq!(io::read_to_string(stderr).unwrap(), "err\n");
    });
}

#[test]
fn unix_extensions_work() {
    on_one_worker(|| {
        // SAFETY: no pointers.
        let umask = || unsafe { libc::umask(0o123) };
        let mut command = shell("umask");
        // SAFETY: the closure only makes a system call, which is safe between fork and exec.
        unsafe {
            command.pre_exec(move || {
                umask();
                Ok(())
            })
        };
        assert_eq!(command.output().unwrap().stdout, b"0123\n");
        // SAFETY: the closure creates an error without allocating.
        unsafe { command.pre_exec(|| Err(io::Error::from_raw_os_error(libc::EDOM))) };
        assert_eq!(command.output().unwrap_err().raw_os_error(), Some(libc::EDOM));

        let mut child = cat();
        let group = |id: u32| {
            // SAFETY: no pointers.
            unsafe { libc::getpgid(id as i32) }
        };
        assert_eq!(group(child.id()), group(std::process::id()));
        child.wait().unwrap();
        let mut child = Command::new("cat").process_group(0).stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(group(child.id()), child.id() as i32);
        child.wait().unwrap();

        // SAFETY: no pointers.
        let is_root = unsafe { libc::geteuid() } == 0;
        let ids = Command::new("id").args(["-u"]).uid(1234).gid(4321).output();
        if is_root {
            assert_eq!(ids.unwrap().stdout, b"1234\n");
        } else {
            assert_eq!(ids.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
    });
}

#[test]
fn exec_replaces_the_process() {
    let test = "exec_replaces_the_process";
    let Some(output) = child::run(test) else {
        on_one_worker(|| {
            let error = Command::new("/nowhere").exec();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let error = Command::new("echo").arg("replaced").exec();
            panic!("{error}");
        });
        return;
    };
    assert!(output.status.success() && child::transcript(&output).contains("replaced"));
}

#[test]
fn wait_works_without_free_descriptors() {
    child::must_succeed("wait_works_without_free_descriptors", || {
        on_one_worker(|| {
            let mut child = cat();
            let stdin = child.stdin.take();
            let mut cancelled = cat();
            let kept_open = cancelled.stdin.take();
            child::limit(libc::RLIMIT_NOFILE, 0).unwrap();
            let limit = Duration::from_millis(1);
            assert_elapsed(&time::timeout(limit, || cancelled.wait()).unwrap_err(), limit);
            fiber::scope(|s| {
                let waiter = s.spawn_local(|| child.wait().unwrap());
                let_others_wait();
                drop(stdin);
                assert!(waiter.join().unwrap().success());
            });
            drop(kept_open);
            assert!(cancelled.wait().unwrap().success());
        });
    });
}

#[test]
fn wait_fails_if_the_kernel_discards_the_status() {
    let test = "wait_fails_if_the_kernel_discards_the_status";
    child::must_succeed(test, || {
        // SAFETY: the call installs no handler. The kernel then reaps children by itself.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        on_one_worker(|| {
            let mut child = cat();
            assert_eq!(child.wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
            let error = Command::new("true").status().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
        });
    });
}

#[test]
fn unwinding_fiber_can_wait_for_its_child() {
    struct WaitOnDrop(Option<Child>);
    impl Drop for WaitOnDrop {
        fn drop(&mut self) {
            assert!(self.0.as_mut().unwrap().wait().unwrap().success());
        }
    }
    on_one_worker(|| {
        let mut child = cat();
        let stdin = child.stdin.take();
        fiber::scope(|s| {
            let unwinds = s.spawn_local(|| {
                let _guard = WaitOnDrop(Some(child));
                std::panic::resume_unwind(Box::new(7));
            });
            let_others_wait();
            assert!(!unwinds.is_finished());
            drop(stdin);
            assert!(unwinds.join().unwrap_err().is::<i32>());
        });
    });
}

#[test]
fn processes_leave_nothing_behind() {
    child::must_succeed("processes_leave_nothing_behind", || {
        let round = || {
            on_two_workers(|| {
                let fibers: Vec<_> =
                    (0..20).map(|_| fiber::spawn(|| shell("echo x").output().unwrap())).collect();
                assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap().stdout == b"x\n"));
            });
        };
        round();
        let before = child::Footprint::now();
        round();
        let after = child::Footprint::now();
        assert_eq!((after.descriptors, after.threads), (before.descriptors, before.threads));
        assert!(!has_children());
    });
}

#[cfg(feature = "sim")]
#[test]
fn simulation_refuses_to_spawn_processes() {
    let report = cringle::sim::run(1, &cringle::sim::Options::new(), || {
        Command::new("echo").spawn().unwrap_err().kind()
    });
    assert_eq!(report.unwrap().value, ErrorKind::Unsupported);
}

/// If there is no memory for the stack of the fiber that reads the second pipe, the call kills and
/// reaps the child.
#[test]
fn failed_output_leaves_no_zombie() {
    let test = "failed_output_leaves_no_zombie";
    child::must_succeed(test, || {
        on_one_worker(|| {
            let mut command = shell("echo out; echo err >&2; exec sleep 3600");
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let now = child::status_kib("VmSize:") * 1024;
            child::limit(libc::RLIMIT_AS, now + (1 << 20)).unwrap();
            let error = child.wait_with_output().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
            assert!(!has_children());
        });
    });
}

/// The writer has the program open at the first attempt, and closes it in one of the next turns.
#[test]
fn program_starts_once_its_writer_closes() {
    // In a child of its own: the children of other tests inherit what is open.
    child::must_succeed("program_starts_once_its_writer_closes", || {
        on_one_worker(|| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("program");
            std::fs::copy("/bin/true", &path).unwrap();
            let start = |path: &std::path::Path| Command::new(path).status();
            let writer = std::fs::File::options().write(true).open(&path).unwrap();
            fiber::scope(|s| {
                let started = s.spawn_local(|| start(&path));
                for _ in 0..4 {
                    fiber::yield_now();
                }
                assert!(!started.is_finished(), "the program is open");
                drop(writer);
                assert!(started.join().unwrap().unwrap().success());
            });
            let _writer = std::fs::File::options().write(true).open(&path).unwrap();
            let error = start(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ExecutableFileBusy);
        });
    });
}
