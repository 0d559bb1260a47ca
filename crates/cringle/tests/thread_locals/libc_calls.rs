//! Calls of libc that look at the thread they are made by.

use super::{on_workers, with_private};
use cringle::fiber;
use cringle_testing::child;
use std::ffi::CStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Forks on the calling fiber, runs `f` in the child, and returns whether it succeeded.
fn forked(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: by the contract of `fork`: the child ends by `_exit`. glibc lets it allocate.
    unsafe {
        match libc::fork() {
            -1 => panic!("no child: {}", std::io::Error::last_os_error()),
            0 => libc::_exit(i32::from(!f())),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

#[test]
fn fork() {
    thread_local! {
        static NUMBER: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    child::must_succeed("fork", || {
        with_private(|| {
            let others: Vec<_> = (0..10).map(|_| fiber::spawn(fiber::park)).collect();
            let forks: Vec<_> = (1..=10)
                .map(|number| {
                    fiber::spawn(move || {
                        NUMBER.set(number);
                        let in_child = || {
                            let text = format!("{number}");
                            // SAFETY: the call has no contract.
                            let id = unsafe { libc::gettid() };
                            text.parse() == Ok(NUMBER.get()) && id == std::process::id() as i32
                        };
                        assert!(forked(in_child));
                        // The child of a child, and a thread of it.
                        assert!(forked(|| forked(in_child)));
                        assert!(forked(|| std::thread::spawn(|| 3).join().unwrap() == 3));
                        NUMBER.get()
                    })
                })
                .collect();
            for (number, fork) in (1..=10).zip(forks) {
                assert_eq!(fork.join().unwrap(), number);
            }
            for other in others {
                other.thread().unpark();
                other.join().unwrap();
            }
        });
    });
}

#[test]
fn pre_exec() {
    with_private(|| {
        let runs = || {
            let mut command = Command::new("true");
            // SAFETY: the closure calls nothing.
            unsafe { command.pre_exec(|| Ok(())) };
            assert!(command.status().unwrap().success());
        };
        fiber::scope(|s| (0..5).for_each(|_| drop(s.spawn(runs))));
    });
}

#[test]
fn sched_getcpu() {
    with_private(|| {
        let allowed = allowed_cores();
        fiber::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    // SAFETY: the call has no contract.
                    let core = unsafe { libc::sched_getcpu() };
                    assert!(allowed.contains(&usize::try_from(core).unwrap()), "{core}");
                });
            }
        });
    });
    let pinned = cringle::Builder::new().workers(2).pin(true);
    let pinned = pinned.thread_locals(cringle::runtime::ThreadLocals::Private);
    if cfg!(target_env = "gnu") && allowed_cores().len() > 1 {
        let cores = pinned.run(|| {
            [0, 1].map(|worker| {
                let builder = fiber::Builder::new().worker(worker);
                // SAFETY: the call has no contract.
                builder.spawn(|| unsafe { libc::sched_getcpu() }).unwrap().join().unwrap()
            })
        });
        let [a, b] = cores.unwrap();
        assert_ne!(a, b, "each worker has a core of its own");
    }
}

fn allowed_cores() -> Vec<usize> {
    // SAFETY: the set is of the given size, and all-zero is a valid one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &set)).collect()
    }
}

#[test]
fn resolver() {
    unsafe extern "C" {
        #[link_name = "__res_init"]
        fn res_init() -> libc::c_int;
    }
    on_workers(2, || {
        let resolves = || {
            // SAFETY: the call has no contract.
            assert_eq!(unsafe { res_init() }, 0);
            let name = c"localhost";
            // SAFETY: by the contract of the calls: all pointers are null, or live for the call.
            unsafe {
                let mut list = std::ptr::null_mut();
                let result =
                    libc::getaddrinfo(name.as_ptr(), c"80".as_ptr(), std::ptr::null(), &mut list);
                assert_eq!(result, 0, "{:?}", CStr::from_ptr(libc::gai_strerror(result)));
                libc::freeaddrinfo(list);
            }
        };
        fiber::scope(|s| (0..50).for_each(|_| drop(s.spawn(resolves))));
    });
}

#[test]
fn error_numbers_are_the_fibers() {
    with_private(|| {
        fiber::scope(|s| {
            for number in 1..20 {
                s.spawn(move || {
                    // SAFETY: the address is that of the calling thread's number.
                    unsafe {
                        for _ in 0..10 {
                            *libc::__errno_location() = number;
                            fiber::yield_now();
                            assert_eq!(*libc::__errno_location(), number);
                            assert_eq!(libc::close(-1), -1);
                            assert_eq!(*libc::__errno_location(), libc::EBADF);
                        }
                    }
                });
            }
        });
    });
}

/// `pthread_self` differs between families, and stays.
#[test]
fn thread_handles() {
    with_private(|| {
        let handles: Vec<_> = (0..10)
            .map(|_| {
                fiber::spawn(|| {
                    // SAFETY: the call has no contract.
                    let handle = || unsafe { libc::pthread_self() } as usize;
                    let first = handle();
                    for _ in 0..10 {
                        fiber::yield_now();
                        assert_eq!(handle(), first);
                    }
                    assert_eq!(fiber::spawn_local(handle).join().unwrap(), first);
                    // Signals to itself arrive at the worker's thread.
                    // SAFETY: signal 0 is only checked.
                    assert_eq!(unsafe { libc::pthread_kill(first as libc::pthread_t, 0) }, 0);
                    first
                })
            })
            .collect();
        let handles: std::collections::HashSet<_> =
            handles.into_iter().map(|handle| handle.join().unwrap()).collect();
        assert!(!handles.is_empty());
    });
}

/// What the kernel keeps by its own thread ids is refused for a fiber's, and not answered wrongly.
#[test]
fn attributes_of_the_kernels_thread() {
    with_private(|| {
        fiber::spawn(|| {
            // SAFETY: by the contract of the calls: the objects live for them.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                let this = libc::pthread_self();
                let result = libc::pthread_getaffinity_np(this, size_of_val(&set), &mut set);
                assert_eq!(result, libc::ESRCH, "pthread_getaffinity_np");
                let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
                let result = libc::pthread_getattr_np(this, &mut attributes);
                assert_eq!(result, libc::ESRCH, "pthread_getattr_np");
                let handle = this as usize;
                let signal = fiber::spawn(move || libc::pthread_kill(handle as _, 0));
                assert_eq!(signal.join().unwrap(), libc::ESRCH, "pthread_kill by another fiber");
                // By the kernel's own number of the calling thread they work.
                assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
            }
        })
        .join()
        .unwrap();
    });
}
