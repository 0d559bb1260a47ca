//! Child processes: std's behaviour, and only the fiber waits.

mod child;
mod disk;
mod tools;

use cringle::fs::File;
use cringle::os::unix::process::{ChildExt, CommandExt, ExitStatusExt};
use cringle::process::{Child, Command, Stdio};
use cringle::{fiber, time};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::time::Duration;
use tools::*;

/// Ends when its standard input does.
fn waits_for_us() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Whether this process has a child that it could wait for.
fn has_children() -> bool {
    // SAFETY: an all-zero structure is valid, and the call fills it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_ALL, 0, &mut info, how) == 0
    }
}

/// Does the same to a command of std's and to one of ours, and compares what comes of it.
macro_rules! same {
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
fn it_is_what_std_says() {
    same!("echo", |c| c.arg("a rope").output());
    same!("sh", |c| c.args(["-c", "echo out; echo err >&2; exit 7"]).output());
    same!("sh", |c| c.args(["-c", "kill -9 $$"]).output());
    same!("sh", |c| c.args(["-c", "exit 3"]).status());
    same!("cat", |c| c.output());
    same!("sh", |c| c
        .args(["-c", "echo $A$B"])
        .env("A", "1")
        .env("B", "2")
        .env_remove("B")
        .output());
    same!("/usr/bin/env", |c| c.env_clear().envs([("A", "1"), ("B", "2")]).output());
    same!("pwd", |c| c.current_dir("/usr").output());
    same!("cat", |c| c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output());
    same!("sh", |c| c.args(["-c", "echo $0"]).arg0("name").output());
    same!("/nowhere/at all", |c| c.spawn().map(drop));
    same!("no program of this name", |c| c.output());
    same!("/etc/passwd", |c| c.status());
    same!("nul\0", |c| c.status());
    same!("echo", |c| c.current_dir("/nowhere").status());
    same!("echo", |c| {
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
fn only_the_fiber_waits() {
    on_one_worker(|| {
        let mut child = waits_for_us();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        fiber::scope(|s| {
            let waits = s.spawn_local(|| child.wait().unwrap());
            let reads = s.spawn_local(|| {
                let mut text = String::new();
                stdout.read_to_string(&mut text).unwrap();
                text
            });
            let_others_wait();
            assert!(!waits.is_finished() && !reads.is_finished());
            stdin.write_all(b"a rope").unwrap();
            drop(stdin);
            assert_eq!(reads.join().unwrap(), "a rope");
            assert!(waits.join().unwrap().success());
        });
    });
}

#[test]
fn a_hundred_children_at_once_on_one_worker() {
    on_one_worker(|| {
        let mut children: Vec<_> = (0..100).map(|_| waits_for_us()).collect();
        fiber::scope(|s| {
            let stdins: Vec<_> = children.iter_mut().map(|child| child.stdin.take()).collect();
            let waits: Vec<_> =
                children.iter_mut().map(|child| s.spawn_local(|| child.wait().unwrap())).collect();
            let_others_wait();
            assert!(waits.iter().all(|wait| !wait.is_finished()));
            drop(stdins);
            assert!(waits.into_iter().all(|wait| wait.join().unwrap().success()));
        });
    });
}

#[test]
fn both_streams_are_read_at_once() {
    on_one_worker(|| {
        // Each is more than a pipe holds.
        let mut both = shell("head -c 1000000 /dev/zero; head -c 900000 /dev/zero >&2; echo end");
        let output = both.output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (1_000_004, 900_000));
        let mut both = shell("head -c 900000 /dev/zero >&2; head -c 1000000 /dev/zero");
        let output = both.output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (1_000_000, 900_000));
    });
}

#[test]
fn a_wait_closes_the_input_first() {
    on_one_worker(|| {
        assert!(waits_for_us().wait().unwrap().success());
        assert!(waits_for_us().wait_with_output().unwrap().status.success());
    });
}

#[test]
fn a_wait_given_up_leaves_the_child_usable() {
    on_one_worker(|| {
        let mut child = waits_for_us();
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
fn who_cannot_be_waited_for_any_more_is_killed_and_reaped() {
    child::must_succeed("who_cannot_be_waited_for_any_more_is_killed_and_reaped", || {
        on_one_worker(|| {
            let limit = Duration::from_millis(5);
            let elapsed = |result: io::Result<()>| assert_elapsed(&result.unwrap_err(), limit);
            elapsed(time::timeout(limit, || shell("exec sleep 3600").status().map(drop)));
            elapsed(time::timeout(limit, || shell("exec sleep 3600").output().map(drop)));
            elapsed(time::timeout(limit, || shell("exec cat /dev/zero >&2").output().map(drop)));
            elapsed(time::timeout(limit, || {
                shell("exec sleep 3600").spawn()?.wait_with_output().map(drop)
            }));
            assert!(!has_children());
            // And one that is dropped is not: it is as std's.
            drop(shell("exit").spawn().unwrap());
            assert!(has_children());
        });
    });
}

#[test]
fn a_status_is_kept_and_a_child_that_has_ended_is_left_alone() {
    on_one_worker(|| {
        let mut child = shell("exit 5").spawn().unwrap();
        let id = child.id();
        assert_eq!(child.wait().unwrap().code(), Some(5));
        assert_eq!(child.wait().unwrap().code(), Some(5));
        assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(5));
        assert_eq!(child.id(), id);
        // Its number may be another's by now.
        child.send_signal(libc::SIGKILL).unwrap();
        child.kill().unwrap();

        let mut child = waits_for_us();
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(child.send_signal(1000).unwrap_err().kind(), ErrorKind::InvalidInput);
        child.send_signal(libc::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        let mut child = waits_for_us();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn defaults_of_streams_are_those_of_each_call() {
    // What this process says is what a test of its own prints.
    let test = "defaults_of_streams_are_those_of_each_call";
    let Some(output) = child::run_with(test, |c| c.stdin(std::process::Stdio::null())) else {
        return on_one_worker(|| {
            let mut command = shell("echo said; echo complained >&2");
            assert_eq!(command.output().unwrap().stdout, b"said\n");
            assert!(command.status().unwrap().success());
            let child = command.spawn().unwrap();
            assert!(child.stdout.is_none() && child.stderr.is_none() && child.stdin.is_none());
            assert_eq!(child.wait_with_output().unwrap().stdout, b"");
            assert_eq!(command.output().unwrap().stderr, b"complained\n");
            command.stderr(Stdio::null());
            let output = command.output().unwrap();
            assert_eq!((output.stdout, output.stderr), (b"said\n".into(), b"".into()));
        });
    };
    assert!(output.status.success(), "{}", child::transcript(&output));
    let count = |bytes: &[u8], word| String::from_utf8_lossy(bytes).matches(word).count();
    assert_eq!(count(&output.stdout, "said\n"), 2, "{}", child::transcript(&output));
    assert_eq!(count(&output.stderr, "complained\n"), 2);
}

#[test]
fn streams_are_files_pipes_and_other_childrens_streams() {
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

        let mut child = waits_for_us();
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
fn what_std_has_for_unix_is_there() {
    on_one_worker(|| {
        // SAFETY: it makes a system call, and no other.
        let umask = || unsafe { libc::umask(0o123) };
        let mut command = shell("umask");
        // SAFETY: as above.
        unsafe {
            command.pre_exec(move || {
                umask();
                Ok(())
            })
        };
        assert_eq!(command.output().unwrap().stdout, b"0123\n");
        // SAFETY: it makes an error without an allocation.
        unsafe { command.pre_exec(|| Err(io::Error::from_raw_os_error(libc::EDOM))) };
        assert_eq!(command.output().unwrap_err().raw_os_error(), Some(libc::EDOM));

        let mut child = waits_for_us();
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
        match is_root {
            true => assert_eq!(ids.unwrap().stdout, b"1234\n"),
            false => assert_eq!(ids.unwrap_err().kind(), ErrorKind::PermissionDenied),
        }
    });
}

#[test]
fn a_program_takes_the_place_of_this_one() {
    let test = "a_program_takes_the_place_of_this_one";
    let Some(output) = child::run(test) else {
        on_one_worker(|| {
            let error = Command::new("/nowhere").exec();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            let error = Command::new("echo").arg("in its place").exec();
            panic!("{error}");
        });
        return;
    };
    assert!(output.status.success() && child::transcript(&output).contains("in its place"));
}

#[test]
fn a_child_is_waited_for_where_no_descriptor_is_left() {
    child::must_succeed("a_child_is_waited_for_where_no_descriptor_is_left", || {
        on_one_worker(|| {
            let mut child = waits_for_us();
            let stdin = child.stdin.take();
            let mut cancelled = waits_for_us();
            let kept_open = cancelled.stdin.take();
            child::limit(libc::RLIMIT_NOFILE, 0).unwrap();
            let limit = Duration::from_millis(1);
            assert_elapsed(&time::timeout(limit, || cancelled.wait()).unwrap_err(), limit);
            fiber::scope(|s| {
                let waits = s.spawn_local(|| child.wait().unwrap());
                let_others_wait();
                drop(stdin);
                assert!(waits.join().unwrap().success());
            });
            drop(kept_open);
            assert!(cancelled.wait().unwrap().success());
        });
    });
}

#[test]
fn a_child_whose_status_the_kernel_drops_is_an_error_as_std_has_it() {
    let test = "a_child_whose_status_the_kernel_drops_is_an_error_as_std_has_it";
    child::must_succeed(test, || {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        on_one_worker(|| {
            let mut child = waits_for_us();
            assert_eq!(child.wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
            let error = Command::new("true").status().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
        });
    });
}

#[test]
fn an_unwinding_fiber_waits_for_its_child_too() {
    struct Waits(Option<Child>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(self.0.as_mut().unwrap().wait().unwrap().success());
        }
    }
    on_one_worker(|| {
        let mut child = waits_for_us();
        let stdin = child.stdin.take();
        fiber::scope(|s| {
            let unwinds = s.spawn_local(|| {
                let _waits = Waits(Some(child));
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
fn nothing_is_left_behind() {
    child::must_succeed("nothing_is_left_behind", || {
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
fn a_simulation_has_no_other_programs() {
    let report = cringle::sim::run(1, &cringle::sim::Options::new(), || {
        Command::new("echo").spawn().unwrap_err().kind()
    });
    assert_eq!(report.unwrap().value, ErrorKind::Unsupported);
}

/// Where no stack can be had for the fiber that reads the second pipe, the child is not left
/// behind.
#[test]
fn output_that_cannot_be_read_for_want_of_memory_leaves_no_zombie() {
    let test = "output_that_cannot_be_read_for_want_of_memory_leaves_no_zombie";
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
