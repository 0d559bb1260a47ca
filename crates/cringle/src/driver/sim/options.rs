//! What may go wrong in a simulation, and its limits.

use super::rng::Rng;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Something that a kernel, a disk or a peer may do and programs should survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Fault {
    /// Operations end in another order than they were asked for.
    Reorder,
    /// An operation takes a hundred times as long as others.
    Slow,
    /// Fewer bytes are moved than were asked for.
    ShortTransfer,
    /// No bytes are moved, without an error.
    ZeroTransfer,
    /// `EINTR`.
    Interrupted,
    /// `EAGAIN` where nothing would have to wait, as XFS answers now and then.
    WouldBlock,
    /// `EIO`; of a write, a part may be done.
    InputOutput,
    /// `ENOSPC`.
    NoSpace,
    /// `ECONNRESET`: a connected socket's, which is dead from then on.
    ConnectionReset,
    /// The kernel gives an operation up that nobody cancelled.
    SpuriousCancel,
    /// A cancel finds its operation about to run, and has to be asked again; or another errno than
    /// `ECANCELED` says that it was given up.
    CancelRace,
    /// There is no room for another operation now.
    QueueFull,
    /// The kernel takes only a part of what is submitted.
    PartialSubmit,
    /// The completion queue is full: its entries come with the next call to the kernel.
    CompletionOverflow,
    /// A call to the kernel does nothing (`EINTR`, `EAGAIN`, `EBUSY`), or ends before anything came.
    EarlyReturn,
    /// Bytes that were not synced reach the disk early, by blocks; what that is worth shows when
    /// [the power is lost](crate::sim::World::crash).
    Writeback,
}

impl Fault {
    /// All there are.
    pub const ALL: [Fault; 16] = [
        Fault::Reorder,
        Fault::Slow,
        Fault::ShortTransfer,
        Fault::ZeroTransfer,
        Fault::Interrupted,
        Fault::WouldBlock,
        Fault::InputOutput,
        Fault::NoSpace,
        Fault::ConnectionReset,
        Fault::SpuriousCancel,
        Fault::CancelRace,
        Fault::QueueFull,
        Fault::PartialSubmit,
        Fault::CompletionOverflow,
        Fault::EarlyReturn,
        Fault::Writeback,
    ];

    /// Those that a program notices only by its timing: the library deals with them.
    const HIDDEN: [Fault; 11] = [
        Fault::Reorder,
        Fault::Slow,
        Fault::ShortTransfer,
        Fault::WouldBlock,
        Fault::SpuriousCancel,
        Fault::CancelRace,
        Fault::QueueFull,
        Fault::PartialSubmit,
        Fault::CompletionOverflow,
        Fault::EarlyReturn,
        Fault::Writeback,
    ];

    fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// A set of [`Fault`]s.
///
/// ```
/// use cringle::sim::{Fault, Faults};
///
/// let faults = Faults::all().without(Fault::InputOutput);
/// assert!(faults.has(Fault::NoSpace) && !faults.has(Fault::InputOutput));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Faults(u32);

impl Faults {
    /// None: only the latencies vary.
    pub const fn none() -> Faults {
        Faults(0)
    }

    /// All of them. Code under test meets I/O errors then, and has to deal with them.
    pub fn all() -> Faults {
        Fault::ALL.into_iter().fold(Faults::none(), Faults::with)
    }

    /// Those that no error tells of: order, delays, short counts, full queues. Code that loops over
    /// short counts, as `read_exact` and `write_all` do, needs no change to pass.
    pub fn hidden() -> Faults {
        Fault::HIDDEN.into_iter().fold(Faults::none(), Faults::with)
    }

    /// Each fault or not, by the seed: what is masked when everything goes wrong at once shows when
    /// some of it does not.
    pub fn swarm(seed: u64) -> Faults {
        Faults::all().drawn(&mut Rng::stream(seed, "swarm"))
    }

    /// With this one, too.
    #[must_use]
    pub fn with(self, fault: Fault) -> Faults {
        Faults(self.0 | fault.bit())
    }

    /// Without this one.
    #[must_use]
    pub fn without(self, fault: Fault) -> Faults {
        Faults(self.0 & !fault.bit())
    }

    /// Whether it is in the set.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & fault.bit() != 0
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.into_iter().filter(move |&fault| self.has(fault))
    }

    pub(super) fn drawn(self, rng: &mut Rng) -> Faults {
        self.iter().fold(Faults::none(), |drawn, fault| match rng.one_in(2) {
            true => drawn.with(fault),
            false => drawn,
        })
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// How a simulation behaves.
///
/// ```
/// use cringle::sim::{Faults, Options};
/// use std::time::Duration;
///
/// let options = Options::new()
///     .faults(Faults::all())
///     .swarm(true)
///     .latency(Duration::from_micros(5)..=Duration::from_millis(20))
///     .faults_for(Duration::from_secs(1));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct Options {
    pub(super) faults: Faults,
    pub(super) swarm: bool,
    pub(super) latency: RangeInclusive<Duration>,
    pub(super) faults_for: Option<Duration>,
    pub(super) in_flight_limit: u32,
    pub(super) turn_limit: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// No faults; each operation takes 10 µs to 1 ms.
    pub fn new() -> Options {
        Options {
            faults: Faults::none(),
            swarm: false,
            latency: Duration::from_micros(10)..=Duration::from_millis(1),
            faults_for: None,
            in_flight_limit: 4032,
            turn_limit: 10_000_000,
        }
    }

    /// What may go wrong.
    pub fn faults(mut self, faults: Faults) -> Options {
        self.faults = faults;
        self
    }

    /// Whether each seed also draws which of the faults are on (default: no).
    pub fn swarm(mut self, swarm: bool) -> Options {
        self.swarm = swarm;
        self
    }

    /// How long an operation takes, in virtual time: small values are drawn more often.
    pub fn latency(mut self, latency: RangeInclusive<Duration>) -> Options {
        self.latency = latency;
        self
    }

    /// After so much virtual time nothing goes wrong any more: what was begun must then come to an
    /// end. (Default: faults all along.)
    pub fn faults_for(mut self, duration: Duration) -> Options {
        self.faults_for = Some(duration);
        self
    }

    /// Operations that may be in flight at once, at least 1 (default: 4032): a small limit makes
    /// fibers wait for room.
    pub fn in_flight_limit(mut self, operations: u32) -> Options {
        self.in_flight_limit = operations.max(1);
        self
    }

    /// Turns of the worker after which a run counts as a livelock (default: 10 million). In each
    /// turn every fiber that is ready runs once.
    pub fn turn_limit(mut self, turns: u64) -> Options {
        self.turn_limit = turns;
        self
    }
}
