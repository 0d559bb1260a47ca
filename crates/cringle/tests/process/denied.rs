//! Hosts that deny rings, locked memory, descriptors or `/proc`. A run starts there nevertheless,
//! gives the same results, and reports what it lacks.

use cringle::block::{Batch, BlockIo, FixedBufs, FixedFile};
use cringle::fs::File;
use cringle::net::{TcpListener, TcpStream};
use cringle::runtime::{self, Balance, Driver, DriverChoice, ThreadLocals};
use cringle::{Builder, fiber, io};
use cringle_testing::{child, terminal};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const RING_CALLS: [i64; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Installs a filter that gives these calls this result, for this thread and its future children.
pub(crate) fn deny(calls: &[i64], action: SeccompAction) {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// Uses files, batches, sockets, pipes, timers, the pool and two workers. Returns the driver.
fn exercise_everything() -> Driver {
    let driver = Builder::new().workers(2).run(|| {
        let path = std::env::temp_dir().join(format!("cringle-denied-{}", std::process::id()));
        fiber::scope(|s| {
            s.spawn(talks_over_a_socket);
            s.spawn(talks_through_a_pipe);
            s.spawn(|| writes_and_reads(&path));
            s.spawn(|| fiber::sleep(Duration::from_millis(1)));
            assert_eq!(fiber::unblock(|| 6 * 7), 42);
        });
        cringle::fs::remove_file(&path).unwrap();
        runtime::driver()
    });
    performs_batches_for_threads();
    driver.unwrap()
}

fn talks_over_a_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    fiber::scope(|s| {
        s.spawn(move || TcpStream::connect(addr).unwrap().write_all(&[7; 100_000]).unwrap());
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        assert!(all == [7; 100_000]);
    });
}

fn talks_through_a_pipe() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    fiber::scope(|s| {
        s.spawn_local(move || writer.write_all(&[8; 200_000]).unwrap());
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert!(all == [8; 200_000]);
    });
}

fn writes_and_reads(path: &std::path::Path) {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(&[9; 50_000], 0).unwrap();
    file.sync_all().unwrap();
    let mut pages = vec![0; 50_000];
    let mut batch = Batch::new();
    for (page, offset) in pages.chunks_mut(1000).zip((0..).step_by(1000)) {
        batch.read_exact(&file, page, offset);
    }
    assert!(batch.submit().into_iter().all(|count| count.unwrap() == 1000));
    assert!(pages == [9; 50_000]);
}

fn performs_batches_for_threads() {
    let io = BlockIo::builder().build().unwrap();
    let file = File::open("/dev/zero").unwrap();
    let mut bytes = [1; 64];
    let mut batch = Batch::new();
    batch.read(&file, &mut bytes, 0);
    assert_eq!(io.submit(batch).unwrap().into_iter().next().unwrap().unwrap(), 64);
    assert_eq!(bytes, [0; 64]);
    io.close().unwrap();
}

