//! What fibers cost: a page or two each, and nothing that is not given back.
//!
//! Each test has a process of its own, since it looks at the memory of all of it; and they take
//! turns, since each takes much.

mod child;

use child::{Footprint, field_kib, scaled, status_kib};
use cringle::{Builder, fiber};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;

static TURN: Mutex<()> = Mutex::new(());

fn in_turn(test: &str, body: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    child::must_succeed(test, body);
}

/// Makes so many fibers, parks them all, has `f` look, and lets them end.
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

/// Bytes of an idle fiber that are resident, at most; page tables come on top. In debug, where
/// frames are larger, 7,576 were measured, and 1.3 times that is the bound.
const RESIDENT_BYTES: u64 = if cfg!(debug_assertions) { 9_850 } else { 8_704 };

#[test]
fn an_idle_fiber_costs_two_pages() {
    const FIBERS: usize = 100_000;
    in_turn("an_idle_fiber_costs_two_pages", || {
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
        // Page tables count here, too: a stack has one of its own, at 1 MiB from stack to stack.
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
fn successive_fibers_share_their_stacks() {
    in_turn("successive_fibers_share_their_stacks", || {
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

/// Stacks that were in use give their pages back, but for a few that stay warm.
#[test]
fn memory_of_ended_fibers_is_given_back_while_the_run_goes_on() {
    in_turn("memory_of_ended_fibers_is_given_back_while_the_run_goes_on", || {
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

/// Of stacks that once were deep only the warm ones, 128 of a size, stay resident.
#[test]
fn the_pages_of_deep_stacks_are_given_back_but_for_the_warm_ones() {
    const DEEP_KIB: usize = 256;
    const WARM: usize = 128;
    fn touch_the_stack() {
        std::hint::black_box([1u8; DEEP_KIB << 10]);
    }
    in_turn("the_pages_of_deep_stacks_are_given_back_but_for_the_warm_ones", || {
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
            // In debug the array is copied, and takes twice its size.
            assert!(stay < 2 * (DEEP_KIB + 16) * WARM, "{stay} KiB of ended fibers stay resident");
        });
        run.unwrap();
    });
}
