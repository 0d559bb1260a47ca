//! The options of a run.

mod call;
mod choices;
mod environment;
mod internal;

pub(super) use environment::Plan;
pub use internal::InternalOptions;

pub(super) use cringle_core::choices::Balance;
use cringle_core::choices::DriverChoice;
pub(super) use cringle_core::choices::Threads;
use cringle_driver::Feature;
use cringle_driver::UringOptions;
use cringle_driver::simulation::World;
use cringle_tls::ThreadLocals;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const MAX_WORKERS: usize = 1024;
const MAX_RING_ENTRIES: u32 = 32_768;
/// The largest completion queue has one entry more.
const MAX_IN_FLIGHT: u32 = 65_535;
const DEFAULT_RING_ENTRIES: u32 = 256;
const DEFAULT_IN_FLIGHT: u32 = 4032;

/// Configures and starts a runtime. [`run`](crate::run::run) starts one with the defaults.
///
/// ```
/// use cringle::fiber;
///
/// let sum = cringle::Builder::new().workers(2).run(|| {
///     let numbers: Vec<_> = (1..=10).map(|n| fiber::spawn(move || n * n)).collect();
///     numbers.into_iter().map(|handle| handle.join().unwrap()).sum::<u32>()
/// })?;
/// assert_eq!(sum, 385);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing runs until `run` is called"]
pub struct Builder {
    /// `None`: the environment decides.
    workers: Option<usize>,
    pin: bool,
    driver: DriverChoice,
    ring: UringOptions,
    /// `None`: the environment decides.
    restrict_rings: Option<bool>,
    overflow_handler: bool,
    /// `None`: the environment decides.
    crash_text: Option<bool>,
    is_open: bool,
    /// `None`: the environment decides. `Some(None)`: no watchdog.
    watchdog: Option<Option<Duration>>,
    stubborn_reports: bool,
    /// `None`: the environment decides.
    thread_locals: Option<ThreadLocals>,
    /// `None`: the environment decides.
    threads: Option<Threads>,
    /// `None`: the environment decides.
    balance: Option<Balance>,
    world: Option<Arc<dyn World>>,
}

default_by_new!(Builder);

impl Builder {
    /// Returns the defaults: one worker for each core that the process may use, not pinned.
    ///
    /// ```
    /// let builder = cringle::Builder::new();
    /// assert_eq!(builder.run(|| 6 * 7)?, 42);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new() -> Builder {
        Builder {
            workers: None,
            pin: false,
            driver: DriverChoice::Auto,
            ring: UringOptions::new(DEFAULT_RING_ENTRIES, DEFAULT_IN_FLIGHT),
            restrict_rings: None,
            overflow_handler: true,
            crash_text: None,
            is_open: false,
            watchdog: None,
            stubborn_reports: true,
            thread_locals: None,
            threads: None,
            balance: None,
            world: None,
        }
    }
}

