//! The options of a simulation: its faults and limits.

use super::rng::Rng;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The most workers of a run.
const MAX_WORKERS: usize = 64;

/// A row for each fault: whether the library handles it, so that a program notices only its timing.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident $is_hidden:literal;)*) => {
        /// A fault that a kernel, a disk or a peer may produce, and that programs should survive.
        ///
        /// ```
        /// use cringle::sim::{Fault, Faults};
        ///
        /// let full_disk = Faults::hidden().with(Fault::NoSpace);
        /// assert!(full_disk.has(Fault::NoSpace) && !full_disk.has(Fault::InputOutput));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        impl Fault {
            /// All faults.
            ///
            /// ```
            /// use cringle::sim::{self, Fault};
            ///
            /// let stats = sim::run(7, &sim::Options::new(), || ())?.stats;
            /// for (fault, count) in Fault::ALL.iter().zip(stats.by_fault) {
            ///     println!("{fault:?}: {count}");
            /// }
            /// # Ok::<(), sim::Failure>(())
            /// ```
            pub const ALL: [Fault; 16] = [$(Fault::$fault),*];

            const IS_HIDDEN: [bool; Fault::ALL.len()] = [$($is_hidden),*];
        }
    };
}

faults! {
    /// Operations end in another order than they were submitted.
    Reorder true;
    /// An operation takes a hundred times as long as drawn.
    Slow true;
    /// Fewer bytes are moved than requested.
    ShortTransfer true;
    /// No bytes are moved, without an error.
    ZeroTransfer false;
    /// `EINTR`.
    Interrupted false;
    /// `EAGAIN` for an operation that need not wait, as XFS sometimes returns.
    WouldBlock true;
    /// `EIO`; a part of a write may be done. A sync that fails loses pages that it could not write,
    /// as on Linux: a later sync succeeds, but does not write them unless they were written to
    /// again. It fails once for each open file.
    InputOutput false;
    /// `ENOSPC`.
    NoSpace false;
    /// `ECONNRESET` on a connected socket, which stays dead.
    ConnectionReset false;
    /// The kernel cancels an operation that no caller cancelled.
    SpuriousCancel true;
    /// A cancel finds its operation about to run and must be repeated; or another errno than
    /// `ECANCELED` reports the cancel.
    CancelRace true;
    /// The queue has no room for another operation now.
    QueueFull true;
    /// The kernel consumes only a part of the submitted entries.
    PartialSubmit true;
    /// The completion queue is full: further entries arrive with the next call into the kernel.
    CompletionOverflow true;
    /// A call into the kernel does nothing (`EINTR`, `EAGAIN`, `EBUSY`), or returns before a
    /// completion has arrived.
    EarlyReturn true;
    /// Some sectors of bytes that were not synced reach the disk. This shows only when
    /// [the power is lost](crate::World::crash). With
    /// [`InputOutput`](Fault::InputOutput) this may also fail, which the next sync reports.
    Writeback true;
}

impl Fault {
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
    /// No faults: only the latencies vary.
    ///
    /// ```
    /// assert_eq!(cringle::sim::Faults::none().iter().count(), 0);
    /// ```
    pub const fn none() -> Faults {
        Faults(0)
    }

    /// All faults. Code under test must handle I/O errors then.
    ///
    /// ```
    /// use cringle::sim::{Fault, Faults};
    ///
    /// assert!(Faults::all().iter().eq(Fault::ALL));
    /// ```
    pub fn all() -> Faults {
        Fault::ALL.into_iter().fold(Faults::none(), Faults::with)
    }

    /// The faults that return no error: order, delays, short counts, full queues. Code that loops
    /// over short counts, as `read_exact` and `write_all` do, passes unchanged.
    ///
    /// ```
    /// use cringle::sim::{self, Faults, Options};
    /// use cringle::{fs::File, io::Write};
    ///
    /// // Each write may be short, late or repeated, but none fails.
    /// let options = Options::new().faults(Faults::hidden());
    /// sim::each(0..20, |seed| {
    ///     sim::run(seed, &options, || File::create("/log")?.write_all(&[7; 9999]))?.value.unwrap();
    ///     Ok(())
    /// });
    /// ```
    pub fn hidden() -> Faults {
        let hidden = Fault::ALL.into_iter().filter(|&fault| Fault::IS_HIDDEN[fault as usize]);
        hidden.fold(Faults::none(), Faults::with)
    }

