//! `run`: from the caller's thread to workers and back, leaving nothing behind.

use super::diagnostics::dump;
use super::diagnostics::watchdog::{self, Watchdog};
use super::driver_choice::{DriverChoice, NoRing, Plan};
use super::label::Origin;
use super::overflow;
use super::shared::{Shared, Unstarted};
use super::stack::{DEFAULT_STACK_BYTES, MAIN_STACK_BYTES, StackPool};
use super::worker::Worker;
use crate::driver::epoll::Pools;
use crate::driver::uring::{Feature, Features, survive_seccomp};
use crate::driver::{Driver, Epoll, Uring, UringOptions};
use crate::sys;
use crossbeam_deque::Worker as Deque;
use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Most workers of one `run`.
const MAX_WORKERS: usize = 1024;
/// The limits that a worker's ring is given unless the builder says otherwise.
const DEFAULT_RING_ENTRIES: u32 = 256;
const DEFAULT_IN_FLIGHT: u32 = 4032;
/// The largest completion queue has one entry more.
const MAX_IN_FLIGHT: u32 = 65_535;

#[cfg(feature = "sim")]
type SimCore = Arc<std::sync::Mutex<crate::driver::sim::Core>>;

/// The simulated world to run in, if it is one.
#[cfg(feature = "sim")]
#[derive(Clone)]
struct World(Option<SimCore>);

#[cfg(feature = "sim")]
impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("World").field(&self.0.is_some()).finish()
    }
}

/// Configures and starts a runtime; [`run`] is the one with the defaults.
///
/// ```
/// use cringle::fiber;
///
/// let sum = cringle::Builder::new().workers(2).run(|| {
///     let numbers: Vec<_> = (1..=10).map(|n| fiber::spawn(move || n * n)).collect();
///     numbers.into_iter().map(|handle| handle.join().unwrap()).sum::<u32>()
/// })?;
/// assert_eq!(sum, 385);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing runs until `run` is called"]
pub struct Builder {
    workers: Option<usize>,
    pin: bool,
    driver: DriverChoice,
    ring: UringOptions,
    overflow_handler: bool,
    is_open: bool,
    /// `None`: as the environment says.
    watchdog: Option<Option<Duration>>,
    #[cfg(feature = "sim")]
    world: World,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// The defaults: a worker for each core that the process may use, not pinned.
    pub fn new() -> Builder {
        let ring = UringOptions {
            entries: DEFAULT_RING_ENTRIES,
            in_flight_limit: DEFAULT_IN_FLIGHT,
            sqpoll: None,
            iopoll: false,
            features: Features::all(),
        };
        Builder {
            workers: None,
            pin: false,
            driver: DriverChoice::Auto,
            ring,
            overflow_handler: true,
            is_open: false,
            watchdog: None,
            #[cfg(feature = "sim")]
            world: World(None),
        }
    }

    /// How many workers: OS threads with a ring each, the calling thread being the first.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// Pins each worker to a core of its own, among those the process may use. Off by default:
    /// threads that a pinned worker starts inherit its core. The caller's cores are put back when
    /// `run` returns.
    pub fn pin(mut self, pin: bool) -> Builder {
        self.pin = pin;
        self
    }

