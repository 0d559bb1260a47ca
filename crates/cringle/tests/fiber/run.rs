//! `run` starts, ends, and leaves nothing behind.

use cringle::{Builder, fiber};
use cringle_testing::child;
use cringle_testing::child::Footprint;
use std::cell::Cell;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Returns the text of a panic.
fn message(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().expect("a text").to_string(),
    }
}

#[test]
fn run_returns_value_of_closure() {
    assert_eq!(cringle::run(|| 42), 42);
}

#[test]
fn run_closure_may_borrow() {
    let text = String::from("mine");
    let cell = Cell::new(0);
    cringle::run(|| cell.set(text.len()));
    assert_eq!(cell.get(), 4);
}

#[test]
fn run_closure_stays_on_callers_thread() {
    let here = std::thread::current().id();
    assert_eq!(cringle::run(|| std::thread::current().id()), here);
}

#[test]
fn run_propagates_panic_of_closure() {
    let caught = catch_unwind(|| cringle::run(|| std::panic::panic_any(17)));
    assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 17);
}

#[test]
fn run_ends_fibers_before_it_panics() {
    let ended = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&ended);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        cringle::run(|| {
            for _ in 0..10 {
                let note = OnDrop(Arc::clone(&theirs));
                fiber::spawn(move || {
                    let _note = note;
                    fiber::park();
                });
            }
            std::panic::resume_unwind(Box::new("mine"));
        });
    }));
    assert_eq!(message(caught.unwrap_err()), "mine");
    assert_eq!(ended.load(Ordering::SeqCst), 10);
}

#[test]
fn nested_run_panics_with_explanation() {
    cringle::run(|| {
        let caught = catch_unwind(|| cringle::run(|| ()));
        let text = message(caught.unwrap_err());
        assert!(text.contains("within a `run`") && text.contains("spawn a fiber"), "{text}");
        // Nor in a fiber that another worker may start.
        let nested = fiber::spawn(|| catch_unwind(|| cringle::run(|| ())).is_err());
        assert!(nested.join().unwrap());
    });
}

#[test]
fn unblocked_closure_may_run() {
    let sum = cringle::run(|| {
        let nested = || cringle::run(|| fiber::spawn(|| 40).join().unwrap());
        fiber::unblock(nested) + fiber::spawn(|| 2).join().unwrap()
    });
    assert_eq!(sum, 42);
}

#[test]
fn two_threads_run_concurrently() {
    // Each side waits within its `run` until the other side is within its own.
    let barrier = std::sync::Barrier::new(2);
    let side = || {
        Builder::new()
            .workers(2)
            .run(|| {
                fiber::unblock(|| barrier.wait());
                let sum: usize = (0..100).map(|n| fiber::spawn(move || n).join().unwrap()).sum();
                fiber::unblock(|| barrier.wait());
                sum
            })
            .unwrap()
    };
    std::thread::scope(|s| {
        let other = s.spawn(side);
        assert_eq!((side(), other.join().unwrap()), (4950, 4950));
    });
}

#[test]
fn run_works_in_destructor_of_panicking_thread() {
    struct RunsWhenDropped;
    impl Drop for RunsWhenDropped {
        fn drop(&mut self) {
            let run = Builder::new().workers(2).run(|| {
                assert!(!fiber::panicking());
                fiber::spawn_local(fiber::park);
                fiber::Builder::new().worker(1).spawn(fiber::park).unwrap();
            });
            run.unwrap();
        }
    }
    let caught = catch_unwind(|| {
        let _runs = RunsWhenDropped;
        std::panic::resume_unwind(Box::new("mine"));
    });
    assert_eq!(message(caught.unwrap_err()), "mine");
}

