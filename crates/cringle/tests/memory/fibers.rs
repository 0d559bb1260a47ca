//! The memory of fibers: one or two pages each, all of it released.
//!
//! The tests run one after the other, because each takes much memory.

use cringle::runtime::Balance;
use cringle::{Builder, fiber};
use cringle_testing::child;
use cringle_testing::child::{Footprint, field_kib, scaled, status_kib};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static TURN: Mutex<()> = Mutex::new(());

fn in_turn(test: &str, body: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    child::must_succeed(test, body);
}

/// Makes this number of fibers, parks them, calls `f`, and lets them end.
fn with_parked(count: usize, f: impl FnOnce()) {
    let parked = Rc::new(Cell::new(0));
    let handles: Vec<_> = (0..count)
        .map(|_| {
            let parked = Rc::clone(&parked);
            fiber::spawn_local(move || {
                parked.set(parked.get() + 1);
                fiber::park();
                parked.set(parked.get() - 1);
            })
        })
        .collect();
    while parked.get() < count {
        fiber::yield_now();
    }
    f();
    for handle in handles {
        handle.thread().unpark();
        handle.join().unwrap();
    }
    assert_eq!(parked.get(), 0);
}

/// The most resident bytes of an idle fiber, without page tables. Frames are larger in debug
/// builds.
const RESIDENT_BYTES: u64 = if cfg!(debug_assertions) { 9_850 } else { 8_704 };

#[test]
fn idle_fiber_costs_two_pages() {
    const FIBERS: usize = 100_000;
    in_turn("idle_fiber_costs_two_pages", || {
        Builder::new()
            .workers(1)
            .run(|| {
                let before = status_kib("VmRSS:");
                let tables_before = status_kib("VmPTE:");
                with_parked(FIBERS, || {
                    let each = (status_kib("VmRSS:") - before) * 1024 / FIBERS as u64;
                    let tables = (status_kib("VmPTE:") - tables_before) * 1024 / FIBERS as u64;
                    println!("{each} bytes each, and {tables} of page tables");
                    assert!(each <= RESIDENT_BYTES, "{each} bytes are resident for each fiber");
                });
            })
            .unwrap();
    });
}

#[test]
fn fibers_beyond_the_limit_of_mappings_are_alive() {
    in_turn("fibers_beyond_the_limit_of_mappings_are_alive", || {
        // Page tables count here too: with 1 MiB from stack to stack, each stack has its own.
        let each_kib = 20;
        let fit = field_kib("/proc/meminfo", "MemAvailable:") / each_kib;
        let fibers = scaled(120_000, fit.min(1_000_000) as usize);
        assert!(fibers >= 100_000, "this machine has memory for {fibers} fibers only");
        let run = Builder::new().workers(1).run(|| {
            with_parked(fibers, || {
                let mappings = Footprint::now().mappings;
                println!(
                    "{fibers} fibers, {} MiB, {mappings} mappings",
                    status_kib("VmRSS:") >> 10
                );
            });
        });
        run.unwrap();
    });
}

#[test]
fn successive_fibers_share_stacks() {
    in_turn("successive_fibers_share_stacks", || {
        let many = scaled(50_000, 1_000_000);
        let spawn_and_join = |count: usize| {
            for _ in 0..count {
                fiber::spawn_local(|| ()).join().unwrap();
            }
        };
        let run = Builder::new().workers(1).run(|| {
            spawn_and_join(1000);
            let (before, resident) = (Footprint::now(), status_kib("VmRSS:"));
            spawn_and_join(many);
            assert_eq!(Footprint::now(), before);
            let grown = status_kib("VmRSS:").saturating_sub(resident);
            assert!(grown < 1024, "{grown} KiB were not given back");
        });
        run.unwrap();
    });
}

/// Stacks of ended fibers release their pages, except for a few warm ones.
#[test]
fn memory_of_ended_fibers_is_released_during_run() {
    in_turn("memory_of_ended_fibers_is_released_during_run", || {
        let run = Builder::new().workers(1).run(|| {
            with_parked(10_000, || ());
            let once = status_kib("VmRSS:");
            for _ in 0..5 {
                with_parked(10_000, || {
                    let now = status_kib("VmRSS:");
                    assert!(now > once + 20_000, "{now} KiB with and {once} KiB without them");
                });
            }
            let now = status_kib("VmRSS:");
            assert!(now < once + 4096, "{now} KiB now, {once} KiB after the first");
        });
        run.unwrap();
    });
}

/// Of stacks that were used deeply, only the warm ones stay resident, 128 of a size.
#[test]
fn only_warm_deep_stacks_keep_pages() {
    const DEEP_KIB: usize = 256;
    const WARM: usize = 128;
    fn touch_the_stack() {
        std::hint::black_box([1u8; DEEP_KIB << 10]);
    }
    in_turn("only_warm_deep_stacks_keep_pages", || {
        let run = Builder::new().workers(1).run(|| {
            let before = status_kib("VmRSS:");
            for _ in 0..3 {
                let deep: Vec<_> = (0..6 * WARM)
                    .map(|_| {
                        fiber::spawn_local(|| {
                            touch_the_stack();
                            fiber::yield_now();
                        })
                    })
                    .collect();
                deep.into_iter().for_each(|handle| handle.join().unwrap());
            }
            let stay = status_kib("VmRSS:").saturating_sub(before) as usize;
            println!("{stay} KiB stay");
            // In debug builds the array is copied, and takes twice its size.
            assert!(stay < 2 * (DEEP_KIB + 16) * WARM, "{stay} KiB of ended fibers stay resident");
        });
        run.unwrap();
    });
}