    /// By what operations reach the kernel (default: [`DriverChoice::Auto`]). What they do is the same: it
    /// matters for speed, and to test with. [`runtime::driver`](crate::runtime::driver) tells which one it
    /// is, and why.
    ///
    /// ```
    /// use cringle::runtime::{self, Driver, DriverChoice};
    ///
    /// let builder = cringle::Builder::new().driver(DriverChoice::Epoll);
    /// builder.run(|| assert!(matches!(runtime::driver(), Driver::Epoll(why) if why.was_chosen())))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn driver(mut self, driver: DriverChoice) -> Builder {
        self.driver = driver;
        self
    }

    /// Entries of each ring's submission queue, 1 to 32768, rounded up to a power of two by the
    /// kernel (default: 256). When it is full, what is queued is submitted.
    pub fn ring_entries(mut self, entries: u32) -> Builder {
        self.ring.entries = entries;
        self
    }

    /// Operations that each worker may have in the kernel at once, 1 to 65535 (default: 4032). A
    /// fiber that asks for more waits its turn. The completion queue is sized to hold them all. What waits
    /// for a peer (a read of a pipe or a socket, [`io::ready`](crate::io::ready)) does not count.
    pub fn in_flight_limit(mut self, operations: u32) -> Builder {
        self.ring.in_flight_limit = operations;
        self
    }

    /// Has a kernel thread poll each submission queue (`IORING_SETUP_SQPOLL`), asleep after being
    /// idle for so long. It takes a core of its own to pay off.
    pub fn sqpoll(mut self, idle: Duration) -> Builder {
        self.ring.sqpoll = Some(idle);
        self
    }

    /// Does without a feature of the ring that the kernel may have: to see what it brings.
    pub fn without(mut self, feature: Feature) -> Builder {
        self.ring.features = self.ring.features.without(feature);
        self
    }

    /// Whether a fiber's stack overflow is reported, by a handler of `SIGSEGV` and `SIGBUS`
    /// (default: yes). The handler is installed once in a process and hands every other fault to
    /// the one before it. Without it an overflow still ends the process, by a bare `SIGSEGV`.
    pub fn overflow_handler(mut self, install: bool) -> Builder {
        self.overflow_handler = install;
        self
    }

    /// Has a fiber named, once and with where it was spawned, that has run for longer than this without being
    /// suspended: it keeps the other fibers of its worker waiting. A line on standard error says so; one that
    /// has ended before twice the time may go unnoticed. `None` watches nobody. (Default: what
    /// `CRINGLE_WATCHDOG` in the environment says, so many milliseconds or `off`; without it, 10 ms where
    /// debug assertions are on, else `None`.)
    ///
    /// It takes a thread, which looks four times in that time while fibers run, and ten times a second while
    /// none does. Fibers pay nothing. In a simulation there is none.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let builder = cringle::Builder::new().watchdog(Duration::from_millis(50));
    /// builder.run(|| ())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn watchdog(mut self, limit: impl Into<Option<Duration>>) -> Builder {
        self.watchdog = Some(limit.into());
        self
    }

    /// Has direct reads and writes of batches polled for, where the device can.
    pub(crate) fn iopoll(mut self, poll: bool) -> Builder {
        self.ring.iopoll = poll;
        self
    }

    /// Threads outside will start fibers in it.
    pub(crate) fn open_to_outside(mut self) -> Builder {
        self.is_open = true;
        self
    }

    /// Runs in this world, on one worker. It counts as open, so that no call takes the plain way of
    /// a fiber which nothing could run beside.
    #[cfg(feature = "sim")]
    pub(crate) fn simulated(core: &SimCore) -> Builder {
        let mut builder = Builder::new().workers(1).open_to_outside();
        builder.world = World(Some(Arc::clone(core)));
        builder
    }

    /// Runs `f` on a fiber of the calling thread, which is worker 0 meanwhile, and returns its
    /// value when nothing is left of the runtime: every fiber has ended, every operation of the
    /// kernel is done, all descriptors and mappings are given back. Fibers that are still there
    /// when `f` returns are cancelled and waited for.
    ///
    /// `f` has a stack of 8 MiB, or what `RUST_MIN_STACK` says if that is more.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a limit that is out of its range, and for a `CRINGLE_DRIVER` or `CRINGLE_WATCHDOG`
    /// in the environment that means nothing; else what the system refused (a thread, a stack, a ring where nothing else
    /// will do), with the remedy. `f` has not run then.
    ///
    /// # Panics
    ///
    /// When called within a `run`; and with `f`'s own panic, once all has ended.
    #[track_caller]
    pub fn run<F, T>(self, f: F) -> io::Result<T>
    where
        F: FnOnce() -> T,
    {
        assert!(
            Worker::here().is_none(),
            "`cringle::run` was called within a `run`: call the code directly, or spawn a fiber"
        );
        self.validate()?;
        crate::trace::start_from_environment()?;
        super::unwinding::install_hook();
        if self.overflow_handler {
            overflow::install_handler();
        }
        let cpus = sys::allowed_cpus();
        let _affinity = self.pin.then(|| RestoreAffinity(cpus.clone()));
        let (mut f, origin) = (Some(f), Location::caller());
        let plan = self.plan()?;
        let mut builder = self;
        builder.watchdog = Some(builder.watchdog_limit()?);
        let result = match plan {
            Plan::Epoll(why) => builder.run_on(&cpus, Some(why), origin, &mut f),
            Plan::Rings { or_epoll } => match builder.run_on_rings(&cpus, origin, &mut f) {
                Err(Refused::Ring(e)) if or_epoll => {
                    builder.run_on(&cpus, Some(NoRing::refused(&e)), origin, &mut f)
                }
                result => result,
            },
        };
        Ok(result?)
    }

    fn watchdog_limit(&self) -> io::Result<Option<Duration>> {
        match self.watchdog {
            _ if self.is_simulated() => Ok(None),
            Some(limit) => Ok(limit),
            None => watchdog::limit_of_environment(),
        }
    }

    fn plan(&self) -> io::Result<Plan> {
        match self.is_simulated() {
            true => Ok(Plan::Rings { or_epoll: false }),
            false => self.driver.plan(),
        }
    }

    fn run_on_rings<F, T>(
        &self,
        cpus: &[usize],
        origin: Origin,
        f: &mut Option<F>,
    ) -> Result<T, Refused>
    where
        F: FnOnce() -> T,
    {
        if !self.is_simulated() {
            survive_seccomp().map_err(Refused::Ring)?;
        }
        self.run_on(cpus, None, origin, f)
    }

    fn is_simulated(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.world.0.is_some();
        #[cfg(not(feature = "sim"))]
        return false;
    }

    /// One attempt, with rings or without. What `f` is, is taken when all workers are there.
    fn run_on<F, T>(
        &self,
        cpus: &[usize],
        no_ring: Option<NoRing>,
        origin: Origin,
        f: &mut Option<F>,
    ) -> Result<T, Refused>
    where
        F: FnOnce() -> T,
    {
        let count = self.workers.unwrap_or(cpus.len()).clamp(1, MAX_WORKERS);
        let deques: Vec<Deque<Unstarted>> = (0..count).map(|_| Deque::new_fifo()).collect();
        let stealers = deques.iter().map(Deque::stealer).collect();
        let (shared, bells) = Shared::new(stealers, cpus, self.pin, self.is_open, no_ring)?;
        let shared = Arc::new(shared);
        let _listed = dump::list(&shared);
        let _watchdog = self.watchdog.flatten().and_then(|limit| Watchdog::start(&shared, limit));
        let mut seats = (0u32..).zip(deques).zip(bells).map(|((index, deque), bell)| Seat {
            index,
            deque,
            bell,
            shared: Arc::clone(&shared),
            options: self.ring.clone(),
            origin,
            #[cfg(feature = "sim")]
            world: self.world.clone(),
            cpu: self.pin.then(|| cpus[index as usize % cpus.len()]),
        });
        let first = seats.next().expect("there is a worker 0");
        crate::tracing_events::debug!(workers = count, rings = shared.no_ring().is_none(), "run");
        let result = std::thread::scope(|scope| {
            let mut started = Started::new(&shared);
            for seat in seats {
                started.start(scope, seat)?;
            }
            first.run_main(started, f)
        });
        crate::tracing_events::debug!("run has ended");
        crate::trace::flush_after_run();
        match result? {
            Ok(value) => Ok(value),
            Err(payload) => resume_unwind(payload),
        }
    }

    fn validate(&self) -> io::Result<()> {
        let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let (entries, limit) = (self.ring.entries, self.ring.in_flight_limit);
        if self.workers.is_some_and(|workers| workers == 0 || workers > MAX_WORKERS) {
            return invalid(format!("Builder::workers must be 1 to {MAX_WORKERS}"));
        }
        if entries == 0 || entries > 32_768 {
            return invalid(format!("Builder::ring_entries is {entries}, must be 1 to 32768"));
        }
        if limit == 0 || limit > MAX_IN_FLIGHT {
            return invalid(format!(
                "Builder::in_flight_limit is {limit}, must be 1 to {MAX_IN_FLIGHT}"
            ));
        }
        Ok(())
    }
}

