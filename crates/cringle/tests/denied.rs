//! Hosts that deny something: rings, locked memory, descriptors, `/proc`. A run starts there all the same,
//! does the same, and says what it does without.

mod child;

use cringle::block::{Batch, BlockIo};
use cringle::fs::File;
use cringle::net::{TcpListener, TcpStream};
use cringle::runtime::{self, Driver, DriverChoice};
use cringle::{Builder, fiber, io};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const RING_CALLS: [i64; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// From now on this thread, and those that it starts, are answered so.
fn deny(calls: &[i64], action: SeccompAction) {
    let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// Files, batches, sockets, pipes, timers, the pool and two workers; which driver did it.
fn a_bit_of_everything() -> Driver {
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

/// It is epoll, and the reason names all of these.
fn is_epoll_because(driver: &Driver, words: &[&str]) {
    let Driver::Epoll(why) = driver else { panic!("{driver:?}") };
    assert!(!why.was_chosen());
    let text = why.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// Runs the body in a child for which the environment chooses nothing.
fn in_child(test: &str, body: impl FnOnce()) {
    child::must_succeed_with(test, |command| command.env_remove("CRINGLE_DRIVER"), body);
}

// ----- by seccomp -----

/// As Docker's default profile does.
#[test]
fn a_filter_that_refuses_rings_is_worked_without() {
    in_child("a_filter_that_refuses_rings_is_worked_without", || {
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        is_epoll_because(&a_bit_of_everything(), &["denied", "seccomp", "Docker"]);
    });
}

/// As old kernels, and gVisor, do.
#[test]
fn a_kernel_without_rings_is_worked_without() {
    in_child("a_kernel_without_rings_is_worked_without", || {
        deny(&RING_CALLS, SeccompAction::Errno(libc::ENOSYS as u32));
        is_epoll_because(&a_bit_of_everything(), &["no io_uring", "seccomp", "Linux 6.1"]);
    });
}

#[test]
fn a_filter_that_kills_for_a_ring_is_survived() {
    let name = "a_filter_that_kills_for_a_ring_is_survived";
    in_child(name, || {
        deny(&RING_CALLS[..1], SeccompAction::KillProcess);
        is_epoll_because(
            &a_bit_of_everything(),
            &["seccomp filter ends", "signal 31", "io_uring_setup"],
        );
        // Nor is a child left, that the program could be puzzled by.
        // SAFETY: no status is asked for.
        let children =
            unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
        assert_eq!(children, -1, "no child is left");
    });
}

/// A ring can be made, and is of no use.
#[test]
fn a_filter_against_entering_is_found_out_before_the_start() {
    for (n, action) in [SeccompAction::Errno(libc::EPERM as u32), SeccompAction::KillProcess]
        .into_iter()
        .enumerate()
    {
        let name = "a_filter_against_entering_is_found_out_before_the_start";
        let said = child::run_with(name, |command| {
            command.env_remove("CRINGLE_DRIVER").env("CRINGLE_TEST_CASE", n.to_string())
        });
        if let Some(output) = said {
            assert!(output.status.success(), "{}", child::said(&output));
        } else if std::env::var("CRINGLE_TEST_CASE").unwrap() == n.to_string() {
            deny(&RING_CALLS[1..2], action);
            is_epoll_because(&a_bit_of_everything(), &["seccomp", "io_uring"]);
        }
    }
}

/// A sandbox that is entered after the first ring was made: what comes later does without.
#[test]
fn rings_that_are_refused_from_now_on_are_done_without() {
    in_child("rings_that_are_refused_from_now_on_are_done_without", || {
        if !matches!(a_bit_of_everything(), Driver::Uring(_)) {
            return println!("skipped: there are no rings");
        }
        deny(&RING_CALLS[..1], SeccompAction::Errno(libc::EPERM as u32));
        is_epoll_because(&a_bit_of_everything(), &["denied", "seccomp"]);
    });
}

/// The kernel may still write into the frames of fibers, so that none of them can be unwound.
#[test]
fn a_ring_that_is_taken_away_ends_the_program_with_a_sentence() {
    let name = "a_ring_that_is_taken_away_ends_the_program_with_a_sentence";
    let Some(output) = child::run_with(name, |command| command.env_remove("CRINGLE_DRIVER")) else {
        return Builder::new()
            .workers(1)
            .run(|| {
                if !matches!(runtime::driver(), Driver::Uring(_)) {
                    return println!("skipped: there are no rings");
                }
                deny(&RING_CALLS[1..2], SeccompAction::Errno(libc::EPERM as u32));
                // Nothing comes, so that the kernel is asked.
                let (mut reader, _writer) = io::pipe().unwrap();
                println!("it went on: {:?}", reader.read(&mut [0]));
            })
            .unwrap();
    };
    let said = child::said(&output);
    if said.contains("skipped") {
        return;
    }
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(!said.contains("it went on"), "{said}");
    let sentence = said.lines().find(|line| line.contains("io_uring_enter failed")).expect(&said);
    for words in ["Operation not permitted", "seccomp", "aborting, because"] {
        assert!(sentence.contains(words), "{said}");
    }
}

/// The two calls for waiting are newer than some filters.
#[test]
fn a_filter_without_the_newer_calls_is_worked_with() {
    in_child("a_filter_without_the_newer_calls_is_worked_with", || {
        let newer =
            [libc::SYS_epoll_pwait2, libc::SYS_openat2, libc::SYS_preadv2, libc::SYS_pwritev2];
        deny(&newer[..2], SeccompAction::Errno(libc::EPERM as u32));
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        let begun = std::time::Instant::now();
        is_epoll_because(&a_bit_of_everything(), &["denied"]);
        Builder::new().run(|| fiber::sleep(Duration::from_millis(3))).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(3));
    });
}

#[test]
fn who_wants_rings_alone_is_told_who_denies_them() {
    in_child("who_wants_rings_alone_is_told_who_denies_them", || {
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        let error = Builder::new().driver(DriverChoice::Uring).run(|| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("seccomp"), "{error}");
    });
}

// ----- by the environment -----

#[test]
fn the_environment_chooses_where_the_program_does_not() {
    let name = "the_environment_chooses_where_the_program_does_not";
    let output = child::run_with(name, |command| command.env("CRINGLE_DRIVER", "epoll"));
    if let Some(output) = output {
        return assert!(output.status.success(), "{}", child::said(&output));
    }
    let Driver::Epoll(why) = a_bit_of_everything() else { panic!("it is not heeded") };
    assert!(why.was_chosen());
    assert!(why.to_string().contains("CRINGLE_DRIVER=epoll"), "{why}");
}

#[test]
fn a_driver_that_there_is_not_is_an_error() {
    let name = "a_driver_that_there_is_not_is_an_error";
    let output = child::run_with(name, |command| command.env("CRINGLE_DRIVER", "kqueue"));
    if let Some(output) = output {
        return assert!(output.status.success(), "{}", child::said(&output));
    }
    let error = Builder::new().run(|| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for word in ["CRINGLE_DRIVER", "kqueue", "`uring` or `epoll`"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    // What the program chooses counts.
    Builder::new().driver(DriverChoice::Epoll).run(|| ()).unwrap();
}

// ----- by limits -----

/// Rings, or a reason that says what to raise.
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
fn little_memory_may_be_locked() {
    in_child("little_memory_may_be_locked", || {
        child::limit(libc::RLIMIT_MEMLOCK, 64 << 10).unwrap();
        // Root is not bound by it.
        become_nobody();
        is_rings_or_because(&a_bit_of_everything(), "RLIMIT_MEMLOCK");
    });
}

#[test]
fn few_files_may_be_open() {
    in_child("few_files_may_be_open", || {
        child::limit(libc::RLIMIT_NOFILE, 64).unwrap();
        is_rings_or_because(&a_bit_of_everything(), "RLIMIT_NOFILE");
    });
}

fn become_nobody() {
    // SAFETY: no pointers. Where it is not allowed, nothing changes.
    unsafe {
        libc::setgid(65_534);
        libc::setuid(65_534);
    }
}

/// Neither driver needs it.
#[test]
fn there_is_no_proc() {
    in_child("there_is_no_proc", || {
        if let Err(why) = unmount_proc() {
            return println!("skipped: {why}");
        }
        assert!(!std::path::Path::new("/proc/self").exists());
        is_rings_or_because(&a_bit_of_everything(), "rings were to be had before");
        deny(&RING_CALLS, SeccompAction::Errno(libc::EPERM as u32));
        is_epoll_because(&a_bit_of_everything(), &["denied", "here: unknown"]);
    });
}

/// For this process alone.
fn unmount_proc() -> std::io::Result<()> {
    let check = |result| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    let (none, proc) = (std::ptr::null(), c"/proc".as_ptr());
    // SAFETY: the paths are C strings.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(none, c"/".as_ptr(), none, private, std::ptr::null()))?;
        check(libc::umount2(proc, libc::MNT_DETACH))
    }
}

// ----- by the kernel's switch -----

const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Puts the machine's switch back.
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

/// The switch is the whole machine's: other programs lose their rings meanwhile.
#[test]
#[ignore = "switches io_uring off for the whole machine: as root, where nobody else needs it"]
fn the_kernels_switch_is_named() {
    for to in ["1", "2"] {
        let name = "the_kernels_switch_is_named";
        let Some(mut command) = child::command(name) else {
            // For 1, rings are left to the mighty.
            become_nobody();
            let here = std::fs::read_to_string(SWITCH).unwrap();
            let here = format!("by `sysctl kernel.io_uring_disabled` (here: {}; 0", here.trim());
            return is_epoll_because(&a_bit_of_everything(), &["is denied", &here]);
        };
        let _switched = match Switch::set(to) {
            Ok(switched) => switched,
            Err(error) => return println!("skipped: {SWITCH}: {error}"),
        };
        let output = command.arg("--ignored").env_remove("CRINGLE_DRIVER").output().unwrap();
        assert!(output.status.success(), "{}", child::said(&output));
    }
}
