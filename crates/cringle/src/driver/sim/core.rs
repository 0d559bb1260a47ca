//! What a world is made of besides the run that is in it: its choices, clock, files, and what the
//! checkers have found.

use super::checker::Checker;
use super::files::{Files, Image};
use super::options::{Fault, Faults, Options};
use super::rng::{Rng, mix};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

thread_local! {
    /// The world whose run this thread is in.
    static HERE: Cell<Option<NonNull<Mutex<Core>>>> = const { Cell::new(None) };
}

pub(super) fn enter_thread(core: &Arc<Mutex<Core>>) {
    HERE.set(Some(NonNull::from(&**core)));
    crate::sys::set_simulation_seed(Some(super::lock(core).seed));
}

pub(super) fn leave_thread() {
    HERE.set(None);
    crate::sys::set_simulation_seed(None);
}

/// With the world of this thread's simulated run, if it is in one.
pub(crate) fn with_here<R>(f: impl FnOnce(&mut Core) -> R) -> Option<R> {
    let core = HERE.get()?;
    // SAFETY: the address is that of a `Sim`'s core, which it keeps, and it is taken away when that
    // `Sim` goes, on this thread.
    Some(f(&mut super::lock(unsafe { core.as_ref() })))
}

/// Virtual time that a turn of the worker takes: whoever spins for a time to pass sees it pass.
const TURN_NS: u64 = 100;

/// See the module.
pub(crate) struct Core {
    pub(crate) seed: u64,
    pub(super) options: Options,
    pub(super) rng: Rng,
    base: Instant,
    pub(super) now_ns: u64,
    /// Those that are on, and how rare each is: once in so many chances.
    faults: Faults,
    rarity: [u32; Fault::ALL.len()],
    pub(super) faults_until_ns: u64,
    pub(crate) files: Files,
    turns: u64,
    turn_limit: u64,
    /// Ops performed in this run, and after which of them the power is lost.
    performed: u64,
    pub(crate) power_lasts: Option<u64>,
    /// What is left of the files since the power is gone.
    pub(crate) wreck: Option<Vec<Image>>,
    pub(crate) stats: Stats,
    pub(crate) failure: Option<(Checker, String)>,
    #[cfg(any(test, feature = "sabotage"))]
    pub(crate) sabotage: Option<super::Sabotage>,
}

/// What a simulation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Operations that were performed.
    pub operations: u64,
    /// Operations in flight that were asked to be given up.
    pub cancels: u64,
    /// Faults that were injected, of all kinds.
    pub faults: u64,
    /// Of each kind, in the order of [`Fault::ALL`].
    pub by_fault: [u64; Fault::ALL.len()],
    /// A hash over every choice, operation, result and moment: the same for the same seed.
    pub trace: u64,
}

impl Core {
    pub(crate) fn new(seed: u64, options: &Options) -> Core {
        let mut rng = Rng::stream(seed, "driver");
        let faults = match options.swarm {
            true => options.faults.drawn(&mut Rng::stream(seed, "swarm")),
            false => options.faults,
        };
        let rarity = std::array::from_fn(|_| 4 << rng.below(5));
        let until = options.faults_for.map_or(u64::MAX, nanos);
        Core {
            seed,
            options: options.clone(),
            rng,
            base: Instant::now(),
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

    pub(super) fn begin_run(&mut self) {
        self.turns = 0;
        self.turn_limit = self.options.turn_limit;
        self.performed = 0;
    }

    pub(crate) fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.now_ns)
    }

    /// A moment of the virtual clock as nanoseconds of it.
    pub(super) fn at_ns(&self, at: Instant) -> u64 {
        // Rounded up: a timer is never early.
        nanos(at.saturating_duration_since(self.base))
    }

    /// Since the world was made.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    /// One more turn of the worker. False when there have been too many.
    pub(super) fn turn(&mut self) -> bool {
        self.now_ns = self.now_ns.saturating_add(TURN_NS);
        self.turns += 1;
        if self.turns <= self.turn_limit {
            return true;
        }
        // The fibers get as many to end in.
        self.turn_limit = self.turns + self.options.turn_limit;
        false
    }

    /// Whether this goes wrong now.
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

    /// How long the next op takes; `None` where all take the same and end in order.
    pub(super) fn latency_ns(&mut self) -> Option<u64> {
        let (least, most) =
            (nanos(*self.options.latency.start()), nanos(*self.options.latency.end()));
        if !self.faults.has(Fault::Reorder) || self.now_ns >= self.faults_until_ns {
            return None;
        }
        let drawn = self.rng.magnitude(least, most);
        Some(if self.draw(Fault::Slow) { drawn.saturating_mul(100) } else { drawn })
    }

    /// A latency for who does not mind the order.
    pub(super) fn any_latency_ns(&mut self) -> u64 {
        let (least, most) =
            (nanos(*self.options.latency.start()), nanos(*self.options.latency.end()));
        self.rng.magnitude(least, most)
    }

    /// One more op is performed: the power may be lost with it.
    pub(super) fn count_op(&mut self) -> bool {
        self.stats.operations += 1;
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

    /// Whether the writes of this world may be seen by a crash before they are synced.
    pub(super) fn draw_writeback(&mut self) -> Option<&mut Rng> {
        self.draw(Fault::Writeback).then_some(&mut self.rng)
    }

    /// Takes something into the trace. Nothing that differs from run to run may come here.
    pub(super) fn note(&mut self, kind: u64, what: u64, result: i64) {
        let words = [kind, what, result as u64, self.now_ns];
        self.stats.trace = words.into_iter().fold(self.stats.trace, |hash, word| {
            mix(hash.rotate_left(23) ^ word).wrapping_add(word)
        });
    }

    /// A check has failed. The first one is told.
    pub(crate) fn fail(&mut self, checker: Checker, message: impl Into<String>) {
        if self.failure.is_none() {
            self.failure = Some((checker, message.into()));
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

/// What a world asks of it between the runs.
impl Core {
    pub(crate) fn draw_power_loss(&mut self) {
        self.power_lasts = Some(self.rng.magnitude(1, 4096));
    }

    pub(crate) fn crash(&mut self) {
        let wreck = self.files.draw_wreck(&mut self.rng);
        self.note(6, wreck.len() as u64, 0);
        if let Err(e) = self.files.restore(wreck) {
            self.fail(Checker::Setup, format!("the files cannot be restored: {e}"));
        }
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    pub(crate) fn stop_faults(&mut self) {
        self.faults_until_ns = 0;
    }

    /// The main fiber has panicked; after the power was lost that is nothing to tell.
    pub(crate) fn note_panic(&mut self, message: &str) {
        if self.has_power() {
            self.fail(Checker::Panic, message);
        }
    }
}
