//! `setuid` and its kin change the credentials of all threads of the kernel, also of workers.

use super::on_workers;
use cringle::runtime::{self, Balance, ThreadLocals};
use cringle::{Builder, fiber};
use cringle_testing::child;
use std::sync::atomic::{AtomicBool, Ordering};

/// Another group for the effective id, if this process may take it.
fn other_group() -> libc::gid_t {
    // SAFETY: the calls have no contract.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if user == 0 { 65_534 } else { group }
}

fn set_group(group: libc::gid_t) {
    // SAFETY: the call has no contract.
    assert_eq!(unsafe { libc::setegid(group) }, 0, "{}", std::io::Error::last_os_error());
}

fn thread_id() -> libc::pid_t {
    // SAFETY: the call has no contract.
    unsafe { libc::gettid() }
}

/// The effective group of a thread, as the kernel says.
fn group_of(thread: libc::pid_t) -> libc::gid_t {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Gid:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Changes the group to and fro, and checks each time that these threads have it, and the caller's.
/// (Not all that the kernel lists: glibc passes over a thread that is ending.)
fn change_groups(threads: &[libc::pid_t]) {
    // SAFETY: the call has no contract.
    let before = unsafe { libc::getegid() };
    for group in [other_group(), before].repeat(5) {
        set_group(group);
        let threads = threads.iter().copied().chain([thread_id()]);
        let groups: Vec<_> = threads.map(group_of).collect();
        assert!(groups.iter().all(|&each| each == group), "{group}: {groups:?}");
    }
}

/// Ends loops, also if the test fails.
struct IsOver<'a>(&'a AtomicBool);

impl Drop for IsOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The process's first thread, and those of two workers.
fn threads_of_workers() -> [libc::pid_t; 3] {
    let on = |worker| fiber::Builder::new().worker(worker).spawn(thread_id).unwrap().join();
    let [first, second] = [0, 1].map(|worker| on(worker).unwrap());
    assert_ne!(first, second);
    [std::process::id().cast_signed(), first, second]
}

/// Calls `f` while four fibers repeat `work`.
fn beside(work: impl Fn() + Send + Sync, f: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    fiber::scope(|s| {
        let (is_over, work) = (&is_over, &work);
        for _ in 0..4 {
            s.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    work();
                }
            });
        }
        let _over = IsOver(is_over);
        f();
    });
}

/// Calls `f` with the process's first thread and the workers' while fibers run, wait and end on two
/// workers.
fn beside_fibers(f: impl FnOnce(&[libc::pid_t])) {
    let work = || {
        let spin = (0..1000u32).fold(0, |sum: u32, n| sum.wrapping_add(n));
        std::hint::black_box(spin);
        fiber::spawn(|| std::hint::black_box(1)).join().unwrap();
    };
    on_workers(2, || beside(work, || f(&threads_of_workers())));
}

/// Changes the group from a thread that runs no fibers.
fn change_groups_on_a_thread(threads: &[libc::pid_t]) {
    let threads = threads.to_vec();
    let thread = std::thread::spawn(move || change_groups(&threads));
    while !thread.is_finished() {
        fiber::yield_now();
    }
    thread.join().unwrap();
}

#[test]
fn changed_by_a_fiber() {
    child::must_succeed("changed_by_a_fiber", || {
        beside_fibers(|threads| {
            let threads = threads.to_vec();
            fiber::spawn(move || change_groups(&threads)).join().unwrap();
        });
        beside_fibers(change_groups);
    });
}

#[test]
fn changed_by_a_thread() {
    child::must_succeed("changed_by_a_thread", || {
        beside_fibers(change_groups_on_a_thread);
        // After the runtime has ended, too.
        change_groups(&[]);
    });
}

/// The signal may find a worker on the block of a fiber that has just come from the other one.
#[test]
fn changed_beside_fibers_that_move() {
    child::must_succeed("changed_beside_fibers_that_move", || {
        let builder = Builder::new().workers(2).thread_locals(ThreadLocals::Private);
        let change = || {
            while runtime::stats().unwrap().total().moves == 0 {
                fiber::yield_now();
            }
            change_groups_on_a_thread(&threads_of_workers());
        };
        match builder.balance(Balance::Restless).run(|| beside(fiber::yield_now, change)) {
            Err(e) if e.kind() == std::io::ErrorKind::Unsupported => println!("skipped: {e}"),
            result => result.unwrap(),
        }
    });
}

#[test]
fn a_failed_check_is_made_again() {
    child::must_succeed("a_failed_check_is_made_again", || {
        // The limit does not bind root.
        // SAFETY: calls of libc with a value of its type.
        let set_limit = |threads| unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NPROC, &mut limit);
            let before = std::mem::replace(&mut limit.rlim_cur, threads);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &limit), 0);
            before
        };
        // SAFETY: the call has no contract.
        if unsafe { libc::geteuid() } == 0 {
            // SAFETY: as above.
            assert_eq!(unsafe { libc::setuid(65_534) }, 0);
        }
        let run = || Builder::new().workers(1).thread_locals(ThreadLocals::Private).run(|| ());
        let before = set_limit(1);
        assert_eq!(run().unwrap_err().kind(), std::io::ErrorKind::Unsupported);
        set_limit(before);
        run().unwrap();
    });
}
