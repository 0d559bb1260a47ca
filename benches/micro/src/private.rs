//! Fibers with thread-locals of their own, and the cost of them: a switch that sets the thread
//! pointer, a block for each fiber, its memory.

use crate::memory::{self, Locals};
use crate::report::{Contest, Report};
use crate::spawns::{From, tasks};
use common::clock::cpu_ns_per_op;
use cringle::fiber;
use cringle::runtime::ThreadLocals;
use std::hint::black_box;

const YIELDS: u64 = 500_000;
const SPAWNS: u64 = 200_000;
const YIELD_BAR: f64 = 1.1;
const SPAWN_BAR: f64 = 1.0;
const BAR_KIB: f64 = 10.0;

pub(crate) fn run(rounds: usize, fibers: u64) -> Vec<Report> {
    let title = "memory of idle fibers with private thread-locals";
    let report = memory::run(title, fibers, Locals::PrivateWithMalloc, BAR_KIB);
    vec![yields(rounds), spawns(rounds), report]
}

fn yields(rounds: usize) -> Report {
    let (private, shared) = ("private: yield among 32 fibers", "shared: yield among 32 fibers");
    Contest::new("yield with private thread-locals")
        .side(private, || yielding(ThreadLocals::Private))
        .side(shared, || yielding(ThreadLocals::Shared))
        .side("the instruction that sets the thread pointer", set_thread_pointer)
        .run(rounds)
        .ratio(private, &[shared], Some(YIELD_BAR))
}

fn yielding(thread_locals: ThreadLocals) -> f64 {
    const FIBERS: u64 = 32;
    let yields = |count: u64| {
        fiber::scope(|s| {
            for _ in 0..FIBERS {
                s.spawn(move || (0..count / FIBERS).for_each(|_| fiber::yield_now()));
            }
        });
    };
    on_one_worker(thread_locals, || {
        yields(1000);
        cpu_ns_per_op(YIELDS, || yields(YIELDS))
    })
}

/// Returns the nanoseconds of one `wrfsbase`; a yield has two of them.
fn set_thread_pointer() -> f64 {
    cpu_ns_per_op(YIELDS, || {
        for _ in 0..YIELDS {
            // SAFETY: the register gets the value that it has; private thread-locals were run
            // before, which need the instruction.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                std::arch::asm!(
                    "mov {0}, fs:0", "wrfsbase {0}", out(reg) _, options(nostack)
                );
            }
        }
    })
}

fn spawns(rounds: usize) -> Report {
    let (private, shared) = ("private: spawn, join", "shared: spawn, join");
    let on_tokio = "tokio: current-thread task";
    Contest::new("spawn + join with private thread-locals")
        .side(private, || spawning(ThreadLocals::Private))
        .side(shared, || spawning(ThreadLocals::Shared))
        .side(on_tokio, || tasks(1, From::Task))
        .run(rounds)
        .ratio(private, &[on_tokio], Some(SPAWN_BAR))
        .ratio(private, &[shared], None)
}

fn spawning(thread_locals: ThreadLocals) -> f64 {
    let spawns = |count: u64| {
        for number in 0..count {
            black_box(fiber::spawn(move || number).join().expect("no panic"));
        }
    };
    on_one_worker(thread_locals, || {
        spawns(1000);
        cpu_ns_per_op(SPAWNS, || spawns(SPAWNS))
    })
}

fn on_one_worker<T>(thread_locals: ThreadLocals, f: impl FnOnce() -> T) -> T {
    let builder = cringle::Builder::new().workers(1).thread_locals(thread_locals);
    builder.run(f).expect("a runtime starts")
}