/// Checks that the driver is epoll and that the reason contains all of these words.
fn is_epoll_because(driver: &Driver, words: &[&str]) {
    let Driver::Epoll(why) = driver else { panic!("{driver:?}") };
    assert!(!why.was_chosen());
    let text = why.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// Runs the body in a child process whose environment chooses no driver.
#[track_caller]
pub(crate) fn in_child(test: &str, body: impl FnOnce()) {
    child::must_succeed_with(test, |command| command.env_remove("CRINGLE_DRIVER"), body);
}

// ----- seccomp filters -----

/// As Docker's default profile does.
#[test]
fn run_works_under_a_filter_that_refuses_rings() {
    in_child("run_works_under_a_filter_that_refuses_rings", || {
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        is_epoll_because(&exercise_everything(), &["denied", "seccomp", "Docker"]);
    });
}

/// As old kernels and gVisor do. QEMU's emulation of a process lacks reads that do not wait, too.
#[test]
fn run_works_on_a_kernel_without_rings() {
    in_child("run_works_on_a_kernel_without_rings", || {
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        deny(&RING_CALLS, missing.clone());
        is_epoll_because(&exercise_everything(), &["no io_uring", "seccomp", "Linux 6.1"]);
        deny(&[libc::SYS_preadv2, libc::SYS_pwritev2], missing);
        exercise_everything();
    });
}

#[test]
fn run_survives_a_filter_that_kills_for_rings() {
    let name = "run_survives_a_filter_that_kills_for_rings";
    in_child(name, || {
        deny(&RING_CALLS[..1], SeccompAction::KillProcess);
        is_epoll_because(
            &exercise_everything(),
            &["seccomp filter kills", "signal 31", "io_uring_setup"],
        );
        // The probe leaves no child process that the program could see.
        // SAFETY: no pointer is passed: the status pointer is null.
        let children =
            unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
        assert_eq!(children, -1, "no child is left");
    });
}

/// A ring can be made, but not entered.
#[test]
fn filter_against_enter_is_detected_at_start() {
    for (n, action) in [SeccompAction::Errno(libc::EPERM as u32), SeccompAction::KillProcess]
        .into_iter()
        .enumerate()
    {
        let name = "filter_against_enter_is_detected_at_start";
        let child = child::run_with(name, |command| {
            command.env_remove("CRINGLE_DRIVER").env("CRINGLE_TEST_CASE", n.to_string())
        });
        if let Some(output) = child {
            assert!(output.status.success(), "{}", child::transcript(&output));
        } else if std::env::var("CRINGLE_TEST_CASE").unwrap() == n.to_string() {
            deny(&RING_CALLS[1..2], action);
            is_epoll_because(&exercise_everything(), &["seccomp", "io_uring"]);
        }
    }
}

/// The process enters a sandbox after its first ring was made: later runs have no ring.
#[test]
fn later_runs_work_when_rings_become_denied() {
    in_child("later_runs_work_when_rings_become_denied", || {
        if !matches!(exercise_everything(), Driver::Uring(_)) {
            return println!("skipped: rings are not available");
        }
        deny(&RING_CALLS[..1], SeccompAction::Errno(libc::EPERM as u32));
        is_epoll_because(&exercise_everything(), &["denied", "seccomp"]);
    });
}

/// Fibers cannot be unwound then, because the kernel may still write into their frames.
#[test]
fn losing_a_ring_aborts_with_an_explanation() {
    let name = "losing_a_ring_aborts_with_an_explanation";
    let Some(output) = child::run_with(name, |command| command.env_remove("CRINGLE_DRIVER")) else {
        return Builder::new()
            .workers(1)
            .run(|| {
                if !matches!(runtime::driver(), Driver::Uring(_)) {
                    return println!("skipped: rings are not available");
                }
                deny(&RING_CALLS[1..2], SeccompAction::Errno(libc::EPERM as u32));
                // The read waits, so the worker enters the kernel.
                let (mut reader, _writer) = io::pipe().unwrap();
                println!("it continued: {:?}", reader.read(&mut [0]));
            })
            .unwrap();
    };
    let text = child::transcript(&output);
    if text.contains("skipped") {
        return;
    }
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(!text.contains("it continued"), "{text}");
    let sentence = text.lines().find(|line| line.contains("io_uring_enter failed")).expect(&text);
    let remedy = "Allow io_uring_enter in that filter";
    for words in ["Operation not permitted", "seccomp", remedy, "aborting, because"] {
        assert!(sentence.contains(words), "{text}");
    }
}

/// Some filters are older than the two calls that wait.
#[test]
fn run_works_under_an_old_filter() {
    in_child("run_works_under_an_old_filter", || {
        let newer =
            [libc::SYS_epoll_pwait2, libc::SYS_openat2, libc::SYS_preadv2, libc::SYS_pwritev2];
        deny(&newer[..2], SeccompAction::Errno(libc::EPERM as u32));
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        let begun = std::time::Instant::now();
        is_epoll_because(&exercise_everything(), &["denied"]);
        Builder::new().run(|| fiber::sleep(Duration::from_millis(3))).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(3));
    });
}

#[test]
fn error_names_the_filter_that_denies_rings() {
    in_child("error_names_the_filter_that_denies_rings", || {
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        let error = Builder::new().driver(DriverChoice::Uring).run(|| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("seccomp"), "{error}");
    });
}

// ----- the environment -----

#[test]
fn environment_chooses_unless_the_program_does() {
    let name = "environment_chooses_unless_the_program_does";
    let output = child::run_with(name, |command| command.env("CRINGLE_DRIVER", "epoll"));
    if let Some(output) = output {
        return assert!(output.status.success(), "{}", child::transcript(&output));
    }
    let Driver::Epoll(why) = exercise_everything() else { panic!("CRINGLE_DRIVER was ignored") };
    assert!(why.was_chosen());
    assert!(why.to_string().contains("CRINGLE_DRIVER=epoll"), "{why}");
}

