//! The clock, the process's use of the CPU, and the gate that starts and stops them.
//!
//! Every strategy prepares itself (threads, rings, buffers, open files) before the gate. The
//! last party that arrives starts the clock and lets all go; the last one that leaves stops
//! it. Not the first: a benchmark that divides all operations by the time of its fastest
//! thread reports a rate that nobody reached.

use crate::alloc::{self, Allocated};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a run took, all threads of the process and the kernel's workers for it included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub seconds: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub context_switches: u64,
}

impl Usage {
    pub fn cpu_seconds(&self) -> f64 {
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

pub(crate) fn process_usage() -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole `rusage`, which the call only writes.
    let usage = unsafe {
        let result = libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        assert_eq!(result, 0, "getrusage(RUSAGE_SELF) cannot fail");
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Usage {
        seconds: 0.0,
        user_seconds: seconds(usage.ru_utime),
        system_seconds: seconds(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
    }
}

/// Where the parties of one run meet before and after the measured work.
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    /// Work that belongs to the measured time and is done once, after the last party's.
    ending: Option<Ending>,
    counting: bool,
}

type Ending = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

struct GateState {
    missing: usize,
    running: usize,
    failed: bool,
    meter: Option<Meter>,
    usage: Option<Usage>,
    allocated: Option<Allocated>,
}

impl Gate {
    pub fn new(parties: usize) -> Gate {
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
            counting: false,
        }
    }

    /// With something to do between the end of the last party and the end of the clock.
    pub fn with_ending(self, ending: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Gate {
        Gate { ending: Some(Box::new(ending)), ..self }
    }

    /// Counts what the process allocates while the clock runs.
    pub fn counting_allocations(self) -> Gate {
        Gate { counting: true, ..self }
    }

    /// One of the parties. Dropping it leaves: after the work, or early because of an error.
    pub fn party(&self) -> Party<'_> {
        Party { gate: self, entered: false }
    }

    /// Sets `stop` when the work has gone on for `limit`; returns when it is over.
    pub fn stop_after(&self, limit: Duration, stop: &AtomicBool) {
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

    /// What the run took; `None` when a party never came, or the ending failed.
    pub fn usage(&self) -> Option<Usage> {
        self.lock().usage
    }

    pub fn allocated(&self) -> Option<Allocated> {
        self.lock().allocated
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, GateState>) -> MutexGuard<'g, GateState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Party<'g> {
    gate: &'g Gate,
    entered: bool,
}

impl Party<'_> {
    /// Waits, by blocking the OS thread, until all are ready. An error when one gave up: it
    /// has the reason.
    pub fn enter(&mut self) -> io::Result<()> {
        let mut state = self.gate.lock();
        self.entered = true;
        state.missing -= 1;
        if state.missing == 0 {
            if self.gate.counting {
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

/// The error of those who waited for a party that failed; its own error says more.
pub(crate) const GAVE_UP: &str = "another thread of this run could not start";

impl Drop for Party<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.running -= 1;
        if !self.entered {
            state.failed = true;
        }
        if state.running == 0 && state.missing == 0 {
            state.allocated = self.gate.counting.then(alloc::stop);
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
    fn the_clock_stops_with_the_last_one() {
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
    fn one_that_gives_up_releases_the_others() {
        let gate = Gate::new(2);
        thread::scope(|s| {
            let waiting = s.spawn(|| gate.party().enter());
            drop(gate.party());
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(gate.usage().is_none());
    }

    #[test]
    fn the_time_limit_raises_the_flag() {
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
