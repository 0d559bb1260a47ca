//! The lengths of a worker's turns, where fibers may move.
//!
//! A turn is *heavy* if some of its fibers compute for so long that the others wait behind them. By
//! the clock, a turn also looks heavy if the kernel has run another thread meanwhile. So a turn
//! that looks heavy is only a reason to measure the next ones for a while, by the processor time of
//! the thread, which takes a system call. And only one that is heavy by that is a reason to measure
//! each run of a fiber, which takes longer than a short run.

use std::cell::Cell;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_micros(300);
const LONG_FOR_EACH_FIBER: Duration = Duration::from_micros(30);
/// For how long turns are measured after one that looked heavy.
const MEASURES: Duration = Duration::from_secs(1);
/// For how long a sample of the processor time serves the turns that begin.
const FRESH: Duration = Duration::from_micros(100);

#[derive(Default)]
pub(super) struct Turns {
    current: Cell<Option<Turn>>,
    measures_until: Cell<Option<Instant>>,
    sample: Cell<Option<Sample>>,
    measures_runs_until: Cell<Option<Instant>>,
    /// When the current run of a fiber began, if it is measured.
    run: Cell<Option<Instant>>,
    /// Since when there has always been a next turn, as far as the worker has looked.
    awake_since: Cell<Option<Instant>>,
}

#[derive(Clone, Copy)]
struct Turn {
    began: Instant,
    /// How many fibers it runs, if it is measured.
    fibers: Option<u32>,
}

/// The processor time of the thread at some time.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    ran: Duration,
}

impl Turns {
    /// A turn begins, and the one before ends. Returns whether that was heavy. `fibers` returns how
    /// many fibers the turn has, and `ran` the processor time of the thread.
    pub(super) fn begin(
        &self,
        now: Instant,
        fibers: impl FnOnce() -> u32,
        ran: impl Fn() -> Duration,
    ) -> bool {
        if self.awake_since.get().is_none() {
            self.awake_since.set(Some(now));
        }
        let was_heavy = self.end_one(now, &ran);
        let is_before = |until: Option<Instant>| until.is_some_and(|until| now < until);
        self.run.set(is_before(self.measures_runs_until.get()).then_some(now));
        let measures = is_before(self.measures_until.get());
        if measures && self.sample.get().is_none_or(|sample| now - sample.at > FRESH) {
            self.sample.set(Some(Sample { at: now, ran: ran() }));
        }
        self.current.set(Some(Turn { began: now, fibers: measures.then(fibers) }));
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
        let Some(Turn { began, fibers }) = self.current.take() else { return false };
        let measured = fibers.zip(self.sample.get());
        let fibers = fibers.unwrap_or(1);
        if !is_heavy(now - began, fibers) {
            return false;
        }
        self.measures_until.set(Some(now + MEASURES));
        // Of what ran since the sample, the turn had at least this much.
        let ran =
            |sample: Sample| ran().saturating_sub(sample.ran).saturating_sub(began - sample.at);
        let was_heavy = measured.is_some_and(|(_, sample)| is_heavy(ran(sample), fibers));
        if was_heavy {
            self.measures_runs_until.set(Some(now + MEASURES));
        }
        was_heavy
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
            turns.begin(start + us(at), || 10, || ran.get())
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
    fn only_turns_that_look_heavy_are_measured_and_only_heavy_ones_lead_to_measured_runs() {
        let (turns, start) = (Turns::default(), Instant::now());
        let (never, one) = (|| panic!("measures"), || 1);
        assert!(!turns.begin(start, || panic!("counts"), never));
        assert!(!turns.begin(start + us(200), || panic!("counts"), never));
        assert!(!turns.begin(start + us(600), one, Duration::default));
        assert!(!turns.begin(start + us(1_200), one, || us(1)), "it waited for a processor");
        assert!(!turns.measure_runs());
        let now = start + us(1_800);
        assert!(turns.begin(now, one, || us(601)));
        assert!(turns.measure_runs());
        assert!(turns.end_run(now + us(400)) && !turns.end_run(now + us(500)));
    }

    #[test]
    fn short_turns_share_a_sample_and_none_is_charged_with_those_before_it() {
        let (turns, start) = (Turns::default(), Instant::now());
        let samples = Cell::new(0);
        let begins = |at: u64| {
            let ran = || {
                samples.set(samples.get() + 1);
                us(at)
            };
            turns.begin(start + us(at), || 1, ran)
        };
        assert!(!begins(0) && !begins(1_000));
        assert_eq!(samples.get(), 1);
        assert!((0..9).all(|turn| !begins(1_010 + turn * 10)));
        assert_eq!(samples.get(), 1);
        // The last turn ran for 310 us, of 400 since the sample.
        assert!(begins(1_090 + 310));
        assert!(!begins(1_500) && !begins(1_590));
        // 290 us, of 480.
        assert!(!begins(1_880));
    }
}
