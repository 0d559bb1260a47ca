//! What the workers of one `run` share: their mailboxes, who sleeps, what can be stolen, how many
//! fibers are alive, and how it ends.
//!
//! # How it ends
//!
//! 1. The closure of `run` has returned: `stopping`. Every worker cancels its fibers; those that
//!    start later start cancelled.
//! 2. A worker that is about to sleep looks whether a fiber is left anywhere; the last one to
//!    become idle sees that none is: `stopped`, and all are woken.
//! 3. All workers meet at a barrier: nobody sends any more.
//! 4. Each closes its ring and then its mailbox (**I9**).

use super::cancelled::Reason;
use super::counters::Counters;
use super::driver_choice::NoRing;
use super::fiber::FiberId;
use super::inbox::{Bell, Inbox, Posted};
use super::label::Roster;
use super::members::Members;
use super::quiescence::{self, Count, Idlers};
use super::sync::{AtomicBool, AtomicU64, Ordering};
use super::waiting_runtime::WaitingRuntime;
use super::worker::Question;
use crate::driver::Counts;
use crate::driver::pool::Pool;
use crate::sys;
use crossbeam_deque::Stealer;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Barrier, OnceLock};

/// What an unstarted fiber does, on its own stack: one of the two.
pub(crate) trait Body: Send {
    fn run(self: Box<Self>);

    /// Instead of running, because no stack of the size that was asked for could be mapped: drops the closure, and
    /// leaves this error as the fiber's result.
    fn fail(self: Box<Self>, e: std::io::Error);
}

/// A fiber that was made and not started: it has no stack yet, and any worker may start it.
pub(crate) struct Unstarted {
    pub(crate) body: Box<dyn Body>,
    pub(crate) stack_bytes: usize,
    /// What leads to its making in a trace; 0 without one.
    pub(crate) origin: u64,
}

/// What a worker can be told by another thread.
pub(crate) enum Mail {
    /// This fiber's wait may have ended.
    Wake(FiberId),
    /// Start this one here: it was placed.
    Start(Unstarted),
    /// This fiber is cancelled.
    Cancel(FiberId, Reason),
    /// A scope is cancelled that this fiber has opened.
    CancelScope(FiberId, Arc<Members>, Reason),
    /// Unmap the stacks that no fiber needs: another worker can map none.
    TrimStacks,
    /// Answer this question about your fibers.
    Ask(Box<dyn Question>),
}

/// The descriptor by which a foreign thread wakes a worker.
pub(crate) struct EventBell(OwnedFd);

impl Bell for EventBell {
    fn ring(&self) {
        sys::eventfd_signal(self.0.as_fd());
    }
}

/// Where one worker is reached. Handles keep it alive after the worker has gone.
pub(crate) struct MailBox {
    pub(crate) worker: u32,
    pub(crate) inbox: Inbox<Mail, EventBell>,
    /// The worker's ring while its messages reach it, else −1.
    ring_fd: AtomicI32,
}

impl MailBox {
    /// The mailbox, and the descriptor that its worker's ring reads from.
    fn new(worker: u32) -> std::io::Result<(Arc<MailBox>, RawFd)> {
        let fd = sys::eventfd().map_err(explain)?;
        let raw = fd.as_raw_fd();
        let inbox = Inbox::new(EventBell(fd));
        Ok((Arc::new(MailBox { worker, inbox, ring_fd: AtomicI32::new(-1) }), raw))
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
    std::io::Error::new(e.kind(), text)
}

/// A worker as the others see it.
pub(super) struct Peer {
    pub(super) mailbox: Arc<MailBox>,
    pub(super) stealer: Stealer<Unstarted>,
    pub(super) made: Count,
    pub(super) ended: Count,
    pub(super) counters: Arc<Counters>,
    /// What its driver counts, once there is one.
    driver: OnceLock<Arc<Counts>>,
    pub(super) roster: Roster,
}

impl Peer {
    fn new(mailbox: Arc<MailBox>, stealer: Stealer<Unstarted>) -> Peer {
        Peer {
            mailbox,
            stealer,
            made: Count::default(),
            ended: Count::default(),
            counters: Arc::default(),
            driver: OnceLock::new(),
            roster: Roster::default(),
        }
    }

    pub(super) fn set_driver_counts(&self, counts: &Arc<Counts>) {
        self.driver.get_or_init(|| Arc::clone(counts));
    }