    /// A subset of all faults, drawn by the seed: with all faults on, one may mask the bug that
    /// another reveals.
    ///
    /// ```
    /// use cringle::sim::Faults;
    ///
    /// let first = Faults::swarm(1);
    /// assert_eq!(first, Faults::swarm(1));
    /// assert!((2..100).any(|seed| Faults::swarm(seed) != first));
    /// ```
    pub fn swarm(seed: u64) -> Faults {
        Faults::all().drawn(&mut Rng::stream(seed, "swarm"))
    }

    /// The set with this fault.
    ///
    /// ```
    /// use cringle::sim::{Fault, Faults};
    ///
    /// let full_or_failing = Faults::none().with(Fault::NoSpace).with(Fault::InputOutput);
    /// assert_eq!(full_or_failing.iter().count(), 2);
    /// ```
    #[must_use]
    pub fn with(self, fault: Fault) -> Faults {
        Faults(self.0 | fault.bit())
    }

    /// The set without this fault.
    ///
    /// ```
    /// use cringle::sim::{Fault, Faults};
    ///
    /// // The code under test has no network.
    /// let faults = Faults::all().without(Fault::ConnectionReset);
    /// assert_eq!(faults.iter().count(), Fault::ALL.len() - 1);
    /// ```
    #[must_use]
    pub fn without(self, fault: Fault) -> Faults {
        Faults(self.0 & !fault.bit())
    }

    /// Whether the fault is in the set.
    ///
    /// ```
    /// use cringle::sim::{Fault, Faults};
    ///
    /// assert!(Faults::hidden().has(Fault::ShortTransfer));
    /// assert!(!Faults::hidden().has(Fault::NoSpace));
    /// ```
    pub fn has(self, fault: Fault) -> bool {
        self.0 & fault.bit() != 0
    }

    /// The faults in the set.
    ///
    /// ```
    /// use cringle::sim::Faults;
    ///
    /// for fault in Faults::swarm(7).iter() {
    ///     println!("seed 7 may have {fault:?}");
    /// }
    /// ```
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.into_iter().filter(move |&fault| self.has(fault))
    }

    pub(super) fn drawn(self, rng: &mut Rng) -> Faults {
        self.iter().filter(|_| rng.one_in(2)).fold(Faults::none(), Faults::with)
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The behaviour of a simulation.
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
    pub(super) workers: usize,
}

default_by_new!(Options);

impl Options {
    /// No faults; each operation takes 10 µs to 1 ms.
    ///
    /// ```
    /// use cringle::sim::{self, Options};
    ///
    /// assert_eq!(sim::run(7, &Options::new(), || 6 * 7)?.value, 42);
    /// # Ok::<(), sim::Failure>(())
    /// ```
    pub fn new() -> Options {
        Options {
            faults: Faults::none(),
            swarm: false,
            latency: Duration::from_micros(10)..=Duration::from_millis(1),
            faults_for: None,
            in_flight_limit: 4032,
            turn_limit: 10_000_000,
            workers: 1,
        }
    }
}

