//! The state that the workers of one `run` share: their mailboxes, the unstarted fibers, the counts
//! of fibers and of idle workers, and the state of the runtime.
//!
//! # The end of a runtime
//!
//! 1. `stopping`: the closure of `run` has returned. Every worker cancels its fibers, and fibers
//!    that start later start cancelled (**I2**).
//! 2. `stopped`: a worker that is about to sleep checks whether any fiber is left. The last worker
//!    to become idle finds none, and wakes all.
//! 3. All workers meet at a barrier. After it no worker sends to another.
//! 4. Each worker closes its ring, and then its mailbox (**I9**).

use super::block_index::BlockIndex;
use super::cancelled::Reason;
use super::counters::Counters;
use super::family::FamilyChoice;
use super::fiber::{Fiber, FiberId};
use super::inbox::{Bell, Inbox, Posted};
use super::label::Roster;
use super::load::Load;
use super::members::Members;
use super::quiescence::{self, Count, Idlers};
use super::sync::{AtomicBool, AtomicU64, Ordering};
use super::waiting_runtime::WaitingRuntime;
use super::worker::{Cores, Husk, Question, Traveller};
use crate::choices::NoRing;
use crate::choices::Threads;
use cringle_driver::Counts;
use cringle_driver::kept::Own;
use cringle_driver::pool::Pool;
use cringle_sys as sys;
use cringle_sys::lock::{Mutex, MutexGuard, OnceLock};
use crossbeam_deque::Stealer;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicUsize};
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// The body of an unstarted fiber. One of the two methods is called, on the fiber's own stack.
pub trait Body: Send {
    fn run(self: Box<Self>);

    /// Drops the closure uncalled, and leaves this error as the fiber's result. Is called if no
    /// stack of the requested size can be mapped.
    fn fail(self: Box<Self>, e: std::io::Error);
}

/// A fiber that was made and not started. It has no stack yet, and any worker may start it.
pub struct Unstarted {
    pub body: Box<dyn Body>,
    pub stack_bytes: usize,
    /// The number of its spawn in a trace; 0 without a trace.
    pub origin: u64,
    /// The program has chosen its worker, where it stays.
    pub is_placed: bool,
    pub family: FamilyChoice,
}

/// A message to a worker from another thread.
pub enum Mail {
    /// Wake this fiber: its wait may have ended. If a fiber wakes it, the number of that one's
    /// worker.
    Wake(FiberId, Option<u32>),
    /// Start this fiber here.
    Start(Unstarted),
    /// Cancel this fiber.
    Cancel(FiberId, Reason),
    /// Cancel the part of this fiber that lies within a scope which it has opened.
    CancelScope(FiberId, Arc<Members>, Reason),
    /// Cancel the cancellation point of libc that this fiber is in, if it is in one.
    CancelPoint(FiberId),
    /// Unmap the stacks that no fiber uses, because another worker can map none.
    TrimStacks,
    /// Answer this question about your fibers.
    Ask(Box<dyn Question>),
    /// Run this fiber from now on.
    Arrive(Traveller),
    /// Release what remains of this fiber of yours.
    Bury(Husk),
}

/// The eventfd by which a thread without a ring wakes a worker.
pub struct EventBell {
    _own: Own,
    fd: sys::Owned,
    /// For a simulated worker, which reads no descriptor.
    rung: Arc<std::sync::atomic::AtomicBool>,
}

impl Bell for EventBell {
    fn ring(&self) {
        self.rung.store(true, std::sync::atomic::Ordering::Relaxed);
        sys::eventfd_signal(self.fd.as_fd());
    }
}

/// The address of one worker. Handles keep it alive after the worker has ended.
pub struct MailBox {
    pub worker: u32,
    pub inbox: Inbox<Mail, EventBell>,
    /// The descriptor of the worker's ring, or −1 if ring messages do not reach it.
    ring_fd: AtomicI32,
    /// Set when its bell has rung.
    pub rung: Arc<std::sync::atomic::AtomicBool>,
}