    pub(super) fn driver_counts(&self) -> Option<&Counts> {
        self.driver.get().map(|counts| &**counts)
    }
}

/// See the module.
pub(crate) struct Shared {
    pub(super) peers: Box<[Peer]>,
    /// Threads outside may start fibers here.
    is_open: bool,
    /// The workers have epolls.
    no_ring: Option<NoRing>,
    /// For whom the caller of `run` works.
    served: Option<WaitingRuntime>,
    /// Fibers made by threads outside.
    made_outside: AtomicU64,
    idlers: Idlers,
    /// Everything that is not protected is cancelled.
    cancelled: AtomicBool,
    stopping: AtomicBool,
    stopped: AtomicBool,
    /// The start failed half-way: the workers that are there end without meeting the others.
    abandoned: AtomicBool,
    pub(super) barrier: Barrier,
    /// The cores of `run`'s caller, where each worker is pinned to one of them.
    unpinned: Option<Box<[usize]>>,
    /// For closures that may block for as long as they like.
    pub(crate) unblock_pool: Arc<Pool>,
    /// For the library's own calls that the ring has no op for.
    pub(crate) call_pool: Arc<Pool>,
}

/// Threads for the library's own blocking calls.
const CALL_THREADS: usize = 4;
/// The same where there is no ring: as many requests as keep a disk busy.
const CALL_THREADS_FOR_ALL: usize = 32;

impl Shared {
    /// The shared state for workers with these queues, and the wake-up descriptor of each.
    pub(super) fn new(
        stealers: Vec<Stealer<Unstarted>>,
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
            served: WaitingRuntime::current(),
            made_outside: AtomicU64::new(0),
            idlers: Idlers::default(),
            cancelled: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            barrier: Barrier::new(count),
            unpinned: is_pinned.then(|| cpus.into()),
            unblock_pool: Arc::new(Pool::new("cringle-unblock", usize::MAX, cpus)),
            call_pool: Arc::new(Pool::new("cringle-call", call_threads, cpus)),
        };
        Ok((shared, bells))
    }

    /// Calls `f` on the calling worker's thread with the cores that `run`'s caller had, as far as only pinning took
    /// them from it.
    pub(crate) fn unpinned<T>(&self, f: impl FnOnce() -> T) -> T {
        let Some(cpus) = &self.unpinned else { return f() };
        let before = sys::allowed_cpus();
        // The program may have set others itself.
        if before.len() != 1 {
            return f();
        }
        // Best effort: a child on one core is slower and no less right.
        let _ = sys::set_affinity(cpus);
        let value = f();
        let _ = sys::set_affinity(&before);
        value
    }

    /// Starts a fiber on a worker from a thread outside. Gives it back when the runtime has ended.
    pub(crate) fn start_from_outside(
        &self,
        worker: usize,
        unstarted: Unstarted,
    ) -> Result<(), Unstarted> {
        self.made_outside.fetch_add(1, Ordering::AcqRel);
        match self.peers[worker].mailbox.inbox.send(Mail::Start(unstarted)) {
            Ok(()) => Ok(()),
            Err(Mail::Start(unstarted)) => Err(unstarted),
            Err(_) => unreachable!("a start was sent"),
        }
    }

    /// For whom the caller of `run` works.
    pub(super) fn served(&self) -> Option<WaitingRuntime> {
        self.served
    }

    /// Why there is none, where there is none.
    pub(super) fn no_ring(&self) -> Option<&NoRing> {
        self.no_ring.as_ref()
    }

    pub(crate) fn workers(&self) -> usize {
        self.peers.len()
    }

    /// Whether this is the mailbox of a worker of this runtime.
    pub(super) fn has(&self, mailbox: &Arc<MailBox>) -> bool {
        let peer = self.peers.get(mailbox.worker as usize);
        peer.is_some_and(|peer| Arc::ptr_eq(&peer.mailbox, mailbox))
    }

    /// Whether one worker makes all the fibers there will be.
    #[inline]
    pub(super) fn is_closed_world(&self) -> bool {
        self.peers.len() == 1 && !self.is_open
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.cancel_all();
    }

    /// Cancels every fiber, those that start later too.
    pub(crate) fn cancel_all(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Whether that happened.
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

    /// The set-up of a worker failed: nobody runs anything.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn was_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Whether nothing is left to run, in a runtime that is stopping. See [`quiescence`].
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

    /// Has every worker look at the state: this happens twice in a runtime's life.
    fn wake_all(&self) {
        for peer in &self.peers {
            peer.mailbox.inbox.nudge();
        }
    }

    /// There is work to steal: a worker that sleeps and should be woken for it, if there is one.
    ///
    /// The pair of this and [`Shared::count_idle`] is explained in [`quiescence`].
    #[inline]
    pub(super) fn thief_to_wake(&self, not: u32) -> Option<&Arc<MailBox>> {
        if !self.idlers.any() {
            return None;
        }
        let others = self.peers.iter().map(|peer| &peer.mailbox);
        let mut others = others.filter(|mailbox| mailbox.worker != not);
        others.find(|mailbox| mailbox.inbox.rouse() == Posted::MustWake)
    }

    pub(super) fn count_idle(&self) {
        self.idlers.enter();
    }

    pub(super) fn count_busy(&self) {
        self.idlers.leave();
    }

    /// Whether another worker has unstarted fibers.
    pub(super) fn has_loot(&self, thief: u32) -> bool {
        self.peers.iter().any(|peer| peer.mailbox.worker != thief && !peer.stealer.is_empty())
    }
}
