//! The part of a world that outlives its runs: choices, clock, files, and the findings of the
//! checkers.

use super::baton::Baton;
use super::checker::Checker;
use super::files::{Files, Image};
use super::options::{Fault, Faults, Options};
use super::rng::{Rng, mix};
use cringle_sys::lock::Mutex;
use cringle_sys::plainly;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// The world of the simulated run that this thread is in.
    static HERE: Cell<Option<NonNull<Mutex<Core>>>> = const { Cell::new(None) };
}

pub(super) fn enter_thread(core: &Arc<Mutex<Core>>) {
    HERE.set(Some(NonNull::from(&**core)));
    cringle_sys::simulated::set_report_seed(Some(super::lock(core).seed));
}

pub(super) fn leave_thread() {
    HERE.set(None);
    cringle_sys::simulated::set_report_seed(None);
}

/// Calls `f` with the world of this thread's simulated run, if the thread is in one.
pub(super) fn with_here<R>(f: impl FnOnce(&mut Core) -> R) -> Option<R> {
    let core = HERE.get()?;
    // SAFETY: I9, no stale address. `enter_thread` stored the address of the core of a `Sim` on
    // this thread, which owns a reference to it. The `Sim` is dropped on this thread, too, and
    // removes the address first.
    let mut core = super::lock(unsafe { core.as_ref() });
    // Its files are std's.
    Some(plainly(|| f(&mut core)))
}

/// The virtual time that a turn takes, so that time passes for a fiber that spins.
const TURN_NS: u64 = 100;

/// See the module.
pub(crate) struct Core {
    pub(crate) seed: u64,
    pub(super) options: Options,
    pub(super) rng: Rng,
    pub(super) baton: Baton,
    base: Instant,
    pub(super) now_ns: u64,
    /// The faults that are on, and the rarity of each: one in this number of chances.
    faults: Faults,
    rarity: [u32; Fault::ALL.len()],
    pub(super) faults_until_ns: u64,
    pub(crate) files: Files,
    turns: u64,
    turn_limit: u64,
    /// The ops performed in this run, and the number of ops after which the power is lost.
    performed: u64,
    pub(crate) power_lasts: Option<u64>,
    /// What the loss of power left of the files.
    pub(crate) wreck: Option<Vec<Image>>,
    pub(crate) stats: Stats,
    pub(crate) failure: Option<(Checker, String)>,
    #[cfg(any(test, feature = "sabotage"))]
    pub(crate) sabotage: Option<super::Sabotage>,
}

/// The counters of a simulation.
///
/// ```
/// use cringle::sim::{self, Fault, Faults, Options};
///
/// let options = Options::new().faults(Faults::hidden());
/// let run = || sim::run(7, &options, || cringle::fs::write("/log", [7; 9999]));
/// let stats = run()?.stats;
/// assert!(stats.operations > 0);
/// println!("{} short writes", stats.by_fault[Fault::ShortTransfer as usize]);
/// assert_eq!(run()?.stats.trace, stats.trace);
/// # Ok::<(), sim::Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Operations performed.
    pub operations: u64,
    /// Cancels of operations in flight.
    pub cancels: u64,
    /// Faults injected, of all kinds.
    pub faults: u64,
    /// Faults injected of each kind, in the order of [`Fault::ALL`].
    pub by_fault: [u64; Fault::ALL.len()],
    /// A hash of every choice, operation, result and time: the same for the same seed.
    pub trace: u64,
}

impl Core {
    pub(crate) fn new(seed: u64, options: &Options) -> Core {
        let mut rng = Rng::stream(seed, "driver");
        let faults = if options.swarm {
            options.faults.drawn(&mut Rng::stream(seed, "swarm"))
        } else {
            options.faults
        };
        let rarity = std::array::from_fn(|_| 4 << rng.below(5));
        let until = options.faults_for.map_or(u64::MAX, nanos);
        Core {
            seed,
            options: options.clone(),
            rng,
            baton: Baton::new(seed),
            base: cringle_sys::now(),
            now_ns: 0,
            faults,
            rarity,
            faults_until_ns: until,
            files: Files::new(),
            turns: 0,
            turn_limit: options.turn_limit,
            performed: 0,
            power_lasts: None,
            wreck: None,
            stats: Stats::default(),
            failure: None,
            #[cfg(any(test, feature = "sabotage"))]
            sabotage: None,
        }
    }

    /// Begins a run, and returns the number of its workers.
    pub(crate) fn begin_run(&mut self) -> usize {
        self.baton.begin_run(self.options.workers);
        self.turns = 0;
        self.turn_limit = self.options.turn_limit;
        self.performed = 0;
        self.options.workers
    }

    /// Lets the workers of a run end that could not start.
    pub(super) fn abandon_run(&mut self) {
        self.baton.abandon();
    }