setters! {
    Options:
    /// Sets the faults that may occur (default: none).
    ///
    /// ```
    /// use cringle::sim::{self, Fault, Faults, Options};
    /// use cringle::{fs::File, io::Write};
    ///
    /// let full_disk = Options::new().faults(Faults::none().with(Fault::NoSpace));
    /// sim::each(0..20, |seed| {
    ///     let wrote = || File::create("/log")?.write_all(b"entry");
    ///     if let Err(error) = sim::run(seed, &full_disk, wrote)?.value {
    ///         assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    ///     }
    ///     Ok(())
    /// });
    /// ```
    pub fn faults(faults: Faults) |it| it.faults = faults;

    /// Sets whether each seed also draws a subset of the faults (default: no).
    ///
    /// ```
    /// use cringle::sim::{Faults, Options, World};
    ///
    /// let options = Options::new().faults(Faults::all()).swarm(true);
    /// assert_eq!(World::new(7, &options).faults(), Faults::swarm(7));
    /// ```
    pub fn swarm(swarm: bool) |it| it.swarm = swarm;

    /// Sets the range of an operation's duration in virtual time. Small values are drawn more
    /// often.
    ///
    /// ```
    /// use cringle::{fs::File, sim};
    /// use std::time::Duration;
    ///
    /// // A slow disk.
    /// let (least, most) = (Duration::from_millis(10), Duration::from_secs(2));
    /// let options = sim::Options::new().latency(least..=most);
    /// let report = sim::run(7, &options, || File::create("/log")?.sync_all())?;
    /// assert!(report.elapsed >= least);
    /// # Ok::<(), sim::Failure>(())
    /// ```
    pub fn latency(latency: RangeInclusive<Duration>) |it| it.latency = latency;

    /// Stops all faults after this much virtual time, so that a test can check that the program
    /// then ends. (Default: faults throughout.)
    ///
    /// ```
    /// use cringle::sim::{self, Faults, Options};
    /// use cringle::{fiber, fs::File, io::Write};
    /// use std::time::Duration;
    ///
    /// // With every fault for a minute, this program succeeds in the end.
    /// let options = Options::new().faults(Faults::all()).faults_for(Duration::from_secs(60));
    /// let attempt = || File::create("/log")?.write_all(b"entry");
    /// sim::run(7, &options, || {
    ///     while attempt().is_err() {
    ///         fiber::sleep(Duration::from_secs(1));
    ///     }
    /// })?;
    /// # Ok::<(), sim::Failure>(())
    /// ```
    pub fn faults_for(duration: Duration) |it| it.faults_for = Some(duration);

    /// Sets the number of operations that may be in flight at once, at least 1 (default: 4032).
    /// With a small limit, fibers wait for room.
    ///
    /// ```
    /// use cringle::{fiber, fs, sim};
    ///
    /// let options = sim::Options::new().in_flight_limit(2);
    /// sim::run(7, &options, || {
    ///     fiber::par_for_each(0..10, 10, |n| fs::write(format!("/{n}"), "text").unwrap());
    /// })?;
    /// # Ok::<(), sim::Failure>(())
    /// ```
    pub fn in_flight_limit(operations: u32) |it| it.in_flight_limit = operations.max(1);

    /// Sets the number of turns after which a run counts as a livelock (default: 10 million). In
    /// each turn every ready fiber runs once. With several workers it is the number of all turns,
    /// of which some are shorter.
    ///
    /// ```
    /// use cringle::sim::{self, Checker, Options};
    /// use cringle::{fiber, sync::Mutex};
    ///
    /// // It waits for a value that no fiber sets.
    /// let value = Mutex::new(0);
    /// let options = Options::new().turn_limit(1000);
    /// let endless = || {
    ///     while *value.lock().unwrap() == 0 {
    ///         fiber::yield_now();
    ///     }
    /// };
    /// assert_eq!(sim::run(7, &options, endless).unwrap_err().checker, Checker::Livelock);
    /// ```
    pub fn turn_limit(turns: u64) |it| it.turn_limit = turns;

    /// Sets the number of workers, at least 1 and at most 64 (default: 1). One runs at a time; the
    /// seed draws which one.
    ///
    /// ```
    /// use cringle::{runtime, sim};
    ///
    /// let options = sim::Options::new().workers(3);
    /// assert_eq!(sim::run(7, &options, runtime::workers)?.value, Some(3));
    /// # Ok::<(), sim::Failure>(())
    /// ```
    pub fn workers(workers: usize) |it| it.workers = workers.clamp(1, MAX_WORKERS);
}
