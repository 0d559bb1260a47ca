//! From options to workers, and from the end of the program to the end of the runtime.
//!
//! Each worker is made on the thread that it runs on, because a ring has one submitter. Worker 0 is
//! the caller's thread. If one worker cannot be made, the existing workers end without having run
//! anything, and the caller may try another driver with the same closure.

use super::builder::Plan;
use crate::crash::SignalStack;
use crate::diagnostics::dump;
use crate::diagnostics::watchdog::{Watchdog, Watched};
pub(super) use cringle_core::choices::Balance;
pub(super) use cringle_core::choices::Threads;
use cringle_core::choices::{NoRing, no_ring};
use cringle_core::fiber::body::run_root_body;
use cringle_core::label::Origin;
use cringle_core::shared::{Shared, Stealers, Unstarted};
use cringle_core::stack::{self, StackPool};
use cringle_core::worker::{Families, Kin, Moves, Traveller, Worker};
use cringle_driver::epoll::Pools;
use cringle_driver::simulation::World;
use cringle_driver::uring::check_seccomp;
use cringle_driver::{Driver, Epoll, Uring, UringOptions};
use cringle_sys as sys;
use cringle_tls::ThreadLocals;
use crossbeam_deque::Worker as Deque;
use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::ScopedJoinHandle;

/// The resolved options of one run.
pub(super) struct Setup {
    pub(super) workers: usize,
    pub(super) pin: bool,
    pub(super) is_open: bool,
    pub(super) watchdog: Option<Watched>,
    pub(super) stubborn_reports: bool,
    pub(super) threads: Threads,
    pub(super) balance: Balance,
    /// Why fibers share the thread-locals of their worker, if they do.
    pub(super) why_shared: Option<Arc<str>>,
    pub(super) ring: UringOptions,
    /// The place that called `run`.
    pub(super) origin: Origin,
    /// The cores that the process may use.
    pub(super) cpus: Vec<usize>,
    pub(super) world: Option<Arc<dyn World>>,
}

impl Setup {
    /// Runs `f` as this plan says. On rings that are refused it continues with epoll, if the plan
    /// allows that.
    pub(super) fn run(&self, plan: Plan, f: &mut dyn FnMut()) -> io::Result<()> {
        let result = match plan {
            Plan::Simulation => self.run_on(None, f),
            Plan::Epoll(why) => self.run_on(Some(why), f),
            Plan::Rings { or_epoll } => match self.run_on_rings(f) {
                Err(StartError::Ring(error, made)) if or_epoll => {
                    self.run_without_rings(&error, made, f)
                }
                result => result,
            },
        };
        Ok(result?)
    }

    /// Runs `f` on epoll, because only so many workers got a ring. Where a limit is the reason, a
    /// line says so: unlike a machine that denies rings, such a program has rings in one place and
    /// none in another.
    fn run_without_rings(
        &self,
        error: &io::Error,
        made: usize,
        f: &mut dyn FnMut(),
    ) -> Result<(), StartError> {
        let is_limited = made > 0 || error.kind() == io::ErrorKind::OutOfMemory;
        let text = match is_limited {
            false => error.to_string(),
            true => {
                format!("{made} of {} workers got a ring, so none uses one: {error}", self.workers)
            }
        };
        self.run_on(Some(no_ring(text.clone(), false)), &mut || {
            if is_limited {
                report_limit(&text);
            }
            f();
        })
    }

    fn thread_locals(&self) -> ThreadLocals {
        match self.why_shared {
            Some(_) => ThreadLocals::Shared,
            None => ThreadLocals::Private,
        }
    }

    fn run_on_rings(&self, f: &mut dyn FnMut()) -> Result<(), StartError> {
        check_seccomp().map_err(|error| StartError::Ring(error, 0))?;
        self.run_on(None, f)
    }