    /// Notes what the fibers of a worker wait for, because the run has halted. Returns the waits of
    /// all workers when the last one has listed its own.
    pub(super) fn list_waits(&mut self, worker: usize, waits: String) -> Option<String> {
        self.baton.describe(worker, waits)
    }

    pub(crate) fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.now_ns)
    }

    /// A time of the virtual clock in nanoseconds.
    pub(super) fn at_ns(&self, at: Instant) -> u64 {
        // Rounded up: a timer is never early.
        nanos(at.saturating_duration_since(self.base))
    }

    /// The virtual time since the world was made.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    /// Counts a turn of the worker. Returns false if there were too many.
    pub(super) fn turn(&mut self) -> bool {
        self.now_ns = self.now_ns.saturating_add(TURN_NS);
        self.turns += 1;
        if self.turns <= self.turn_limit {
            return true;
        }
        // The cancelled fibers get the same number of turns to end.
        self.turn_limit = self.turns + self.options.turn_limit;
        false
    }

    /// Draws whether this fault occurs now.
    pub(super) fn draw(&mut self, fault: Fault) -> bool {
        if !self.faults.has(fault) || self.now_ns >= self.faults_until_ns {
            return false;
        }
        let drawn = self.rng.one_in(self.rarity[fault as usize].into());
        if drawn {
            self.stats.faults += 1;
            self.stats.by_fault[fault as usize] += 1;
            self.note(1, fault as u64, 0);
        }
        drawn
    }

    /// Draws how long the next op takes; `None` if ops end in order.
    pub(super) fn latency_ns(&mut self) -> Option<u64> {
        let (least, most) =
            (nanos(*self.options.latency.start()), nanos(*self.options.latency.end()));
        if !self.faults.has(Fault::Reorder) || self.now_ns >= self.faults_until_ns {
            return None;
        }
        let drawn = self.rng.magnitude(least, most);
        Some(if self.draw(Fault::Slow) { drawn.saturating_mul(100) } else { drawn })
    }

    /// Draws a latency, whether or not ops end in order.
    pub(super) fn any_latency_ns(&mut self) -> u64 {
        let (least, most) =
            (nanos(*self.options.latency.start()), nanos(*self.options.latency.end()));
        self.rng.magnitude(least, most)
    }

    /// Counts a performed op. Returns whether the power is lost with it.
    pub(super) fn count_op(&mut self) -> bool {
        self.stats.operations += 1;
        self.baton.note_step();
        self.performed += 1;
        let lost =
            self.wreck.is_none() && self.power_lasts.is_some_and(|last| self.performed > last);
        if lost {
            self.wreck = Some(self.files.draw_wreck(&mut self.rng));
        }
        lost
    }

    pub(super) fn has_power(&self) -> bool {
        self.wreck.is_none()
    }

    /// Adds an event to the hash of the trace. Its values must not differ from run to run.
    pub(super) fn note(&mut self, kind: u64, what: u64, result: i64) {
        let words = [kind, what, result as u64, self.now_ns];
        self.stats.trace = words.into_iter().fold(self.stats.trace, |hash, word| {
            mix(hash.rotate_left(23) ^ word).wrapping_add(word)
        });
    }

    /// Records the failure of a check. The first one is reported.
    pub(crate) fn fail(&mut self, checker: Checker, message: impl Into<String>) {
        if self.failure.is_none() {
            self.failure = Some((checker, message.into()));
        }
    }

    /// The run can end only without the sabotage.
    #[cfg(any(test, feature = "sabotage"))]
    pub(super) fn end_sabotage(&mut self) {
        if self.is_sabotaged(super::Sabotage::WakeUpLost) {
            self.sabotage = None;
        }
    }

    #[cfg(any(test, feature = "sabotage"))]
    pub(super) fn is_sabotaged(&self, by: super::Sabotage) -> bool {
        self.sabotage == Some(by)
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The calls of a world between its runs.
impl Core {
    pub(crate) fn draw_power_loss(&mut self) {
        self.power_lasts = Some(self.rng.magnitude(1, 4096));
    }

    pub(crate) fn crash(&mut self) {
        let wreck = self.files.draw_wreck(&mut self.rng);
        self.note(6, wreck.len() as u64, 0);
        if let Err(e) = self.files.restore(wreck) {
            self.fail(Checker::Setup, format!("cannot restore the files: {e}"));
        }
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    pub(crate) fn stop_faults(&mut self) {
        self.faults_until_ns = 0;
    }

    /// Records a panic of the main fiber, which is a failure unless the power was lost.
    pub(crate) fn note_panic(&mut self, message: &str) {
        if self.has_power() {
            self.fail(Checker::Panic, message);
        }
    }
}
