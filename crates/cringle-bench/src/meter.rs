//! The clock, the CPU time of the process, and the gate that starts and stops them.
//!
//! Every strategy prepares itself (threads, rings, buffers, open files) before the gate. The last
//! party that arrives starts the clock and releases the others; the last party that leaves stops
//! it. (A benchmark that stops at the first one divides all operations by the time of the fastest
//! thread, and reports a rate that no thread reached.)

use crate::alloc::{self, Allocated};
use crate::joined;
use cringle::fiber;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
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

    pub(crate) fn since(&self, before: &Usage) -> Usage {
        Usage {
            seconds: self.seconds - before.seconds,
            user_seconds: self.user_seconds - before.user_seconds,
            system_seconds: self.system_seconds - before.system_seconds,
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
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
        Usage { seconds, ..process_usage().since(&self.at_start) }
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
    usage.into()
}

/// The kernel counts no elapsed time.
impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Usage {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Usage {
            seconds: 0.0,
            user_seconds: seconds(usage.ru_utime),
            system_seconds: seconds(usage.ru_stime),
            context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        }
    }
}

/// Where the parties of a run meet before and after the measured work.
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    counts_allocations: bool,
}

#[derive(Default)]
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
                ..GateState::default()
            }),
            changed: Condvar::new(),
            counts_allocations: false,
        }
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

    /// Returns what the run took, or `None` if a party never entered.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.lock().usage
    }

    /// Returns the allocations during the run, if they were counted.
    pub(crate) fn allocated(&self) -> Option<Allocated> {
        self.lock().allocated
    }

    /// Runs `work` on new threads ([`on_threads`]), each of which is a party. If the system refuses
    /// a thread, its party is dropped, so that the others give up.
    pub(crate) fn on_threads<T: Send>(
        &self,
        threads: usize,
        fewer: &str,
        work: impl Fn(usize, Party<'_>) -> io::Result<T> + Sync,
    ) -> io::Result<Vec<T>> {
        let each = (0..threads).map(|number| {
            let (party, work) = (self.party(), &work);
            move || work(number, party)
        });
        on_threads(fewer, each)
    }

    /// Runs `work` on a fiber of each worker of a runtime; each is a party. The calling thread is
    /// worker 0.
    pub(crate) fn on_workers<T: Send>(
        &self,
        workers: usize,
        work: impl Fn(usize, Party<'_>) -> io::Result<T> + Sync,
    ) -> io::Result<Vec<T>> {
        let work = &work;
        let mut parties: Vec<_> = (0..workers).map(|_| self.party()).collect();
        cringle::Builder::new().workers(workers).run(move || {
            crate::describe_runtime();
            let mine = parties.swap_remove(0);
            fiber::scope(|scope| {
                let start = |(worker, party)| {
                    let on_worker = fiber::Builder::new().worker(worker);
                    on_worker.spawn_scoped(scope, move || work(worker, party))
                };
                let fibers: Vec<_> = (1..).zip(parties).map(start).collect();
                let first = work(0, mine);
                let others = fibers.into_iter().map(|fiber| joined(fiber?.join()));
                collect(std::iter::once(first).chain(others))
            })
        })?
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

/// The error of the parts of a run that end because another part has failed, whose own error is the
/// cause.
pub(crate) const GAVE_UP: &str = "another part of this run has failed";

/// Runs each function on a new thread. If the system refuses a thread, its function is dropped, the
/// others run, and the error says what a user may do: `fewer` completes the remedy.
pub(crate) fn on_threads<T: Send, F: FnOnce() -> io::Result<T> + Send>(
    fewer: &str,
    all: impl IntoIterator<Item = F>,
) -> io::Result<Vec<T>> {
    thread::scope(|scope| {
        let start = |(number, work): (usize, F)| {
            let builder = thread::Builder::new().name(format!("bench-{number}"));
            builder.spawn_scoped(scope, work)
        };
        let started: Vec<_> = all.into_iter().enumerate().map(start).collect();
        let refused = |error| crate::no_thread(&error, fewer);
        collect(started.into_iter().map(|one| joined(one.map_err(refused)?.join())))
    })
}

/// Returns all values, or the first error that is a cause and not a consequence.
pub(crate) fn collect<T>(results: impl IntoIterator<Item = io::Result<T>>) -> io::Result<Vec<T>> {
    let (mut values, mut failed) = (Vec::new(), None::<io::Error>);
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => {
                let better = failed.as_ref().is_none_or(|first| first.to_string() == GAVE_UP);
                failed = if better { Some(error) } else { failed };
            }
        }
    }
    failed.map_or(Ok(values), Err)
}

impl Drop for Party<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.running -= 1;
        if !self.entered {
            state.failed = true;
        }
        if state.running == 0 && state.missing == 0 {
            state.allocated = self.gate.counts_allocations.then(alloc::stop);
            state.usage = state.meter.map(|meter| meter.stop());
        }
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