setters! {
    Builder:
    /// Sets the number of workers, 1 to 1024 (default: the environment variable `CRINGLE_WORKERS`,
    /// else one for each core). A worker is an OS thread with a ring; the calling thread is the
    /// first.
    ///
    /// ```
    /// use cringle::runtime;
    ///
    /// assert_eq!(cringle::Builder::new().workers(3).run(runtime::workers)?, Some(3));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers(workers: usize) |it| it.workers = Some(workers);

    /// Pins each worker to one of the cores that the process may use (default: no). Threads that a
    /// pinned worker starts inherit its core. `run` restores the caller's cores when it returns.
    ///
    /// ```
    /// use std::thread::available_parallelism;
    ///
    /// // Each worker runs on one core.
    /// let cores = cringle::Builder::new().pin(true).run(available_parallelism)??;
    /// assert_eq!(cores.get(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pin(pin: bool) |it| it.pin = pin;

    /// Chooses how operations reach the kernel (default: [`DriverChoice::Auto`]). Every driver
    /// gives the same results; the choice matters for speed and for tests.
    /// [`runtime::driver`](cringle_core::here::driver) returns the driver in use and the reason for
    /// it.
    ///
    /// ```
    /// use cringle::runtime::{self, Driver, DriverChoice};
    ///
    /// let builder = cringle::Builder::new().driver(DriverChoice::Epoll);
    /// builder.run(|| match runtime::driver() {
    ///     Driver::Epoll(why) => assert!(why.was_chosen()),
    ///     other => unreachable!("{other:?}"),
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn driver(driver: DriverChoice) |it| it.driver = driver;

    /// Sets the number of entries in each ring's submission queue, 1 to 32768 (default: 256). The
    /// kernel rounds it up to a power of two. A full queue is submitted at once. An operation that
    /// a kernel thread may perform (a write, a sync) takes two entries.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// // A batch of 1,024 reads is submitted by one call.
    /// let counts = cringle::Builder::new().ring_entries(1024).run(|| {
    ///     let file = File::open("/proc/self/exe")?;
    ///     let mut blocks = vec![[0; 16]; 1024];
    ///     let mut batch = Batch::new();
    ///     for (n, block) in (0..).zip(&mut blocks) {
    ///         batch.read(&file, block, n * 16);
    ///     }
    ///     batch.submit().into_iter().sum::<std::io::Result<usize>>()
    /// })??;
    /// assert_eq!(counts, 1024 * 16);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn ring_entries(entries: u32) |it| it.ring.entries = entries;

    /// Sets the number of operations that each worker may have in the kernel at once, 1 to 65535
    /// (default: 4032). Beyond it fibers wait for room, in order. The completion queue has twice as
    /// many entries, but at most 65536; completions that do not fit wait in the kernel. Operations
    /// that wait for a peer do not count: a read of a pipe or a socket,
    /// [`io::ready`](cringle_std::io::ready).
    ///
    /// ```
    /// use cringle::{fiber, fs};
    ///
    /// // A disk that is at its best with 16 requests: the other fibers wait.
    /// let sizes = cringle::Builder::new().in_flight_limit(16).run(|| {
    ///     fiber::join_all((0..100).map(|_| || fs::read("/proc/self/exe").map(|file| file.len())))
    /// })?;
    /// assert_eq!(sizes.len(), 100);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn in_flight_limit(operations: u32) |it| it.ring.in_flight_limit = operations;

    /// Lets a kernel thread poll each submission queue (`IORING_SETUP_SQPOLL`). The thread sleeps
    /// after it has been idle for this time. It pays off only with a core of its own.
    ///
    /// That thread may hold a file for some microseconds after an operation has ended, also beyond
    /// the file's close: until then its locks last, and running it as a program is `ETXTBSY`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// cringle::Builder::new().workers(1).sqpoll(Duration::from_millis(10)).run(|| ())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn sqpoll(idle: Duration) |it| it.ring.sqpoll = Some(idle);

    /// Disables a feature of the ring that the kernel may have, to measure what it brings.
    ///
    /// ```
    /// use cringle::runtime::{self, Driver, Feature};
    ///
    /// let driver = cringle::Builder::new().without(Feature::Futex).run(runtime::driver)?;
    /// if let Driver::Uring(features) = driver {
    ///     assert!(!features.has(Feature::Futex));
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn without(feature: Feature) |it| it.ring.features = it.ring.features.without(feature);

    /// Makes the kernel refuse what the library never asks of a ring (default: the environment
    /// variable `CRINGLE_RESTRICT`, `on` or `off`; without it `false`). This is
    /// `IORING_REGISTER_RESTRICTIONS` (Linux 5.10).
    ///
    /// A filter of system calls does not see what a ring does. A restricted ring performs the
    /// operations that `cringle doctor --container` lists, with the flags and registrations there.
    /// Everything else fails with `PermissionDenied` (`EACCES`), for example a raw entry of another
    /// kind. A ring keeps its restriction as long as it exists. The process can still make other
    /// rings.
    ///
    /// ```
    /// use cringle::runtime::{self, Driver};
    /// use cringle::fs;
    ///
    /// let builder = cringle::Builder::new().restrict_rings(true);
    /// let (driver, hosts) = builder.run(|| (runtime::driver(), fs::read("/etc/hosts")))?;
    /// assert!(matches!(driver, Driver::Uring(_) | Driver::Epoll(_)));
    /// # let _ = hosts;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a ring cannot be restricted, it is not used: the runtime falls back to epoll, and
    /// [`runtime::driver`](cringle_core::here::driver) returns the reason. With
    /// [`DriverChoice::Uring`], [`run`](Builder::run) returns it as an error.
    pub fn restrict_rings(restrict: bool) |it| it.restrict_rings = Some(restrict);

    /// Reports stack overflows of fibers by a handler of `SIGSEGV` and `SIGBUS` (default: yes). The
    /// handler is installed once in a process, and passes every other fault on to the handler
    /// before it. Without it an overflow still ends the process, by a bare `SIGSEGV`. `false` also
    /// disables the [`crash_text`](Self::crash_text), and leaves all signals alone.
    ///
    /// Each worker's thread has a guarded alternate signal stack of 64 KiB, also with `false`. If
    /// the caller of `run` has a larger one, that remains.
    ///
    /// ```
    /// // The program's own handler of SIGSEGV stays alone.
    /// cringle::Builder::new().overflow_handler(false).run(|| ())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn overflow_handler(install: bool) |it| it.overflow_handler = install;

    /// Prints the fiber on which the process dies by `SIGSEGV`, `SIGBUS` or `SIGABRT`, on standard
    /// error: its name, its worker, its stack and a backtrace of addresses, with the command that
    /// looks their names up. (A panic that aborts, and `process::abort`, are `SIGABRT`.) Then the
    /// process dies as it would have otherwise, with its core file.
    ///
    /// By default the environment variable `CRINGLE_CRASH_TEXT` decides, `on` or `off`; without it
    /// the text is printed.
    ///
    /// A handler of the program that was installed before `run` is called first, and wins: the text
    /// is printed only if the default action is in force after it. One that is installed later
    /// replaces this one. A signal outside of any fiber prints nothing. Once a run of the process
    /// has enabled the text, it stays enabled.
    ///
    /// ```
    /// cringle::Builder::new().crash_text(false).run(|| ())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn crash_text(print: bool) |it| it.crash_text = Some(print);

    /// Reports each fiber that runs longer than this without suspending, because the other fibers
    /// of its worker wait meanwhile. One line on standard error names the fiber and the place that
    /// spawned it, once. A fiber that suspends before twice the time may go unreported. `None`
    /// disables the watchdog.
    ///
    /// By default the environment variable `CRINGLE_WATCHDOG` decides, a number of milliseconds,
    /// `locks` or `off`. Without it the limit is 10 ms where debug assertions are on. Elsewhere
    /// only *locks* are watched: a fiber is reported if a lock of std or libc (a futex) blocks its
    /// worker for more than two seconds.
    ///
    /// The watchdog is a thread. It looks four times within the limit while fibers run, and ten
    /// times a second while none does; for locks alone, once a second. Fibers pay nothing for it. A
    /// simulation has no watchdog.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let builder = cringle::Builder::new().watchdog(Duration::from_millis(50));
    /// builder.run(|| ())?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn watchdog(limit: impl Into<Option<Duration>>) |it| it.watchdog = Some(limit.into());

    /// Chooses whose thread-locals fibers use (default: the environment variable
    /// `CRINGLE_THREAD_LOCALS`, `private` or `shared`; without it [`ThreadLocals::Private`]
    /// wherever fibers can have their own, and [`ThreadLocals::Shared`] elsewhere, for which
    /// [`why_shared`](cringle_core::why_shared) returns the reason).
    ///
    /// With [`ThreadLocals::Private`] a fiber that is started with `Send` bounds is to all code of
    /// the process a thread of its own, together with the fibers that it starts with
    /// [`spawn_local`](cringle_std::fiber::spawn_local()). So code that assumes a thread to do one
    /// thing at a time is right on it: a `RefCell` in a `thread_local!` may be borrowed over a
    /// wait, two fibers never hold `stdout().lock()` at once, `std::thread::current()` differs. The
    /// closure of `run` uses the thread-locals of the calling thread.
    ///
    /// The fiber runs the destructors of its thread-locals at its end, where they may wait. What
    /// the kernel keeps of a thread stays the worker's: the signal mask, the affinity, the name,
    /// namespaces, CPU clocks.
    ///
    /// It needs glibc 2.34 or later, linked dynamically, on x86-64 or aarch64. A program that
    /// relies on it chooses `Private`: [`run`](Builder::run) then returns `Unsupported` elsewhere.
    ///
    /// With [`ThreadLocals::Shared`] the fibers of a worker use those of its thread, and stay on
    /// it.
    ///
    /// ```
    /// use cringle::runtime::ThreadLocals;
    /// use cringle::fiber;
    /// use std::cell::Cell;
    ///
    /// thread_local! {
    ///     static COUNT: Cell<u32> = const { Cell::new(0) };
    /// }
    ///
    /// let builder = cringle::Builder::new().thread_locals(ThreadLocals::Private);
    /// let result = builder.run(|| {
    ///     COUNT.set(7);
    ///     fiber::spawn(|| COUNT.get()).join().unwrap()
    /// });
    /// match result {
    ///     Ok(count) => assert_eq!(count, 0),
    ///     Err(e) => eprintln!("{e}"),
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`run`](Builder::run) returns `Unsupported` if `Private` was chosen and fibers cannot have
    /// thread-locals of their own, and `InvalidInput` if `Shared` was chosen together with
    /// [`Balance::Moving`], or in a program that interposes libc's calls
    /// (`cringle_interpose::install!`).
    pub fn thread_locals(thread_locals: ThreadLocals) |it| it.thread_locals = Some(thread_locals);

    /// Chooses what a thread is that code of a fiber starts by `std::thread::spawn` or another way
    /// to libc's `pthread_create` (default: the environment variable `CRINGLE_THREADS`, `system` or
    /// `fibers`; without it [`Threads::System`]).
    ///
    /// With [`Threads::Fibers`] it is a fiber, which has thread-locals of its own and is to all
    /// code of the process a thread. So a crate that starts a thread for each connection gains what
    /// fibers give, unmodified. The choice needs a program that interposes libc's calls
    /// (`cringle_interpose::install!`). The book's chapter "Code that knows nothing of Cringle"
    /// says how such a thread differs from a thread of the system: above all, one that computes
    /// holds its worker, and `run` returns only when it has ended.
    ///
    /// ```
    /// use cringle::runtime::Threads;
    ///
    /// let result = cringle::Builder::new().threads(Threads::Fibers).run(|| {
    ///     std::thread::spawn(cringle::runtime::worker).join().unwrap()
    /// });
    /// match result {
    ///     Ok(worker) => assert!(worker.is_some()), // A fiber.
    ///     Err(e) => eprintln!("{e}"),              // libc's calls are not interposed.
    /// }
    /// ```
    pub fn threads(threads: Threads) |it| it.threads = Some(threads);

    /// Chooses whether started fibers move between workers (default: the environment variable
    /// `CRINGLE_BALANCE`, `moving` or `fixed`; without it [`Balance::Moving`] where fibers have
    /// [thread-locals of their own](Builder::thread_locals), and [`Balance::Fixed`] elsewhere).
    ///
    /// With [`Balance::Moving`], an idle worker takes ready fibers from one that has too much to
    /// do: a connection whose requests take long does not hold up the others that happen to share
    /// its worker. A fiber that was started with `Send` bounds may then continue on another thread
    /// of the system, as a thread continues on another core, and what it holds need not be `Send`:
    /// it has thread-locals of its own, which follow it. So do the local fibers with which it
    /// shares them.
    ///
    /// A fiber stays where it is, and the fibers with which it shares thread-locals by
    /// [`spawn_local`](cringle_std::fiber::spawn_local()),
    /// [`par_map`](cringle_std::fiber::par_map()) or the like stay with it,
    ///
    /// - while one of them waits for an operation in the kernel;
    /// - while they are more than 64, or one has not run yet, or an
    ///   [`on_exit_local`](cringle_std::fiber::Scope::on_exit_local) of them is due;
    /// - if it is the closure of `run`, which uses the thread-locals of the calling thread;
    /// - if it was placed there with
    ///   [`fiber::Builder::worker`](cringle_std::fiber::Builder::worker);
    /// - while one of them holds a [`FixedFile`](cringle_storage::FixedFile), a
    ///   [`FixedBufs`](cringle_storage::FixedBufs), or a [`fiber::pin`](cringle_std::fiber::pin()).
    ///
    /// What the kernel keeps of a thread is the worker's, and changes with the worker: the signal
    /// mask, the affinity, the name, namespaces.
    ///
    /// ```
    /// use cringle::fiber;
    /// use cringle::runtime::Balance;
    ///
    /// // One listener a worker, and each connection stays where it was accepted.
    /// let builder = cringle::Builder::new().workers(2).balance(Balance::Fixed);
    /// assert_eq!(builder.run(|| fiber::spawn(|| 6 * 7).join().unwrap())?, 42);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`run`](Builder::run) returns `Unsupported` if `Moving` was chosen and fibers cannot have
    /// thread-locals of their own, and `InvalidInput` if [`ThreadLocals::Shared`] was chosen too.
    pub fn balance(balance: Balance) |it| it.balance = Some(balance);
}