/// The bytes that a deep call uses, and the most that stay resident for an idle fiber.
const DEEP_BYTES: usize = 256 << 10;
const SHALLOW_KIB: u64 = 16;

/// Touches this many bytes of the stack.
#[inline(never)]
fn call_deep() -> u8 {
    let mut frame = [1; DEEP_BYTES];
    std::hint::black_box(&mut frame)[7]
}

/// Waits until each of `count` stacks that were used deep has few resident pages.
fn wait_until_shallow(before_kib: u64, count: usize) {
    while !is_shallow(before_kib, count) {
        fiber::sleep(Duration::from_millis(20));
    }
}

/// The resident memory without pages of the program's file, which come and go.
fn resident_kib() -> u64 {
    status_kib("RssAnon:")
}

fn is_shallow(before_kib: u64, count: usize) -> bool {
    resident_kib() <= before_kib + count as u64 * SHALLOW_KIB
}

#[test]
fn deep_stacks_give_pages_back_when_idle() {
    // No more than the pool keeps.
    const FIBERS: usize = 120;
    in_turn("deep_stacks_give_pages_back_when_idle", || {
        let moves = [(Balance::Fixed, false), (Balance::Fixed, true), (Balance::Moving, false)];
        for (balance, is_busy) in moves {
            let builder = Builder::new().workers(1).balance(balance);
            let run = builder.run(|| {
                let before = resident_kib();
                let deep_kib = before + (FIBERS * DEEP_BYTES) as u64 / 1024;
                let handles: Vec<_> = (0..FIBERS)
                    .map(|n| {
                        fiber::spawn_local(move || {
                            let kept = [n as u8; 64];
                            let deep = || assert_eq!(call_deep(), 1);
                            deep();
                            fiber::park();
                            // What lies above the stack pointer has stayed, and the rest is usable.
                            assert!(std::hint::black_box(kept).iter().all(|&byte| byte == n as u8));
                            deep();
                        })
                    })
                    .collect();
                fiber::yield_now();
                assert!(resident_kib() >= deep_kib, "the calls are not deep");
                if is_busy {
                    // The worker never sleeps meanwhile.
                    while !is_shallow(before, FIBERS) {
                        (0..100).for_each(|_| fiber::yield_now());
                    }
                }
                wait_until_shallow(before, FIBERS);
                handles.iter().for_each(|handle| handle.thread().unpark());
                handles.into_iter().for_each(|handle| handle.join().unwrap());
                // The free stacks of the pool have been used deep by the second call.
                assert!(resident_kib() >= deep_kib, "the pool keeps no stacks");
                wait_until_shallow(before, FIBERS);
            });
            run.unwrap();
        }
    });
}

/// Each piece that a fiber frees goes to its worker's cache. With a cache of its own, each of these
/// fibers would keep 200 KiB.
#[test]
fn fibers_share_the_caches_of_the_allocator() {
    const FIBERS: usize = 1000;
    fn fill_cache() {
        for bytes in (24..1033).step_by(16) {
            let pieces = [(); 7].map(|()| std::hint::black_box(vec![1u8; bytes]));
            drop(pieces);
        }
    }
    in_turn("fibers_share_the_caches_of_the_allocator", || {
        let run = Builder::new().workers(1).run(|| {
            fiber::spawn(fill_cache).join().unwrap();
            let before = status_kib("VmRSS:");
            let parked = AtomicUsize::new(0);
            fiber::scope(|s| {
                let fibers = (0..FIBERS).map(|_| {
                    s.spawn(|| {
                        fill_cache();
                        parked.fetch_add(1, Ordering::Relaxed);
                        fiber::park();
                    })
                });
                let fibers: Vec<_> = fibers.collect();
                while parked.load(Ordering::Relaxed) < FIBERS {
                    fiber::yield_now();
                }
                let each = (status_kib("VmRSS:") - before) / FIBERS as u64;
                fibers.iter().for_each(|fiber| fiber.thread().unpark());
                assert!(each < 40, "an idle fiber has {each} KiB");
            });
        });
        run.unwrap();
    });
}

/// The library's own memory is there already; the fibers' allocations fail one by one.
#[test]
fn allocations_of_fibers_may_fail() {
    in_turn("allocations_of_fibers_may_fail", || {
        let run = Builder::new().workers(1).run(|| {
            fiber::spawn(|| ()).join().unwrap();
            limit_address_space(256 << 20);
            fiber::scope(|s| {
                let allocate = || {
                    let mut all = Vec::with_capacity(1000);
                    let mut failed = 0;
                    for _ in 0..1000 {
                        let mut piece = Vec::<u8>::new();
                        match piece.try_reserve_exact(100_000) {
                            Ok(()) => all.push(piece),
                            Err(_) => failed += 1,
                        }
                        fiber::yield_now();
                    }
                    failed
                };
                let fibers: Vec<_> = (0..8).map(|_| s.spawn(allocate)).collect();
                let failed: Vec<u32> = fibers.into_iter().map(|it| it.join().unwrap()).collect();
                assert!(failed.iter().all(|&failed| failed > 0), "{failed:?}");
            });
        });
        run.unwrap();
    });
}

/// Lets the process have this number of bytes more.
fn limit_address_space(more: u64) {
    let bytes = status_kib("VmSize:") * 1024 + more;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a call of libc with a value of its type.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}