    /// Makes one attempt, with rings or without. Calls `f` once all workers exist.
    fn run_on(&self, no_ring: Option<NoRing>, f: &mut dyn FnMut()) -> Result<(), StartError> {
        let queues: Vec<Queues> = (0..self.workers).map(|_| Queues::new()).collect();
        let stealers = queues.iter().map(Queues::stealers).collect();
        let (mut shared, bells) =
            Shared::new(stealers, &self.cpus, self.pin, self.is_open, no_ring)?;
        shared.set_threads(self.threads);
        shared.set_why_shared(self.why_shared.clone());
        let shared = Arc::new(shared);
        let _listed = dump::list(&shared);
        let _watchdog = self.watchdog.and_then(|watched| Watchdog::start(&shared, watched));
        let mut setups = (0u32..).zip(queues).zip(bells).map(|((index, queues), bell)| {
            let cpu = self.pin.then(|| self.cpus[index as usize % self.cpus.len()]);
            let shared = Arc::clone(&shared);
            WorkerSetup { run: self, index, queues, bell, shared, cpu }
        });
        let first = setups.next().expect("there is a worker 0");
        cringle_core::emit!(
            DEBUG,
            workers = self.workers,
            rings = shared.no_ring().is_none(),
            "run"
        );
        let result = std::thread::scope(|scope| {
            let mut threads = WorkerThreads::new(&shared, self);
            for setup in setups {
                threads.start(scope, setup)?;
            }
            first.run_main(threads, f)
        });
        cringle_core::emit!(DEBUG, "run has ended");
        crate::trace::flush_after_run();
        result?.map_err(|payload| resume_unwind(payload))
    }
}

/// Reports, once in a process, that a limit keeps a run from using rings.
fn report_limit(text: &str) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        sys::report(format_args!("{text}; or set CRINGLE_DRIVER=epoll, which omits this line"));
    }
}

/// Why a run could not start.
enum StartError {
    /// A ring was refused, when this number of workers had one; another driver may do.
    Ring(io::Error, usize),
    Other(io::Error),
}

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> StartError {
        StartError::Other(e)
    }
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> io::Error {
        match error {
            StartError::Ring(e, _) | StartError::Other(e) => e,
        }
    }
}

/// The queues of a worker from which others take.
struct Queues {
    unstarted: Deque<Unstarted>,
    offered: Deque<Traveller>,
}

impl Queues {
    fn new() -> Queues {
        Queues { unstarted: Deque::new_fifo(), offered: Deque::new_fifo() }
    }

    fn stealers(&self) -> Stealers {
        Stealers { unstarted: self.unstarted.stealer(), offered: self.offered.stealer() }
    }
}

/// The parts of one worker, on the way to its thread.
struct WorkerSetup<'a> {
    run: &'a Setup,
    index: u32,
    queues: Queues,
    bell: RawFd,
    shared: Arc<Shared>,
    cpu: Option<usize>,
}