impl Builder {
    /// Runs `f` on a fiber of the calling thread, which is worker 0 meanwhile. Returns `f`'s value
    /// when nothing of the runtime is left: every fiber has ended, every operation in the kernel
    /// has completed, and all descriptors and mappings are released. Fibers that still run when `f`
    /// returns are cancelled, and `run` waits for them.
    ///
    /// `f` has a stack of 8 MiB, or of `RUST_MIN_STACK` bytes if that is more.
    ///
    /// ```
    /// use cringle::fs;
    ///
    /// // The first error is that of `run`, the second one that of the closure.
    /// let own_program = cringle::Builder::new().workers(1).run(|| fs::read("/proc/self/exe"))??;
    /// assert!(own_program.starts_with(b"\x7fELF"));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if an option is out of its range, or if `CRINGLE_WORKERS`, `CRINGLE_DRIVER`,
    /// `CRINGLE_BALANCE`, `CRINGLE_THREAD_LOCALS`, `CRINGLE_WATCHDOG`, `CRINGLE_DUMP`,
    /// `CRINGLE_DETECT`, `CRINGLE_CRASH_TEXT` or `CRINGLE_RESTRICT` in the environment cannot be
    /// parsed.
    /// `Unsupported` if private thread-locals were chosen, or libc's calls are interposed, and they
    /// cannot be had here. Otherwise the error of the system that refused a thread, a stack or a
    /// ring, with the remedy. `f` has not run in these cases.
    ///
    /// # Panics
    ///
    /// When called within a `run`; and with `f`'s own panic, after everything has ended.
    #[track_caller]
    pub fn run<F, T>(self, f: F) -> io::Result<T>
    where
        F: FnOnce() -> T,
    {
        let (mut f, mut result) = (Some(f), None);
        self.run_call(&mut || result = f.take().map(|f| f()))?;
        Ok(result.expect("a run returns after its closure"))
    }
}
