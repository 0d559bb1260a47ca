//! `std::thread` on fibers, in the manner of its documentation.

use super::common::{kernel_thread, on_each_runtime, on_workers};
use crate::common::AtOnce;
use cringle::Builder;
use cringle::runtime::{self, FiberReport, FiberState, Threads, WaitsFor};
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, sync_channel};
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[test]
fn spawned_threads_return_their_values() {
    on_each_runtime(|| {
        let threads: Vec<JoinHandle<usize>> =
            (0..100).map(|n| thread::spawn(move || n * 2)).collect();
        for (n, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), n * 2);
        }
    });
}

#[test]
fn sleeping_threads_wait_at_once() {
    on_each_runtime(|| {
        let sleepers = Arc::new(AtOnce::default());
        let start = |_| {
            let sleepers = Arc::clone(&sleepers);
            let sleep = || thread::sleep(Duration::from_millis(1));
            // Threads that block their workers sleep one on each, and would do so for ever.
            thread::spawn(move || {
                sleepers.count(|| {
                    while sleepers.most() <= 2 {
                        sleep();
                    }
                });
            })
        };
        let threads: Vec<_> = (0..200).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn scoped_threads_borrow() {
    on_each_runtime(|| {
        let mut a = vec![1, 2, 3];
        let mut x = 0;
        thread::scope(|s| {
            s.spawn(|| assert_eq!(a, [1, 2, 3]));
            s.spawn(|| x += a[0] + a[2]);
        });
        a.push(4);
        assert_eq!(x, a.len());
        let total = crossbeam_utils::thread::scope(|s| {
            let halves = a.chunks(2).map(|half| s.spawn(move |_| half.iter().sum::<usize>()));
            halves.collect::<Vec<_>>().into_iter().map(|it| it.join().unwrap()).sum::<usize>()
        });
        assert_eq!(total.unwrap(), 10);
    });
}

#[test]
fn threads_are_spread_over_the_workers() {
    on_workers(2, || {
        let workers: HashSet<_> = (0..4)
            .map(|_| thread::spawn(runtime::worker))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|thread| thread.join().unwrap().expect("a fiber"))
            .collect();
        assert_eq!(workers, HashSet::from([0, 1]));
    });
}

/// As the fibers of a program that knows Cringle do. The lock that it waits for is named, too.
#[test]
fn dump_shows_the_programs_line_of_threads() {
    on_each_runtime(|| {
        let gate = Arc::new(Mutex::new(()));
        let (held, theirs) = (gate.lock().unwrap(), Arc::clone(&gate));
        let line = line!() + 1;
        let waiting = thread::spawn(move || drop(theirs.lock().unwrap()));
        let waits_for_gate = |fiber: &&FiberReport| {
            let FiberState::Waiting { for_what, .. } = &fiber.state else { return false };
            // In the process, and then in the kernel.
            let (WaitsFor::Other { address, .. } | WaitsFor::Operation { address, .. }) = for_what
            else {
                return false;
            };
            *address == Some((&raw const *gate).addr())
        };
        let (who, text) = loop {
            let dump = runtime::dump().unwrap();
            if let Some(fiber) = dump.fibers.iter().find(waits_for_gate) {
                break (fiber.who.clone(), dump.to_string());
            }
            thread::yield_now();
        };
        let (place, entry) = match cfg!(debug_assertions) {
            true => (format!("spawned.rs:{line}:"), format!("spawned.rs:{line}>")),
            // Without the detector, a thread costs no walk over its creator's frames.
            false => ("pthread_create".to_owned(), "<of pthread_create>".to_owned()),
        };
        assert!(who.thread.is_some_and(|thread| thread.contains(&place)), "{who:?}");
        assert!(who.to_string().ends_with(&entry), "{who}");
        assert!(!text.contains("create.rs"), "{text}");
        drop(held);
        waiting.join().unwrap();
    });
}

/// The name that the kernel has of the calling thread.
fn kernel_name() -> String {
    std::fs::read_to_string(format!("/proc/self/task/{}/comm", kernel_thread())).unwrap()
}

#[test]
fn name_is_the_threads_own() {
    on_each_runtime(|| {
        let before = kernel_name();
        let (ask, asked) = mpsc::channel::<()>();
        let named = thread::Builder::new().name("a thread with a name".to_owned());
        let thread = named
            .spawn(move || {
                assert_eq!(thread::current().name(), Some("a thread with a name"));
                assert_eq!(super::pthread::name_of_self(), "a thread with a");
                asked.recv().unwrap_err();
                kernel_name()
            })
            .unwrap();
        assert_eq!(thread.thread().name(), Some("a thread with a name"));
        let unnamed = thread::spawn(|| thread::current().name().is_none());
        assert!(unnamed.join().unwrap());
        let dump = runtime::dump().expect("within run").to_string();
        assert!(dump.contains("a thread with a"), "{dump}");
        drop(ask);
        let during = thread.join().unwrap();
        assert!(during != "a thread with a\n", "the worker was renamed");
        assert_eq!(kernel_name(), before);
    });
}

/// Uses at least 64 KiB of stack in each of these calls.
fn recurse(depth: usize) -> usize {
    let block = std::hint::black_box([depth as u8; 64 << 10]);
    if depth == 0 { 0 } else { recurse(depth - 1) + usize::from(block[depth] != block[0]) + 1 }
}

#[test]
fn stack_has_the_size_that_was_asked_for() {
    on_workers(1, || {
        let large = thread::Builder::new().stack_size(16 << 20).spawn(|| recurse(80));
        assert_eq!(large.unwrap().join().unwrap(), 80);
        let small = thread::Builder::new().stack_size(1).spawn(|| recurse(2));
        assert_eq!(small.unwrap().join().unwrap(), 2);
    });
}

/// The address space has room for a few such stacks.
#[test]
fn thread_without_room_for_its_stack_is_an_error() {
    let builder = Builder::new().workers(2).threads(Threads::Fibers);
    let run = builder.run(|| {
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let results: Vec<_> = (0..5)
            .map(|_| {
                let gate = Arc::clone(&gate);
                let large = thread::Builder::new().stack_size(1 << 45);
                large.spawn(move || gate.lock().unwrap().recv().unwrap_err())
            })
            .collect();
        drop(open);
        let (started, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert!(failed.len() >= 2, "only {} of 5 have failed", failed.len());
        for failure in failed {
            assert_eq!(failure.unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        started.into_iter().for_each(|thread| _ = thread.unwrap().join().unwrap());
        let larger = thread::Builder::new().stack_size(1 << 47).spawn(|| ());
        assert_eq!(larger.unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(thread::spawn(|| 1).join().unwrap(), 1);
    });
    run.unwrap();
}

#[test]
fn parked_thread_is_unparked() {
    on_each_runtime(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&flag);
        let parked = thread::spawn(move || {
            while !theirs.load(Ordering::Acquire) {
                thread::park();
            }
        });
        thread::sleep(Duration::from_millis(5));
        assert!(!parked.is_finished());
        flag.store(true, Ordering::Release);
        parked.thread().unpark();
        parked.join().unwrap();
    });
}

#[test]
fn finished_thread_says_so() {
    on_each_runtime(|| {
        let thread = thread::spawn(|| ());
        while !thread.is_finished() {
            thread::yield_now();
        }
        thread.join().unwrap();
    });
}

#[test]
fn channels_pass_messages_between_threads() {
    on_each_runtime(|| {
        let (sender, receiver) = sync_channel(1);
        let senders: Vec<_> = (0..10)
            .map(|n| {
                let sender = sender.clone();
                thread::spawn(move || (0..10).for_each(|i| sender.send(n * 10 + i).unwrap()))
            })
            .collect();
        drop(sender);
        let mut all: Vec<i32> = receiver.iter().collect();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn threads_wait_for_each_other_by_locks() {
    on_each_runtime(|| {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&pair);
        let starter = thread::spawn(move || {
            let (lock, changed) = &*theirs;
            *lock.lock().unwrap() = true;
            changed.notify_one();
        });
        let (lock, changed) = &*pair;
        let mut started = lock.lock().unwrap();
        while !*started {
            started = changed.wait(started).unwrap();
        }
        drop(started);
        starter.join().unwrap();
        let (barrier, leaders) = (Arc::new(Barrier::new(10)), Arc::new(AtomicUsize::new(0)));
        let total = Arc::new(RwLock::new(0));
        let threads: Vec<_> = (0..10)
            .map(|n| {
                let (barrier, leaders) = (Arc::clone(&barrier), Arc::clone(&leaders));
                let total = Arc::clone(&total);
                thread::spawn(move || {
                    *total.write().unwrap() += n;
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::SeqCst);
                    }
                    assert_eq!(*total.read().unwrap(), 45);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(leaders.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn panic_of_a_thread_is_the_result_of_its_join() {
    on_each_runtime(|| {
        let lock = Arc::new(Mutex::new(1));
        let theirs = Arc::clone(&lock);
        let fails = thread::spawn(move || {
            let _guard = theirs.lock().unwrap();
            thread::sleep(Duration::from_millis(1));
            panic!("{}", String::from("expected by the test"));
        });
        let works = thread::spawn(|| !thread::panicking());
        let payload = fails.join().map(|()| "no panic").unwrap_err();
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "expected by the test");
        assert!(works.join().unwrap());
        assert!(lock.is_poisoned());
    });
}

struct Noted(Arc<AtomicUsize>);

impl Drop for Noted {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(2));
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static NOTED: RefCell<Option<Noted>> = const { RefCell::new(None) };
}

#[test]
fn join_returns_after_destructors_of_thread_locals() {
    on_each_runtime(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..20)
            .map(|_| {
                let drops = Arc::clone(&drops);
                thread::spawn(move || {
                    NOTED.with_borrow_mut(|noted| {
                        assert!(noted.is_none(), "it is another thread's");
                        *noted = Some(Noted(drops));
                        thread::yield_now();
                    });
                })
            })
            .collect();
        for (joined, thread) in threads.into_iter().enumerate() {
            thread.join().unwrap();
            assert!(drops.load(Ordering::SeqCst) > joined);
        }
    });
}

#[test]
fn run_waits_for_detached_threads() {
    let ended = Arc::new(AtomicUsize::new(0));
    on_each_runtime(|| {
        for _ in 0..10 {
            let ended = Arc::clone(&ended);
            drop(thread::spawn(move || {
                thread::yield_now();
                ended.fetch_add(1, Ordering::SeqCst);
            }));
        }
    });
    assert_eq!(ended.load(Ordering::SeqCst), 40);
}

#[test]
fn waits_of_a_thread_fail_at_the_end_of_run() {
    let (sender, receiver) = mpsc::channel();
    on_each_runtime(|| {
        let (sender, has_begun) = (sender.clone(), Arc::new(AtomicBool::new(false)));
        let begins = Arc::clone(&has_begun);
        thread::spawn(move || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            begins.store(true, Ordering::Release);
            sender.send(listener.accept().map(drop).unwrap_err().raw_os_error()).unwrap();
        });
        while !has_begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(5));
    });
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [Some(libc::ECANCELED); 4]);
}

#[test]
fn thread_is_joined_after_its_runtime_has_ended() {
    let handle = Mutex::new(Vec::new());
    on_each_runtime(|| handle.lock().unwrap().push(thread::spawn(|| 7)));
    let handles = handle.into_inner().unwrap();
    assert_eq!(handles.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>(), [7; 4]);
}

#[test]
fn thread_of_the_system_joins_a_fiber() {
    on_each_runtime(|| {
        let slow = thread::spawn(|| {
            thread::sleep(Duration::from_millis(20));
            5
        });
        // The closure runs on a thread of the pool.
        assert_eq!(cringle::fiber::unblock(|| slow.join().unwrap()), 5);
    });
}

/// The number of threads that come and go; `cargo xtask long` sets more.
fn count() -> usize {
    std::env::var("CRINGLE_SPAWNED").map_or(2_000, |text| text.parse().expect("a number"))
}

#[test]
fn handles_of_joined_threads_are_used_again() {
    on_each_runtime(|| {
        let mut handles = HashSet::new();
        for n in 0..count() {
            let thread = thread::spawn(move || vec![n; 10].len());
            handles.insert(std::os::unix::thread::JoinHandleExt::as_pthread_t(&thread));
            if n % 2 == 0 {
                assert_eq!(thread.join().unwrap(), 10);
            } else {
                drop(thread);
            }
        }
        assert!(handles.len() < count() / 2, "{} blocks of thread-locals", handles.len());
    });
}

/// Another process, because it reports on standard error.
#[test]
#[ignore = "the test below runs it"]
fn thread_waits_after_the_end_of_run() {
    let (sender, receiver) = mpsc::channel::<()>();
    let releaser = thread::spawn(move || {
        std::io::stdin().read_line(&mut String::new()).unwrap();
        drop(sender);
    });
    let builder = Builder::new().workers(1).threads(Threads::Fibers);
    let run = builder.run(move || {
        let waiter = thread::Builder::new().name("never-released".into());
        waiter.spawn(move || receiver.recv().unwrap_err()).unwrap();
        thread::yield_now();
    });
    run.unwrap();
    releaser.join().unwrap();
}

#[test]
fn thread_that_keeps_run_from_returning_is_reported() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture"]);
    command.arg("threads::spawned::thread_waits_after_the_end_of_run");
    let (input, output) = (std::process::Stdio::piped(), std::process::Stdio::piped());
    let mut child = command.stdin(input).stderr(output).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let report = lines.map(Result::unwrap).find(|line| line.contains("still waits for"));
    assert!(report.as_ref().is_some_and(|it| it.contains("never-released")), "{report:?}");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}