/// Runs `f` on a fiber, with a worker for each core that the process may use, and returns its
/// value. See [`Builder::run`].
///
/// ```
/// let answer = cringle::run(|| cringle::fiber::spawn(|| 6 * 7).join().unwrap());
/// assert_eq!(answer, 42);
/// ```
///
/// # Panics
///
/// With `f`'s own panic; where the system refuses what the runtime needs, with the remedy, as
/// `std::thread::spawn` does ([`Builder::run`] reports it instead); and within another `run`.
#[track_caller]
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T,
{
    match Builder::new().run(f) {
        Ok(value) => value,
        Err(e) => panic!("cringle::run cannot start: {e}"),
    }
}

/// Gives the caller's thread its cores back.
struct RestoreAffinity(Vec<usize>);

impl Drop for RestoreAffinity {
    fn drop(&mut self) {
        // It had them before: that it may not have them any more (a changed cpuset) is no error of
        // the closure's.
        let _ = sys::set_affinity(&self.0);
    }
}

/// What kept a run from starting.
enum Refused {
    /// There may be another way.
    Ring(io::Error),
    Start(io::Error),
}

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Refused {
        Refused::Start(e)
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        match refused {
            Refused::Ring(e) | Refused::Start(e) => e,
        }
    }
}

/// What one worker is made of, on the way to its thread.
struct Seat {
    index: u32,
    deque: Deque<Unstarted>,
    bell: RawFd,
    shared: Arc<Shared>,
    options: UringOptions,
    origin: Origin,
    #[cfg(feature = "sim")]
    world: World,
    cpu: Option<usize>,
}

impl Seat {
    /// The worker, on the thread that will be it: a ring has one submitter.
    fn take(self) -> Result<Worker, Refused> {
        if let Some(cpu) = self.cpu {
            sys::set_affinity(&[cpu])?;
        }
        let driver = self.driver()?;
        let stacks = StackPool::with_reserve()?;
        Ok(Worker::new(self.index, self.shared, driver, self.deque, stacks))
    }