impl MailBox {
    /// Returns the mailbox, and the eventfd that the worker's driver reads.
    fn new(worker: u32) -> std::io::Result<(Arc<MailBox>, RawFd)> {
        let fd = sys::eventfd().map_err(explain)?;
        let raw = fd.as_raw_fd();
        let rung = Arc::default();
        let inbox = Inbox::new(EventBell { _own: Own::new(raw), fd, rung: Arc::clone(&rung) });
        let mailbox = MailBox { worker, inbox, ring_fd: AtomicI32::new(-1), rung };
        Ok((Arc::new(mailbox), raw))
    }

    pub(super) fn set_ring(&self, fd: RawFd) {
        self.ring_fd.store(fd, Ordering::Release);
    }

    pub(super) fn ring(&self) -> Option<RawFd> {
        let fd = self.ring_fd.load(Ordering::Acquire);
        (fd >= 0).then_some(fd)
    }
}

fn explain(e: std::io::Error) -> std::io::Error {
    let text = match e.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            format!(
                "no file descriptor is left for a worker: {e}; raise RLIMIT_NOFILE (`ulimit -n`)"
            )
        }
        _ => format!("cannot make the eventfd of a worker: {e}"),
    };
    sys::explained(e, text)
}

/// The ends of a worker's queues from which the others take.
pub struct Stealers {
    pub unstarted: Stealer<Unstarted>,
    pub offered: Stealer<Traveller>,
}

/// The part of a worker that the others see.
pub struct Peer {
    pub mailbox: Arc<MailBox>,
    pub stealer: Stealer<Unstarted>,
    /// The ready fibers that it has offered to others.
    pub(super) offered: Stealer<Traveller>,
    pub(super) load: Load,
    /// The blocks of the fibers that it has started, for the others where fibers move, and for
    /// debuggers.
    pub blocks: BlockIndex,
    pub(super) made: Count,
    pub ended: Count,
    pub counters: Arc<Counters>,
    /// The counters of its driver, once the driver exists.
    driver: OnceLock<Arc<Counts>>,
    pub roster: Roster,
}

impl Peer {
    fn new(mailbox: Arc<MailBox>, Stealers { unstarted: stealer, offered }: Stealers) -> Peer {
        Peer {
            mailbox,
            stealer,
            offered,
            load: Load::default(),
            blocks: BlockIndex::default(),
            made: Count::default(),
            ended: Count::default(),
            counters: Arc::default(),
            driver: OnceLock::new(),
            roster: Roster::default(),
        }
    }

    /// Whether others should take what it has offered.
    #[inline]
    pub(super) fn needs_help(&self) -> bool {
        self.load.calls_for_help() && !self.offered.is_empty()
    }

    pub(super) fn set_driver_counts(&self, counts: &Arc<Counts>) {
        self.driver.get_or_init(|| Arc::clone(counts));
    }

    pub fn driver_counts(&self) -> Option<&Counts> {
        self.driver.get().map(|counts| &**counts)
    }
}

/// See the module.
pub struct Shared {
    pub peers: Box<[Peer]>,
    /// Threads outside of the runtime may start fibers in it.
    pub is_open: bool,
    /// Why the workers use epoll, if they do.
    no_ring: Option<NoRing>,
    /// The runtime that waits for the caller of `run`, if one does.
    waiting_runtime: Option<WaitingRuntime>,
    /// Fibers made by threads outside of the runtime.
    made_outside: AtomicU64,
    idlers: Idlers,
    cores: Mutex<Cores>,
    /// Dumps under way, during which no fiber departs.
    pub(super) dumps: AtomicUsize,
    /// All fibers are cancelled, outside of protected calls.
    cancelled: AtomicBool,
    stopping: AtomicBool,
    stopped: AtomicBool,
    /// The start failed half-way: the workers that exist end without meeting at the barrier.
    abandoned: AtomicBool,
    pub barrier: Barrier,
    /// The cores of `run`'s caller, if each worker is pinned to one of them.
    unpinned: Option<Box<[usize]>>,
    /// What code of a fiber starts as a thread.
    threads: Threads,
    why_shared: Option<Arc<str>>,
    /// The threads that were started as fibers.
    placed_threads: AtomicUsize,
    /// Runs closures that may block for any time.
    pub unblock_pool: Arc<Pool>,
    /// Runs the library's own calls for which the ring has no op.
    pub call_pool: Arc<Pool>,
    /// Looks at mapped files, and unmaps them.
    pub map_pool: Arc<Pool>,
}

