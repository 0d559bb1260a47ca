//! The clock, the CPU time of the process, and the gate that starts and stops them.
//!
//! Every strategy prepares itself (threads, rings, buffers, open files) before the gate. The last
//! party that arrives starts the clock and releases the others; the last party that leaves stops
//! it. (A benchmark that stops at the first one divides all operations by the time of the fastest
//! thread, and reports a rate that no thread reached.)

use crate::alloc::{self, Allocated};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time that a run took, and the CPU time of all threads of the process, the kernel's io-wq
/// workers included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    pub(crate) context_switches: u64,
}

impl Usage {
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// A running clock.
#[derive(Clone, Copy)]
pub(crate) struct Meter {
    started: Instant,
    at_start: Usage,
}

impl Meter {
    pub(crate) fn start() -> Meter {
        let at_start = process_usage();
        Meter { started: Instant::now(), at_start }
    }

    pub(crate) fn stop(&self) -> Usage {
        let seconds = self.started.elapsed().as_secs_f64();
        let now = process_usage();
        Usage {
            seconds,
            user_seconds: now.user_seconds - self.at_start.user_seconds,
            system_seconds: now.system_seconds - self.at_start.system_seconds,
            context_switches: now.context_switches - self.at_start.context_switches,
        }
    }
}

/// Returns the CPU time and the context switches of this process since its start.
pub(crate) fn process_usage() -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes to `usage`, a whole `rusage`; all zeroes is a valid one.
    let usage = unsafe {
        let result = libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        assert_eq!(result, 0, "getrusage(RUSAGE_SELF) cannot fail");
        usage.assume_init()
    };
    Usage {
        seconds: 0.0,
        user_seconds: seconds(usage.ru_utime),
        system_seconds: seconds(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
    }
}

/// Converts a `timeval` to seconds.
pub(crate) fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Where the parties of a run meet before and after the measured work.
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    /// Measured work that is done once, when the last party has left.
    ending: Option<Ending>,
    counts_allocations: bool,
}

type Ending = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

struct GateState {
    /// Parties that have not entered.
    missing: usize,
    /// Parties that have not left.
    running: usize,
    /// Whether a party has left without entering.
    failed: bool,
    /// The clock, once all parties have entered.
    meter: Option<Meter>,
    usage: Option<Usage>,
    allocated: Option<Allocated>,
}

impl Gate {
    pub(crate) fn new(parties: usize) -> Gate {
        Gate {
            state: Mutex::new(GateState {
                missing: parties,
                running: parties,
                failed: false,
                meter: None,
                usage: None,
                allocated: None,
            }),
            changed: Condvar::new(),
            ending: None,
            counts_allocations: false,
        }
    }

    /// Adds work to be done and measured after the last party has left.
    pub(crate) fn with_ending(
        self,
        ending: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> Gate {
        Gate { ending: Some(Box::new(ending)), ..self }
    }

    /// Counts the allocations of the process while the clock runs.
    pub(crate) fn counting_allocations(self) -> Gate {
        Gate { counts_allocations: true, ..self }
    }

    /// Returns one of the parties. It leaves when it is dropped: after its work, or early because
    /// of an error.
    pub(crate) fn party(&self) -> Party<'_> {
        Party { gate: self, entered: false }
    }

    /// Sets `stop` once the work has run for `limit`. Returns then, or when the work ends earlier.
    pub(crate) fn stop_after(&self, limit: Duration, stop: &AtomicBool) {
        let mut state = self.lock();
        while state.meter.is_none() && !state.failed {
            state = self.wait(state);
        }
        let Some(meter) = state.meter else { return };
        while state.usage.is_none() && !state.failed {
            let left = limit.saturating_sub(meter.started.elapsed());
            if left.is_zero() {
                stop.store(true, Relaxed);
                return;
            }
            state = match self.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Returns what the run took, or `None` if a party never entered or the ending failed.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.lock().usage
    }

    /// Returns the allocations during the run, if they were counted.
    pub(crate) fn allocated(&self) -> Option<Allocated> {
        self.lock().allocated
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, GateState>) -> MutexGuard<'g, GateState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// One participant of a run: a thread or a worker.
pub(crate) struct Party<'g> {
    gate: &'g Gate,
    entered: bool,
}

impl Party<'_> {
    /// Blocks the OS thread until all parties have entered.
    ///
    /// # Errors
    ///
    /// [`GAVE_UP`] if a party left without entering.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        let mut state = self.gate.lock();
        self.entered = true;
        state.missing -= 1;
        if state.missing == 0 {
            if self.gate.counts_allocations {
                alloc::start();
            }
            state.meter = Some(Meter::start());
            self.gate.changed.notify_all();
        }
        while state.meter.is_none() && !state.failed {
            state = self.gate.wait(state);
        }
        if state.failed { Err(io::Error::other(GAVE_UP)) } else { Ok(()) }
    }
}

/// The error of the parties that waited for one that failed. The failed party's own error is the
/// cause.
pub(crate) const GAVE_UP: &str = "another thread of this run could not start";

impl Drop for Party<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.running -= 1;
        if !self.entered {
            state.failed = true;
        }
        if state.running == 0 && state.missing == 0 {
            state.allocated = self.gate.counts_allocations.then(alloc::stop);
            let ended = self.gate.ending.as_ref().is_none_or(|ending| ending().is_ok());
            state.usage = state.meter.filter(|_| ended).map(|meter| meter.stop());
        }
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn the_clock_stops_with_the_last_party() {
        let gate = Gate::new(2);
        thread::scope(|s| {
            for pause_ms in [1, 60] {
                let gate = &gate;
                s.spawn(move || {
                    let mut party = gate.party();
                    party.enter().unwrap();
                    thread::sleep(Duration::from_millis(pause_ms));
                });
            }
        });
        assert!(gate.usage().unwrap().seconds >= 0.06);
    }

    #[test]
    fn a_party_that_gives_up_releases_the_others() {
        let gate = Gate::new(2);
        thread::scope(|s| {
            let waiting = s.spawn(|| gate.party().enter());
            drop(gate.party());
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(gate.usage().is_none());
    }

    #[test]
    fn the_time_limit_sets_the_flag() {
        let (gate, stop) = (Gate::new(1), AtomicBool::new(false));
        thread::scope(|s| {
            s.spawn(|| gate.stop_after(Duration::from_millis(5), &stop));
            let mut party = gate.party();
            party.enter().unwrap();
            while !stop.load(Relaxed) {
                thread::yield_now();
            }
        });
        assert!(gate.usage().unwrap().seconds >= 0.005);
    }
}