#[test]
fn ring_is_another_name_of_uring() {
    let name = "ring_is_another_name_of_uring";
    let output = child::run_with(name, |command| command.env("CRINGLE_DRIVER", "ring"));
    if let Some(output) = output {
        return assert!(output.status.success(), "{}", child::transcript(&output));
    }
    match Builder::new().run(cringle::runtime::driver) {
        Ok(driver) => assert!(matches!(driver, Driver::Uring(_))),
        // No fallback, as with `uring`.
        Err(e) => assert_ne!(e.kind(), ErrorKind::InvalidInput, "{e}"),
    }
}

#[test]
fn unknown_driver_is_an_error() {
    let name = "unknown_driver_is_an_error";
    let output = child::run_with(name, |command| command.env("CRINGLE_DRIVER", "kqueue"));
    if let Some(output) = output {
        return assert!(output.status.success(), "{}", child::transcript(&output));
    }
    let error = Builder::new().run(|| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for word in ["CRINGLE_DRIVER", "kqueue", "`uring` or `epoll`"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    // The program's choice takes precedence.
    Builder::new().driver(DriverChoice::Epoll).run(|| ()).unwrap();
}

// ----- limits -----

/// Checks that the driver is a ring, or that the reason names the limit to raise.
fn is_rings_or_because(driver: &Driver, limit: &str) {
    match driver {
        Driver::Epoll(why) => {
            assert!(why.was_chosen() || why.to_string().contains(limit), "{why}");
        }
        Driver::Uring(_) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn run_works_with_little_locked_memory() {
    in_child("run_works_with_little_locked_memory", || {
        child::limit(libc::RLIMIT_MEMLOCK, 64 << 10).unwrap();
        // The limit does not bind root.
        drop_privileges();
        is_rings_or_because(&exercise_everything(), "RLIMIT_MEMLOCK");
    });
}

#[test]
fn run_works_with_few_open_files() {
    in_child("run_works_with_few_open_files", || {
        child::limit(libc::RLIMIT_NOFILE, 64).unwrap();
        is_rings_or_because(&exercise_everything(), "RLIMIT_NOFILE");
    });
}

/// The kernel performs these calls on threads that it cannot start here.
#[test]
fn syncs_end_without_kernel_threads() {
    in_child("syncs_end_without_kernel_threads", || {
        let path = writable_file();
        let file = std::fs::File::create(&path).unwrap();
        let appended = std::fs::File::options().append(true).open(&path).unwrap();
        let (file, mut appended) = (File::from(file), File::from(appended));
        beside_another_without_threads(|| {
            let (fixed, mut bufs) = (FixedFile::register(&file)?, FixedBufs::new(1, 4)?);
            bufs[0].copy_from_slice(b"rope");
            let mut batch = Batch::new();
            batch.write_all(&file, b"strand", 8);
            batch.write_fixed(&fixed, &bufs[0], 0);
            batch.submit().into_iter().sum::<std::io::Result<usize>>()?;
            file.set_len(4)?;
            appended.write_all(b"s")?;
            file.sync_all()?;
            file.sync_data()?;
            assert_eq!(std::fs::read(&path)?, b"ropes");
            Ok(())
        });
    });
}

#[test]
fn devices_are_written_without_kernel_threads() {
    in_child("devices_are_written_without_kernel_threads", uses_devices_without_threads);
}

/// A ring that is made under this limit never begins an op on a device that needs a thread.
#[test]
fn devices_are_written_by_users_without_threads() {
    in_child("devices_are_written_by_users_without_threads", || {
        child::limit(libc::RLIMIT_NPROC, 0).unwrap();
        uses_devices_without_threads();
    });
}

fn uses_devices_without_threads() {
    let (ours, theirs) = terminal::raw_terminal();
    let file = |fd| File::from(std::fs::File::from(fd));
    let (mut reader, mut writer) = (file(ours), file(theirs));
    beside_another_without_threads(|| {
        let mut full = File::options().read(true).write(true).open("/dev/full")?;
        let no_space = Some(libc::ENOSPC);
        assert_eq!(full.write(b"x").unwrap_err().raw_os_error(), no_space);
        assert_eq!(full.write_at(b"x", 0).unwrap_err().raw_os_error(), no_space);
        assert_eq!(full.read(&mut [1; 8])?, 8);
        let mut batch = Batch::new();
        batch.write(&full, b"x", 0);
        let written = batch.submit().into_iter().next().unwrap();
        assert_eq!(written.unwrap_err().raw_os_error(), no_space);
        // More than the terminal takes: the writer waits, and the reader runs meanwhile.
        let mut all = vec![0; 100_000];
        let (written, read) =
            fiber::join(move || writer.write_all(&[7; 100_000]), || reader.read_exact(&mut all));
        written.and(read)?;
        assert!(all == [7; 100_000]);
        Ok(())
    });
}

/// The kernel takes long to find out, each time.
#[test]
fn lack_of_kernel_threads_is_remembered() {
    in_child("lack_of_kernel_threads_is_remembered", || {
        let path = writable_file();
        let file = File::from(std::fs::File::create(&path).unwrap());
        beside_another_without_threads(|| {
            let entries = || runtime::stats().unwrap().total().entries.sum();
            let before = entries();
            for _ in 0..100 {
                file.sync_data()?;
                cringle::fs::metadata(&path)?;
            }
            let tried = entries() - before;
            assert!(tried < 100, "{tried} entries for 200 calls");
            Ok(())
        });
    });
}

fn writable_file() -> tempfile::TempPath {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    path
}

/// Calls `f` beside another fiber, as a user who has no thread left. The calls of a fiber that is
/// alone are plain ones.
fn beside_another_without_threads(f: impl FnOnce() -> std::io::Result<()>) {
    // The limit does not bind root.
    drop_privileges();
    let calls = || {
        child::limit(libc::RLIMIT_NPROC, 0)?;
        if std::thread::Builder::new().spawn(|| ()).is_ok() {
            println!("skipped: the limit does not bind this user");
            return Ok(());
        }
        f()
    };
    let other = || loop {
        fiber::yield_now_cancellable()?;
    };
    // The check of thread-locals of the fibers' own needs a thread.
    let builder = Builder::new().workers(1);
    let builder = builder.thread_locals(ThreadLocals::Shared).balance(Balance::Fixed);
    builder.run(|| fiber::race(calls, other)).unwrap().unwrap();
}

fn drop_privileges() {
    // SAFETY: no pointers are passed. Without the privilege, the calls fail and change nothing.
    unsafe {
        libc::setgid(65_534);
        libc::setuid(65_534);
    }
}

/// Neither driver needs `/proc`.
#[test]
fn run_works_without_proc() {
    in_child("run_works_without_proc", || {
        if let Err(why) = unmount_proc() {
            return println!("skipped: {why}");
        }
        assert!(!std::path::Path::new("/proc/self").exists());
        is_rings_or_because(&exercise_everything(), "a ring needs no /proc");
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        is_epoll_because(&exercise_everything(), &["denied", "here: unknown"]);
    });
}

/// Unmounts `/proc` for this process alone.
fn unmount_proc() -> std::io::Result<()> {
    let check = |result| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    let (none, proc) = (std::ptr::null(), c"/proc".as_ptr());
    // SAFETY: the paths are C strings, which are borrowed for the calls.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(none, c"/".as_ptr(), none, private, std::ptr::null()))?;
        check(libc::umount2(proc, libc::MNT_DETACH))
    }
}

// ----- the sysctl -----

const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// The machine's sysctl, which is restored when this is dropped.
struct Switch(String);

impl Switch {
    fn set(to: &str) -> std::io::Result<Switch> {
        let before = std::fs::read_to_string(SWITCH)?;
        std::fs::write(SWITCH, to)?;
        Ok(Switch(before))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        std::fs::write(SWITCH, &self.0).unwrap();
    }
}

/// The sysctl applies to the whole machine: other programs cannot create rings during this test.
#[test]
#[ignore = "disables io_uring on the whole machine; run it as root where no other program needs it"]
fn error_names_the_sysctl() {
    for to in ["1", "2"] {
        let name = "error_names_the_sysctl";
        let Some(mut command) = child::command(name) else {
            // At 1, privileged processes keep their rings.
            drop_privileges();
            let here = std::fs::read_to_string(SWITCH).unwrap();
            let here = format!("by `sysctl kernel.io_uring_disabled` (here: {}; 0", here.trim());
            return is_epoll_because(&exercise_everything(), &["is denied", &here]);
        };
        let _switched = match Switch::set(to) {
            Ok(switched) => switched,
            Err(error) => return println!("skipped: {SWITCH}: {error}"),
        };
        let output = command.arg("--ignored").env_remove("CRINGLE_DRIVER").output().unwrap();
        assert!(output.status.success(), "{}", child::transcript(&output));
    }
}