/// The most threads for the library's own blocking calls.
const CALL_THREADS: usize = 4;
/// The same without rings: as many requests as keep a disk busy.
const CALL_THREADS_FOR_ALL: usize = 32;
/// The most threads for mapped files: each of thousands may be due for a look at the same time.
const MAP_THREADS: usize = 2;

impl Shared {
    /// Returns the shared state for workers with these queues, and the eventfd of each worker.
    pub fn new(
        stealers: Vec<Stealers>,
        cpus: &[usize],
        is_pinned: bool,
        is_open: bool,
        no_ring: Option<NoRing>,
    ) -> std::io::Result<(Shared, Vec<RawFd>)> {
        let count = stealers.len();
        let mut peers = Vec::with_capacity(count);
        let mut bells = Vec::with_capacity(count);
        for (worker, stealer) in (0..).zip(stealers) {
            let (mailbox, bell) = MailBox::new(worker)?;
            peers.push(Peer::new(mailbox, stealer));
            bells.push(bell);
        }
        let call_threads = if no_ring.is_some() { CALL_THREADS_FOR_ALL } else { CALL_THREADS };
        let shared = Shared {
            peers: peers.into(),
            is_open,
            no_ring,
            waiting_runtime: WaitingRuntime::current(),
            made_outside: AtomicU64::new(0),
            idlers: Idlers::default(),
            cores: Mutex::new(Cores::default()),
            dumps: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            barrier: Barrier::new(count),
            unpinned: is_pinned.then(|| cpus.into()),
            threads: Threads::default(),
            why_shared: None,
            placed_threads: AtomicUsize::new(0),
            unblock_pool: Arc::new(Pool::new("cringle-unblock", usize::MAX, cpus)),
            call_pool: Arc::new(Pool::new("cringle-call", call_threads, cpus)),
            map_pool: Arc::new(Pool::new("cringle-map", MAP_THREADS, cpus)),
        };
        Ok((shared, bells))
    }

    pub fn set_threads(&mut self, threads: Threads) {
        self.threads = threads;
    }

    pub fn set_why_shared(&mut self, why_shared: Option<Arc<str>>) {
        self.why_shared = why_shared;
    }

    /// Why the fibers share the thread-locals of their worker, if they do.
    pub(super) fn why_shared(&self) -> Option<&Arc<str>> {
        self.why_shared.as_ref()
    }

    /// What code of a fiber starts as a thread.
    #[inline]
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// The worker of the next thread that is a fiber: each in turn, as the system spreads threads
    /// over its cores.
    pub fn next_place(&self) -> usize {
        self.placed_threads.fetch_add(1, Ordering::Relaxed) % self.workers()
    }

    /// Calls `f` on the calling worker's thread with the cores of `run`'s caller, if pinning has
    /// taken them from the thread.
    pub fn unpinned<T>(&self, f: impl FnOnce() -> T) -> T {
        let Some(cpus) = &self.unpinned else { return f() };
        let before = sys::allowed_cpus();
        // With several cores the thread is no longer pinned: the program has set them itself.
        if before.len() != 1 {
            return f();
        }
        // Best effort: on one core a child is slower, but correct.
        let _ = sys::set_affinity(cpus);
        let value = f();
        let _ = sys::set_affinity(&before);
        value
    }

    /// Starts a fiber on a worker from a thread outside of the runtime. Returns it if the runtime
    /// has ended.
    pub fn start_from_outside(&self, worker: usize, unstarted: Unstarted) -> Result<(), Unstarted> {
        self.made_outside.fetch_add(1, Ordering::AcqRel);
        match self.peers[worker].mailbox.inbox.send(Mail::Start(unstarted)) {
            Ok(()) => Ok(()),
            Err(Mail::Start(unstarted)) => Err(unstarted),
            Err(_) => unreachable!("a start was sent"),
        }
    }

    /// The runtime that waits for the caller of `run`, if one does.
    pub(super) fn waiting_runtime(&self) -> Option<WaitingRuntime> {
        self.waiting_runtime
    }

    /// Why the workers have no rings, if they have none.
    pub fn no_ring(&self) -> Option<&NoRing> {
        self.no_ring.as_ref()
    }

    pub fn workers(&self) -> usize {
        self.peers.len()
    }

