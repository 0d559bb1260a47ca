//! The lengths of a worker's turns, where fibers may move.
//!
//! A turn is *heavy* if some of its fibers compute for so long that the others wait behind them. By
//! the clock, a turn also looks heavy if the kernel has run another thread meanwhile. So a turn
//! that looks heavy is only a reason to measure for a while: the next turns by the processor time
//! of the thread, which takes a system call for each, and each run of a fiber by the clock.

use std::cell::Cell;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_micros(300);
const LONG_FOR_EACH_FIBER: Duration = Duration::from_micros(30);
/// For how long turns are measured after one that looked heavy.
const MEASURES: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Turns {
    current: Cell<Option<Turn>>,
    measures_until: Cell<Option<Instant>>,
    /// When the current run of a fiber began, if it is measured.
    run: Cell<Option<Instant>>,
    /// Since when there has always been a next turn, as far as the worker has looked.
    awake_since: Cell<Option<Instant>>,
}

#[derive(Clone, Copy)]
struct Turn {
    began: Instant,
    /// The processor time of the thread then, if it is measured.
    ran: Option<Duration>,
    fibers: u32,
}

impl Turns {
    /// A turn begins with this number of fibers, and the one before ends. Returns whether that was
    /// heavy. `ran` returns the processor time of the thread.
    pub(super) fn begin(&self, now: Instant, fibers: u32, ran: impl Fn() -> Duration) -> bool {
        if self.awake_since.get().is_none() {
            self.awake_since.set(Some(now));
        }
        let was_heavy = self.end_one(now, &ran);
        let measures = self.measures_until.get().is_some_and(|until| now < until);
        self.run.set(measures.then_some(now));
        self.current.set(Some(Turn { began: now, ran: measures.then(ran), fibers }));
        was_heavy
    }

    /// Whether the runs of fibers are measured in this turn.
    #[inline(always)]
    pub(super) fn measure_runs(&self) -> bool {
        self.run.get().is_some()
    }

    /// A run of a fiber ends, and the next one begins. Returns whether it was long.
    pub(super) fn end_run(&self, now: Instant) -> bool {
        self.run.replace(Some(now)).is_some_and(|began| now - began > LONG)
    }

    /// The worker has nothing to do. Returns whether the last turn was heavy.
    pub(super) fn end(&self, now: impl Fn() -> Instant, ran: impl Fn() -> Duration) -> bool {
        self.awake_since.set(None);
        self.run.set(None);
        self.current.get().is_some() && self.end_one(now(), ran)
    }

    /// Whether there was always a next turn for this time.
    pub(super) fn are_unbroken_for(&self, time: Duration, now: Instant) -> bool {
        self.awake_since.get().is_some_and(|since| now - since > time)
    }

    fn end_one(&self, now: Instant, ran: impl Fn() -> Duration) -> bool {
        let Some(turn) = self.current.take() else { return false };
        if !is_heavy(now - turn.began, turn.fibers) {
            return false;
        }
        self.measures_until.set(Some(now + MEASURES));
        turn.ran.is_some_and(|before| is_heavy(ran().saturating_sub(before), turn.fibers))
    }
}

fn is_heavy(length: Duration, fibers: u32) -> bool {
    length > LONG && length > LONG_FOR_EACH_FIBER * fibers
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn only_turns_with_heavy_fibers_are_heavy() {
        assert!(is_heavy(us(301), 1));
        assert!(is_heavy(us(50_000), 500));
        assert!(!is_heavy(us(299), 1), "a short turn");
        assert!(!is_heavy(us(2_500), 500), "many light fibers");
    }

    #[test]
    fn a_turn_that_the_kernel_interrupts_is_not_heavy() {
        let (turns, start) = (Turns::default(), Instant::now());
        let ran = Cell::new(Duration::ZERO);
        let begins = |at: u64, ran_by_then: u64| {
            ran.set(us(ran_by_then));
            turns.begin(start + us(at), 10, || ran.get())
        };
        assert!(!begins(0, 0));
        assert!(!begins(4_000, 4_000), "its processor time was not measured");
        assert!(begins(8_000, 8_000));
        assert!(!begins(12_000, 8_100), "it waited for a processor");
        ran.set(us(12_100));
        assert!(turns.end(|| start + us(16_000), || ran.get()));
        assert!(!turns.end(|| start + us(20_000), || ran.get()), "none has begun");
    }

    #[test]
    fn turns_are_measured_only_after_one_that_looks_heavy() {
        let (turns, start) = (Turns::default(), Instant::now());
        let never = || panic!("measures");
        assert!(!turns.begin(start, 1, never));
        assert!(!turns.begin(start + us(200), 1, never));
        assert!(!turns.measure_runs());
        let now = start + us(600);
        assert!(!turns.begin(now, 1, Duration::default));
        assert!(turns.measure_runs());
        assert!(turns.end_run(now + us(400)) && !turns.end_run(now + us(500)));
    }
}
