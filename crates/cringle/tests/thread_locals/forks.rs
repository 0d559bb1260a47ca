//! `fork`, while fibers start and end, and on a fiber. The child goes on as one of a thread does.

#[cfg(target_env = "gnu")]
#[path = "forks/first_run.rs"]
mod first_run;
#[cfg(target_env = "gnu")]
#[path = "forks/rseq.rs"]
mod rseq;

use super::on_workers;
use cringle::fiber;
use cringle_testing::child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A child that hangs is ended by a signal after this time.
const LIVENESS_SECONDS: u32 = 60;

/// Calls `f` in a child process. Returns how that ended: 0 if `f` returned true.
fn in_child(f: impl FnOnce() -> bool) -> libc::c_int {
    in_child_after(|| (), f)
}

/// [`in_child`], which calls `has_forked` in the parent meanwhile.
fn in_child_after(has_forked: impl FnOnce(), f: impl FnOnce() -> bool) -> libc::c_int {
    // SAFETY: by the contract of `fork`: glibc lets a child allocate and start threads. The child
    // ends by `_exit`.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            libc::alarm(LIVENESS_SECONDS);
            libc::_exit(if f() { 0 } else { 1 });
        }
        has_forked();
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

/// Calls `f` on a thread, while fibers start and end on two workers.
fn beside_fibers(f: impl FnOnce() + Send) {
    let (has_begun, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let start_fibers = || {
        has_begun.store(true, Ordering::SeqCst);
        while !is_over.load(Ordering::SeqCst) {
            fiber::scope(|s| (0..64).for_each(|_| drop(s.spawn(|| std::hint::black_box(1)))));
        }
    };
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            while !has_begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            is_over.store(true, Ordering::SeqCst);
            result.unwrap();
        });
        on_workers(2, || {
            fiber::scope(|s| {
                let start_fibers = &start_fibers;
                let start = |worker| {
                    let builder = fiber::Builder::new().worker(worker);
                    builder.spawn_scoped(s, start_fibers).unwrap();
                };
                (0..2).for_each(start);
            });
        });
        thread.join().unwrap();
    });
}

/// What takes the locks of the loader.
fn list_modules() -> bool {
    unsafe extern "C" fn count(
        _: *mut libc::dl_phdr_info,
        _: usize,
        count: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the value that is passed below.
        unsafe { *count.cast::<u32>() += 1 };
        0
    }
    let mut modules = 0u32;
    // SAFETY: the callback gets the value that it expects, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut modules).cast()) };
    modules > 0
}

fn run_fibers() -> bool {
    let sum = on_workers(2, || (0..50).map(|n| fiber::spawn(move || n).join().unwrap()).sum());
    sum.is_none_or(|sum: u32| sum == 1225)
}

#[test]
fn no_lock_of_the_loader_is_copied() {
    child::must_succeed("no_lock_of_the_loader_is_copied", || {
        beside_fibers(|| {
            for _ in 0..child::scaled(500, 5000) {
                assert_eq!(in_child(list_modules), 0);
            }
        });
    });
}

#[test]
fn a_child_runs_fibers() {
    child::must_succeed("a_child_runs_fibers", || {
        beside_fibers(|| {
            for _ in 0..child::scaled(40, 1000) {
                assert_eq!(in_child(run_fibers), 0);
            }
        });
        // The blocks of the runs before are in the pool of the children.
        assert_eq!(in_child(run_fibers), 0);
        assert_eq!(in_child(|| run_fibers() && in_child(run_fibers) == 0), 0);
    });
}

/// More stacks than glibc keeps for the next threads, so that it frees some.
fn start_large_threads() -> bool {
    let start = |_| {
        let thread = std::thread::Builder::new().stack_size(8 << 20);
        thread.spawn(|| std::thread::sleep(Duration::from_millis(20))).unwrap()
    };
    let threads: Vec<_> = (0..24).map(start).collect();
    threads.into_iter().all(|thread| thread.join().is_ok())
}

#[test]
fn glibc_frees_no_block_as_a_stack() {
    child::must_succeed("glibc_frees_no_block_as_a_stack", || {
        let fork_in_thread = || {
            let thread = std::thread::spawn(|| in_child(start_large_threads));
            thread.join().unwrap() == 0
        };
        on_workers(1, || {
            let status = fiber::spawn(move || in_child(fork_in_thread)).join().unwrap();
            assert_eq!(status, 0);
        });
    });
}

/// glibc frees the stack of the worker's own thread, which the child does not have.
#[test]
fn the_kernel_writes_nothing_to_the_workers_thread_in_a_child() {
    child::must_succeed("the_kernel_writes_nothing_to_the_workers_thread_in_a_child", || {
        let start_threads_and_sleep = || {
            let has_started = start_large_threads();
            std::thread::sleep(Duration::from_millis(1));
            has_started
        };
        on_workers(2, || {
            let fork = move || assert_eq!(in_child(start_threads_and_sleep), 0);
            fiber::Builder::new().worker(1).spawn(fork).unwrap().join().unwrap();
        });
    });
}

#[test]
fn credentials_of_the_forked_thread_change() {
    // SAFETY: the call has no contract.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: only root may take another group");
    }
    child::must_succeed("credentials_of_the_forked_thread_change", || {
        // SAFETY: the calls have no contract.
        let set_group = || unsafe { libc::setegid(65_534) } == 0;
        let changes = move || {
            let is_set = std::thread::spawn(set_group).join().unwrap();
            // SAFETY: as above.
            is_set && unsafe { libc::getegid() } == 65_534
        };
        on_workers(1, || {
            assert_eq!(fiber::spawn(move || in_child(changes)).join().unwrap(), 0);
        });
    });
}