    /// Whether this is the mailbox of a worker of this runtime.
    pub(super) fn has(&self, mailbox: &Arc<MailBox>) -> bool {
        let peer = self.peers.get(mailbox.worker as usize);
        peer.is_some_and(|peer| Arc::ptr_eq(&peer.mailbox, mailbox))
    }

    /// Whether all future fibers will be made by the one worker.
    #[inline]
    pub(super) fn is_closed_world(&self) -> bool {
        self.peers.len() == 1 && !self.is_open
    }

    /// Ends the runtime: the closure of `run` has returned.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.cancel_all();
    }

    /// Cancels every fiber, also fibers that start later.
    pub fn cancel_all(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    #[inline]
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends the workers that exist, because another one could not be made. No fiber has been made
    /// yet.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub fn was_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Whether the runtime is stopping and no fiber is left. See [`quiescence`].
    pub(super) fn try_finish(&self) -> bool {
        if !self.stopping.load(Ordering::SeqCst) {
            return false;
        }
        let counts = self.peers.iter().map(|peer| (&peer.made, &peer.ended));
        if !quiescence::is_over(counts, &self.made_outside) {
            return false;
        }
        if !self.stopped.swap(true, Ordering::SeqCst) {
            self.wake_all();
        }
        true
    }

    /// Makes every worker look at the state.
    fn wake_all(&self) {
        for peer in &self.peers {
            peer.mailbox.inbox.nudge();
        }
    }

    /// Returns a sleeping worker to wake, because this worker has published a fiber to steal.
    /// [`quiescence`] explains the pair of this and [`Shared::count_idle`].
    #[inline]
    pub(super) fn thief_to_wake(
        &self,
        not: u32,
        suits: impl Fn(&Peer) -> bool,
    ) -> Option<&Arc<MailBox>> {
        if !self.idlers.any() {
            return None;
        }
        let others = self.peers.iter().filter(|peer| peer.mailbox.worker != not && suits(peer));
        let mut others = others.map(|peer| &peer.mailbox);
        others.find(|mailbox| mailbox.inbox.rouse() == Posted::MustWake)
    }

    /// Returns a worker that seems to sleep and that suits, other than the given one.
    pub fn sleeper(&self, not: usize, suits: impl Fn(usize) -> bool) -> Option<usize> {
        if !self.idlers.seem_any() {
            return None;
        }
        let mut others = (1..self.workers()).map(|step| (not + step) % self.workers());
        others.find(|&worker| suits(worker) && self.peers[worker].mailbox.inbox.is_asleep())
    }

    /// Counts the calling worker as one that sleeps soon.
    pub(super) fn count_idle(&self) {
        self.idlers.enter();
    }

    pub(super) fn count_busy(&self) {
        self.idlers.leave();
    }

    /// Whether another worker has fibers for this one to take.
    pub(super) fn has_work_elsewhere(&self, thief: u32) -> bool {
        let mut others = self.peers.iter().filter(|peer| peer.mailbox.worker != thief);
        let thief = &self.peers[thief as usize];
        others.any(|peer| {
            !peer.stealer.is_empty()
                || (peer.needs_help() && thief.load.may_take_from(&peer.load, sys::now()))
        })
    }

    /// Whether the cores of the machine are busy with other things, as far as workers know.
    pub(super) fn cores(&self) -> MutexGuard<'_, Cores> {
        self.cores.lock()
    }

    /// Whether a worker may sleep that would take fibers of this one.
    pub(super) fn has_idle_taker(&self, giver: &Peer, now: Instant) -> bool {
        let may_take =
            |peer: &Peer| !std::ptr::eq(peer, giver) && peer.load.may_take_from(&giver.load, now);
        self.idlers.seem_any() && self.peers.iter().any(may_take)
    }

    /// The bits of a fiber's index that name its home.
    pub(super) fn home_bits(&self) -> u32 {
        self.peers.len().next_power_of_two().ilog2()
    }

    /// The worker that has started the fiber.
    #[inline]
    pub(super) fn home_of(&self, id: FiberId) -> usize {
        id.index as usize & ((1 << self.home_bits()) - 1)
    }

    /// The block of a fiber, for the other workers where fibers move.
    #[inline]
    pub(super) fn block(&self, id: FiberId) -> Option<NonNull<Fiber>> {
        self.peers.get(self.home_of(id))?.blocks.get((id.index >> self.home_bits()) as usize)
    }
}