impl WorkerSetup<'_> {
    /// Makes the worker, on the thread that it will run on.
    fn make_worker(self) -> Result<Worker, StartError> {
        if let Some(cpu) = self.cpu {
            sys::set_affinity(&[cpu])?;
        }
        let driver = self.make_driver()?;
        let stacks = StackPool::with_reserve()?;
        let families = Families::new(self.run.thread_locals())?;
        let Queues { unstarted, offered } = self.queues;
        let draws = driver.simulation().is_some() && self.run.workers > 1;
        // A lone worker has no other worker to give a fiber to.
        let balance = if self.run.workers == 1 { Balance::Fixed } else { self.run.balance };
        let shared = Arc::clone(&self.shared);
        let moves = Moves::new(self.index, shared, balance, offered, draws);
        let worker =
            Worker::new(self.index, self.shared, driver, unstarted, stacks, families, moves);
        if !self.run.stubborn_reports {
            worker.stubborn.keep_quiet();
        }
        Ok(worker)
    }

    fn make_driver(&self) -> Result<Driver, StartError> {
        let index = self.index as usize;
        let rung = &self.shared.peers[index].mailbox.rung;
        if let Some(world) = &self.run.world {
            return Ok(Driver::Simulated(world.driver(index, rung)));
        }
        if self.shared.no_ring().is_none() {
            // Worker 0 is the last.
            let made = index.checked_sub(1).unwrap_or(self.run.workers - 1);
            return Uring::new(&self.run.ring, self.bell)
                .map(Driver::Uring)
                .map_err(|error| StartError::Ring(error, made));
        }
        let (storage, unbounded) = (&self.shared.call_pool, &self.shared.unblock_pool);
        let pools = Pools { storage: Arc::clone(storage), unbounded: Arc::clone(unbounded) };
        let epoll = Epoll::new(self.bell, self.run.ring.in_flight_limit, pools)?;
        Ok(Driver::Epoll(Box::new(epoll)))
    }

    /// Is worker 0, on the caller's thread: runs `f`, then ends the runtime.
    fn run_main(
        self,
        mut threads: WorkerThreads<'_, '_>,
        f: &mut dyn FnMut(),
    ) -> Result<std::thread::Result<()>, StartError> {
        let shared = Arc::clone(&self.shared);
        let origin = self.run.origin;
        let worker = self.make_worker()?;
        let block = worker.families.scheduler_block()?;
        let outcome = Cell::new(None);
        let body = || {
            outcome.set(Some(run_root_body("main", origin, f)));
            shared.stop();
        };
        // SAFETY: I2. The body borrows from this frame, and `run_worker` below returns only after
        // the fiber has ended.
        unsafe { worker.start(stack::main_stack_bytes(), Kin::Callers, body) }?;
        threads.keep();
        let _signal_stack = SignalStack::replace();
        block.call(|| run_worker(&worker));
        Worker::leave_thread();
        shared.barrier.wait();
        worker.close();
        shared.unblock_pool.close();
        shared.call_pool.close();
        shared.map_pool.close();
        Ok(outcome.take().expect("the main fiber has ended"))
    }

    /// Is one of the other workers, on its own thread. Reports first whether the worker could be
    /// made.
    fn run_thread(self, report: mpsc::Sender<Result<(), StartError>>) {
        let shared = Arc::clone(&self.shared);
        let worker = match self.make_worker() {
            Ok(worker) => worker,
            Err(e) => return drop(report.send(Err(e))),
        };
        drop(report.send(Ok(())));
        let _signal_stack = SignalStack::replace();
        run_worker(&worker);
        if !shared.was_abandoned() {
            shared.barrier.wait();
        }
        worker.close();
    }
}

/// Runs the worker until the runtime has ended. A panic of the scheduler itself aborts the process,
/// because frames that the kernel writes to would be lost with it (**I12**). Panics of fibers end
/// in the fibers.
fn run_worker(worker: &Worker) {
    if catch_unwind(AssertUnwindSafe(|| worker.run())).is_err() {
        cringle_sys::report(format_args!("a worker panicked outside of any fiber; aborting"));
        std::process::abort();
    }
}

/// The threads of workers 1 and up. Dropped before [`keep`](Self::keep), it ends them; in any case
/// it joins them.
///
/// A scope alone would only wait for their closures. Joined, their stacks and the allocator's
/// caches of these threads can be used by the next run.
struct WorkerThreads<'s, 'scope> {
    shared: &'s Arc<Shared>,
    run: &'s Setup,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    is_kept: bool,
}

impl<'s, 'scope> WorkerThreads<'s, 'scope> {
    fn new(shared: &'s Arc<Shared>, run: &'s Setup) -> Self {
        WorkerThreads { shared, run, threads: Vec::new(), is_kept: false }
    }

    /// Starts a thread, and waits until its worker exists.
    fn start(
        &mut self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        setup: WorkerSetup<'scope>,
    ) -> Result<(), StartError> {
        let (report, reported) = mpsc::channel();
        let name = format!("cringle-{}", setup.index);
        let thread = sys::library_thread(name)
            .spawn_scoped(scope, move || setup.run_thread(report))
            .map_err(|e| sys::cannot_start("a worker thread", &e))?;
        self.threads.push(thread);
        reported.recv().expect("a worker's thread reports how its start went")
    }

    /// Lets the workers run until the runtime ends.
    fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for WorkerThreads<'_, '_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.shared.abandon();
            self.run.world.iter().for_each(|world| world.abandon_run());
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("a worker thread does not unwind");
        }
    }
}