#[test]
fn environment_chooses_the_number_of_workers() {
    let name = "environment_chooses_the_number_of_workers";
    let body = || {
        assert_eq!(Builder::new().run(cringle::runtime::workers).unwrap(), Some(3));
        assert_eq!(Builder::new().workers(2).run(cringle::runtime::workers).unwrap(), Some(2));
        // SAFETY: the test is alone in its process, and no runtime runs.
        unsafe { std::env::set_var("CRINGLE_WORKERS", "many") };
        let refused = Builder::new().run(|| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("CRINGLE_WORKERS is \"many\""), "{refused}");
    };
    child::must_succeed_with(name, |command| command.env("CRINGLE_WORKERS", "3"), body);
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let cases = [
        (Builder::new().workers(0), "Builder::workers"),
        (Builder::new().workers(1025), "Builder::workers"),
        (Builder::new().ring_entries(0), "Builder::ring_entries is 0"),
        (Builder::new().ring_entries(32769), "Builder::ring_entries is 32769"),
        (Builder::new().in_flight_limit(0), "Builder::in_flight_limit is 0"),
        (Builder::new().in_flight_limit(65536), "Builder::in_flight_limit is 65536"),
    ];
    for (builder, text) in cases {
        let error = builder.run(|| unreachable!("it must not run")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn options_at_limits_work() {
    let smallest = Builder::new().workers(1).ring_entries(1).in_flight_limit(1);
    let largest = Builder::new().workers(1).ring_entries(32768).in_flight_limit(65535);
    for builder in [smallest, largest] {
        let len = builder.run(|| cringle::fs::File::open("/proc/self/exe")?.metadata());
        assert!(len.unwrap().unwrap().len() > 0);
    }
}

/// For each insufficient number of descriptors `run` returns an error, runs nothing, and closes the
/// descriptors that it has opened.
#[test]
fn too_few_descriptors_return_error_with_remedy() {
    child::must_succeed("too_few_descriptors_return_error_with_remedy", || {
        let _ = Builder::new().workers(3).run(|| ()); // what is opened once in a process
        let before = Footprint::now();
        let mut refusals = 0;
        for allowed in 0.. {
            // The limit is on the descriptor's number, and new descriptors take the lowest free
            // ones.
            let limit = libc::rlimit { rlim_cur: allowed, rlim_max: 4096 };
            // SAFETY: by the contract of `setrlimit`, which reads the structure.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
            let mut ran = false;
            let result = Builder::new().workers(3).run(|| ran = true);
            let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
            // SAFETY: by the contract of `setrlimit`, which reads the structure.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
            assert_eq!(Footprint::now().descriptors, before.descriptors);
            assert_eq!(Footprint::now().threads, before.threads);
            match result {
                Ok(()) => {
                    assert!(ran);
                    break;
                }
                Err(error) => {
                    assert!(!ran);
                    assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
                    refusals += 1;
                }
            }
        }
        assert!(refusals >= 6, "three eventfds and three rings are made: {refusals} refusals");
    });
}

#[test]
fn run_panics_with_remedy_when_system_refuses() {
    child::must_succeed("run_panics_with_remedy_when_system_refuses", || {
        child::limit(libc::RLIMIT_NOFILE, 3).unwrap();
        let text = message(catch_unwind(|| cringle::run(|| ())).unwrap_err());
        assert!(text.contains("cringle::run cannot start"), "{text}");
        assert!(text.contains("RLIMIT_NOFILE"), "{text}");
    });
}

#[test]
fn too_little_address_space_returns_error_with_remedy() {
    child::must_succeed("too_little_address_space_returns_error_with_remedy", || {
        // The closure's stack takes 8 MiB, a ring less than half a MiB.
        let now = child::status_kib("VmSize:") * 1024;
        child::limit(libc::RLIMIT_AS, now + (6 << 20)).unwrap();
        let error = Builder::new().workers(1).run(|| unreachable!()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("RLIMIT_AS"), "{error}");
    });
}

#[test]
fn fibers_wait_for_stack_when_address_space_is_scarce() {
    child::must_succeed("fibers_wait_for_stack_when_address_space_is_scarce", || {
        let ran = AtomicUsize::new(0);
        let run = Builder::new().workers(1).run(|| {
            let now = child::status_kib("VmSize:") * 1024;
            child::limit(libc::RLIMIT_AS, now + (20 << 20)).unwrap();
            fiber::scope(|s| {
                for _ in 0..200 {
                    s.spawn(|| {
                        fiber::yield_now();
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        });
        run.unwrap();
        assert_eq!(ran.into_inner(), 200);
    });
}

fn cores_of_this_thread() -> Vec<usize> {
    // SAFETY: by the contract of `sched_getaffinity`, which fills the set; an all-zero set is
    // valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

#[test]
fn pinning_uses_one_core_each_and_restores_caller() {
    let before = cores_of_this_thread();
    let inside = Builder::new().workers(2).pin(true).run(|| {
        let other = fiber::Builder::new().worker(1).spawn(cores_of_this_thread).unwrap();
        let theirs = other.join().unwrap();
        (cores_of_this_thread(), theirs, fiber::unblock(cores_of_this_thread))
    });
    let (first, second, pool) = inside.unwrap();
    assert_eq!(first, before[..1]);
    assert_eq!(second, [before[1 % before.len()]]);
    assert_eq!(pool, before, "threads of the pool are not confined to the worker's core");
    assert_eq!(cores_of_this_thread(), before);
    // Also after a panic.
    let run = || Builder::new().pin(true).run(|| std::panic::resume_unwind(Box::new(1)));
    catch_unwind(run).map(drop).unwrap_err();
    assert_eq!(cores_of_this_thread(), before);
}

#[test]
fn workers_are_not_pinned_by_default() {
    let before = cores_of_this_thread();
    let inside = Builder::new().workers(2).run(|| {
        let other = fiber::Builder::new().worker(1).spawn(cores_of_this_thread).unwrap();
        [cores_of_this_thread(), other.join().unwrap()]
    });
    assert_eq!(inside.unwrap(), [before.clone(), before]);
}

/// Uses everything that takes descriptors, mappings or threads.
fn a_short_run(round: usize) {
    let run = Builder::new().workers(1 + round % 3).run(|| {
        let file = cringle::fs::File::open("/proc/self/exe").unwrap();
        let length = fiber::spawn(move || file.metadata().unwrap().len()).join().unwrap();
        let cores = fiber::unblock(|| std::thread::available_parallelism().unwrap().get());
        for _ in 0..20 {
            fiber::spawn_local(fiber::park);
            fiber::spawn(|| fiber::sleep(Duration::from_secs(3600)));
        }
        length as usize + cores
    });
    assert!(run.unwrap() > 0);
}

/// glibc keeps the stacks of ended threads for later threads, two mappings each, as many as once
/// lived at the same time. That number differs from run to run, so this starts more threads at once
/// than any run does. It joins them, because a thread that a scope has only waited for may still
/// have its signal stack, two more mappings.
fn have_stacks_of_threads() {
    let all_are_here = Arc::new(std::sync::Barrier::new(16));
    let waits = || {
        let all_are_here = Arc::clone(&all_are_here);
        std::thread::spawn(move || {
            all_are_here.wait();
        })
    };
    let threads: Vec<_> = (0..16).map(|_| waits()).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The resources of the process at one moment: their numbers, and the mappings by address.
struct Kept {
    footprint: Footprint,
    mappings: String,
}

impl Kept {
    fn now() -> Kept {
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
        Kept { footprint: Footprint::now(), mappings }
    }

    /// Returns the mappings that are new since `then`, or have other bounds.
    fn new_since(&self, then: &Kept) -> String {
        let known: Vec<&str> = then.mappings.lines().collect();
        let new = self.mappings.lines().filter(|line| !known.contains(line));
        new.map(|line| format!("\n{line}")).collect()
    }
}

/// Checks the resources after this number of runs. musl's allocator makes mappings of a few pages,
/// sometimes one more, sometimes one less. A leak of each run would leave as many as there were
/// runs.
fn assert_nothing_is_left(since: &Kept, runs: usize) {
    let (then, kept) = (since.footprint, Kept::now());
    let mut now = kept.footprint;
    if cfg!(target_env = "musl") {
        assert!(now.mappings < then.mappings + runs / 10, "{then:?} became {now:?}");
        now.mappings = then.mappings;
    }
    assert_eq!(now, then, "new mappings:{}", kept.new_since(since));
}

#[test]
#[cfg_attr(cringle_sanitizer, ignore = "AddressSanitizer has mappings of its own")]
fn a_thousand_runs_leave_nothing() {
    let name = "a_thousand_runs_leave_nothing";
    // The C library keeps heaps of threads for ever, up to a limit: here all threads share one.
    child::must_succeed_with(
        name,
        |command| command.env("MALLOC_ARENA_MAX", "1"),
        || {
            have_stacks_of_threads();
            (0..10).for_each(a_short_run);
            let after_ten = Kept::now();
            let virtual_kib = child::status_kib("VmSize:");
            (10..1000).for_each(a_short_run);
            assert_nothing_is_left(&after_ten, 990);
            // The kernel merges adjacent mappings, so their size counts too.
            let grown = child::status_kib("VmSize:").saturating_sub(virtual_kib);
            assert!(grown < 8 << 10, "{grown} KiB of address space were not given back");
        },
    );
}

#[test]
fn failed_runs_leave_nothing() {
    child::must_succeed("failed_runs_leave_nothing", || {
        let fail = |_| {
            let panics = || {
                cringle::run(|| {
                    fiber::spawn_local(fiber::park);
                    std::panic::resume_unwind(Box::new(1));
                })
            };
            catch_unwind(panics).map(drop).unwrap_err();
            Builder::new().workers(0).run(|| ()).unwrap_err();
        };
        have_stacks_of_threads();
        (0..10).for_each(fail);
        let after_ten = Kept::now();
        (0..200).for_each(fail);
        assert_nothing_is_left(&after_ten, 200);
    });
}

/// Counts its drops.
struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn run_cancels_and_awaits_remaining_fibers() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let run = Builder::new().workers(2).run(|| {
        for n in 0..100 {
            let note = OnDrop(Arc::clone(&dropped));
            fiber::Builder::new()
                .worker(n % 2)
                .spawn(move || {
                    let _note = note;
                    match n % 3 {
                        0 => fiber::park(),
                        1 => fiber::sleep(Duration::from_secs(3600)),
                        _ => drop(fiber::spawn(fiber::park).join()),
                    }
                })
                .unwrap();
        }
        fiber::yield_now();
    });
    run.unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 100);
}

#[test]
fn unstarted_fiber_starts_cancelled_at_end_of_run() {
    let [started, went_on, dropped] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let run = Builder::new().workers(1).run(|| {
        for _ in 0..1000 {
            let (started, note) = (Arc::clone(&started), OnDrop(Arc::clone(&dropped)));
            let went_on = Arc::clone(&went_on);
            fiber::spawn(move || {
                let _note = note;
                started.fetch_add(1, Ordering::SeqCst);
                fiber::yield_now();
                went_on.fetch_add(1, Ordering::SeqCst);
            });
        }
        assert_eq!(started.load(Ordering::SeqCst), 0, "the closure never waited");
    });
    run.unwrap();
    let counts = [started, dropped, went_on].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts, [1000, 1000, 0], "started, dropped, and not cancelled from the start");
}

#[test]
fn run_awaits_fibers_spawned_while_it_ends() {
    let ended = Arc::new(AtomicUsize::new(0));
    /// Spawns itself twice, down to the depth.
    fn branch(depth: usize, ended: Arc<AtomicUsize>) {
        if depth > 0 {
            let theirs = Arc::clone(&ended);
            fiber::spawn(move || branch(depth - 1, theirs));
            let theirs = Arc::clone(&ended);
            fiber::spawn_local(move || branch(depth - 1, theirs));
        }
        ended.fetch_add(1, Ordering::SeqCst);
    }
    for _ in 0..20 {
        ended.store(0, Ordering::SeqCst);
        let theirs = Arc::clone(&ended);
        Builder::new().workers(3).run(move || fiber::spawn(|| branch(7, theirs))).unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), (1 << 8) - 1);
    }
}

/// The last fibers of two workers end at the same instant, many times. One of the workers must see
/// that no fiber is left.
#[test]
fn simultaneously_idle_workers_see_the_end() {
    for _ in 0..300 {
        let run = Builder::new().workers(2).run(|| {
            fiber::Builder::new().worker(1).spawn(fiber::park).unwrap();
        });
        run.unwrap();
    }
}