    fn driver(&self) -> Result<Driver, Refused> {
        #[cfg(feature = "sim")]
        if let World(Some(core)) = &self.world {
            return Ok(Driver::Sim(Box::new(crate::driver::sim::Sim::new(Arc::clone(core)))));
        }
        if self.shared.no_ring().is_none() {
            return Uring::new(&self.options, self.bell).map(Driver::Uring).map_err(Refused::Ring);
        }
        let (storage, unbounded) = (&self.shared.call_pool, &self.shared.unblock_pool);
        let pools = Pools { storage: Arc::clone(storage), unbounded: Arc::clone(unbounded) };
        let epoll = Epoll::new(self.bell, self.options.in_flight_limit, pools)?;
        Ok(Driver::Epoll(Box::new(epoll)))
    }

    /// Worker 0, on the caller's thread: runs `f`, then ends the runtime.
    fn run_main<F, T>(
        self,
        mut started: Started<'_, '_>,
        f: &mut Option<F>,
    ) -> Result<std::thread::Result<T>, Refused>
    where
        F: FnOnce() -> T,
    {
        let shared = Arc::clone(&self.shared);
        let origin = self.origin;
        let worker = self.take()?;
        let f = f.take().expect("a run starts once");
        let stack_bytes = MAIN_STACK_BYTES.max(min_stack_bytes());
        let outcome: Cell<Option<std::thread::Result<T>>> = Cell::new(None);
        let body = || {
            outcome.set(Some(crate::fiber::run_as_fiber("main", origin, f)));
            shared.stop();
        };
        // SAFETY: I2. `worker.run` below returns only when this fiber has ended.
        let main = unsafe { worker.start(stack_bytes, body) }?;
        let _ = main;
        started.all_there();
        let _signal_stack = overflow::SignalStack::ensure();
        run_to_the_end(&worker);
        shared.barrier.wait();
        worker.close();
        shared.unblock_pool.close();
        shared.call_pool.close();
        Ok(outcome.take().expect("the main fiber has ended"))
    }

    /// Another worker, on its own thread.
    fn run_thread(self, told: std::sync::mpsc::Sender<Result<(), Refused>>) {
        let shared = Arc::clone(&self.shared);
        let worker = match self.take() {
            Ok(worker) => worker,
            Err(e) => return drop(told.send(Err(e))),
        };
        drop(told.send(Ok(())));
        let _signal_stack = overflow::SignalStack::ensure();
        run_to_the_end(&worker);
        if !shared.was_abandoned() {
            shared.barrier.wait();
        }
        worker.close();
    }
}

/// Nothing unwinds out of here: fibers catch their panics. If the scheduler itself did, frames that
/// the kernel writes to would be lost with it.
fn run_to_the_end(worker: &Worker) {
    if catch_unwind(AssertUnwindSafe(|| worker.run())).is_err() {
        crate::sys::report(format_args!("a worker panicked outside of any fiber; aborting"));
        std::process::abort();
    }
}

/// The worker threads that have been started; if it is dropped before all are there, they end.
///
/// They are joined, not only waited for as a scope does: when `run` returns, their stacks and what
/// the allocator keeps for each thread can be the next run's.
struct Started<'s, 'scope> {
    shared: &'s Arc<Shared>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    armed: bool,
}

impl<'s, 'scope> Started<'s, 'scope> {
    fn new(shared: &'s Arc<Shared>) -> Self {
        Started { shared, threads: Vec::new(), armed: true }
    }

    fn start(
        &mut self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        seat: Seat,
    ) -> Result<(), Refused> {
        let (told, hear) = std::sync::mpsc::channel();
        let name = format!("cringle-{}", seat.index);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, move || seat.run_thread(told))
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start a worker thread: {e}")))?;
        self.threads.push(thread);
        hear.recv().expect("a worker tells how its start went")
    }

    fn all_there(&mut self) {
        self.armed = false;
    }
}

impl Drop for Started<'_, '_> {
    fn drop(&mut self) {
        if self.armed {
            self.shared.abandon();
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("a worker thread does not unwind");
        }
    }
}

/// `RUST_MIN_STACK`, which raises the stacks that std's threads get too.
pub(crate) fn min_stack_bytes() -> usize {
    static BYTES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *BYTES.get_or_init(|| {
        std::env::var("RUST_MIN_STACK").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    })
}

/// Refuses a size of stack that no system could grant.
pub(crate) fn check_stack_bytes(bytes: usize) -> io::Result<()> {
    super::stack::check_size(bytes)
}

/// The stack of a fiber whose builder names none.
pub(crate) fn default_stack_bytes() -> usize {
    DEFAULT_STACK_BYTES.max(min_stack_bytes())
}
