//! Whether the machine has a core for another worker.

use cringle_sys::plainly;
use std::time::{Duration, Instant};

/// For how long a core is watched before a worker takes it, and after what time an earlier look
/// says nothing. The kernel counts in steps of 10 ms.
const ASK: Duration = Duration::from_millis(100);
const OLD: Duration = Duration::from_millis(500);
/// For how long no worker asks for a core after none was free, and how often that time doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MOST_FAILURES: u32 = 6;

/// What the workers know of the machine's cores.
#[derive(Default)]
pub(crate) struct Cores {
    /// No worker asks for another core before.
    not_before: Option<Instant>,
    /// Times in a row that no core was free.
    failures: u32,
    /// When a worker looked at the cores, and the time for which they had been idle by then.
    seen: Option<(Instant, Duration)>,
}

impl Cores {
    /// Whether a quarter of a core was free of late: less is not worth a try. `idle` returns the
    /// time for which cores have been idle; `None` if the kernel does not say.
    pub(super) fn has_free(
        &mut self,
        now: Instant,
        idle: impl FnOnce() -> Option<Duration>,
    ) -> bool {
        if !self.may_be_asked_for(now) {
            return false;
        }
        let seen = self.seen.map(|(at, idle)| (now - at, idle));
        if seen.is_some_and(|(ago, _)| ago < ASK) {
            return false;
        }
        let Some(idle) = idle() else { return true };
        self.seen = Some((now, idle));
        seen.is_some_and(|(ago, before)| ago < OLD && idle.saturating_sub(before) * 4 > ago)
    }

    fn may_be_asked_for(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// A worker has waited for a processor. Several may find that at once.
    pub(super) fn found_none(&mut self, now: Instant) {
        if self.may_be_asked_for(now) {
            self.not_before = Some(now + FIRST_PAUSE * (1 << self.failures));
            self.failures = (self.failures + 1).min(MOST_FAILURES);
        }
    }

    /// A worker works, and has not waited for a processor.
    pub(super) fn found_one(&mut self) {
        self.failures = 0;
    }
}

/// The time for which the cores of the machine have been idle, in sum.
pub(super) fn idle_time() -> Option<Duration> {
    let times = plainly(|| std::fs::read_to_string("/proc/uptime")).ok()?;
    Duration::try_from_secs_f64(times.split_whitespace().nth(1)?.parse().ok()?).ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Looks at cores that were idle in this way since the last look.
    fn look(cores: &mut Cores, now: &mut Instant, idle: &mut Duration, after: Duration) -> bool {
        (*now, *idle) = (*now + ASK, *idle + after);
        cores.has_free(*now, || Some(*idle))
    }

    #[test]
    fn quarter_of_a_core_has_to_be_free_for_a_while() {
        let (mut cores, mut now, mut idle) = (Cores::default(), Instant::now(), Duration::ZERO);
        let ms = Duration::from_millis;
        assert!(!look(&mut cores, &mut now, &mut idle, ms(90)), "the first look compares nothing");
        assert!(!cores.has_free(now + ASK / 2, || panic!("asks too often")));
        assert!(!look(&mut cores, &mut now, &mut idle, ms(20)));
        assert!(look(&mut cores, &mut now, &mut idle, ms(30)));
        now += OLD;
        assert!(!look(&mut cores, &mut now, &mut idle, OLD), "the last look was long ago");
        assert!(look(&mut cores, &mut now, &mut idle, ms(30)));
        assert!(cores.has_free(now + ASK, || None), "the kernel does not say: one may try");
    }

    #[test]
    fn a_machine_without_a_free_core_is_asked_less_and_less() {
        let (mut cores, mut now) = (Cores::default(), Instant::now());
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert!(cores.may_be_asked_for(now));
            cores.found_none(now);
            // Another worker finds the same.
            cores.found_none(now + Duration::from_millis(10));
            now += Duration::from_secs(seconds);
            assert!(!cores.may_be_asked_for(now - Duration::from_millis(1)));
        }
        assert!(cores.may_be_asked_for(now));
        cores.found_one();
        cores.found_none(now);
        assert!(cores.may_be_asked_for(now + Duration::from_secs(1)));
    }
}
