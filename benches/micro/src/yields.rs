//! Yields from one fiber to the next.
//!
//! A yield is a switch to the scheduler and one to the next fiber: as many switches as a round trip
//! (resume, suspend) of a bare coroutine, with which it is compared.
//!
//! The bare round trip is the best case, because both ends are inlined into one loop each: every
//! `ret` returns to where the processor's return predictor expects it. A function that suspends and
//! then returns to its caller does not; the side "one call deep" shows the difference.

use crate::report::{Contest, Report};
use common::clock::cpu_ns_per_op;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use cringle::fiber;

const YIELDS: u64 = 1_000_000;
const BAR: f64 = 3.0;

pub(crate) fn run(rounds: usize) -> Report {
    let (on_fibers, bare) = ("cringle: yield between two fibers", "corosensei: resume + suspend");
    Contest::new("yield")
        .side(on_fibers, || fibers(2))
        .side("cringle: yield among 32 fibers", || fibers(32))
        .side(bare, || coroutines(1, Yielder::suspend))
        .side("corosensei: two coroutines in turn", || coroutines(2, Yielder::suspend))
        .side("corosensei: two in turn, suspended one call deep", || coroutines(2, out_of_line))
        .side("corosensei: 32 coroutines in turn", || coroutines(32, Yielder::suspend))
        .run(rounds)
        .ratio(on_fibers, &[bare], Some(BAR))
        .ratio(on_fibers, &["corosensei: two coroutines in turn"], None)
        .ratio("cringle: yield among 32 fibers", &["corosensei: 32 coroutines in turn"], None)
}

/// Returns the nanoseconds per yield among `count` fibers.
fn fibers(count: u64) -> f64 {
    let yielding = |yields: u64| {
        fiber::scope(|s| {
            for _ in 0..count {
                s.spawn_local(move || (0..yields).for_each(|_| fiber::yield_now()));
            }
        });
    };
    crate::on_one_worker(|| {
        yielding(1000);
        cpu_ns_per_op(YIELDS, || yielding(YIELDS / count))
    })
}

/// Returns the nanoseconds per resume and suspend, of `count` coroutines in turn.
#[inline(always)]
fn coroutines(count: u64, suspend: impl Fn(&Yielder<(), ()>, ()) + Copy + 'static) -> f64 {
    let each = YIELDS / count;
    let make = || {
        Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
            (0..each + 1).for_each(|_| suspend(yielder, ()));
        })
    };
    let mut coroutines: Vec<_> = (0..count).map(|_| make()).collect();
    let resume = |coroutine: &mut Coroutine<(), (), ()>, expected: CoroutineResult<(), ()>| {
        assert!(coroutine.resume(()) == expected, "a coroutine suspends once for each resume");
    };
    let yielded = CoroutineResult::Yield(());
    coroutines.iter_mut().for_each(|coroutine| resume(coroutine, yielded));
    let nanoseconds = cpu_ns_per_op(each * count, || {
        for _ in 0..each {
            coroutines.iter_mut().for_each(|coroutine| resume(coroutine, yielded));
        }
    });
    coroutines.iter_mut().for_each(|coroutine| resume(coroutine, CoroutineResult::Return(())));
    nanoseconds
}

#[inline(never)]
fn out_of_line(yielder: &Yielder<(), ()>, (): ()) {
    yielder.suspend(());
}
