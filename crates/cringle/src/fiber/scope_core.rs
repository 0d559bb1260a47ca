//! What a scope is made of, whatever its kind: the count of its fibers, how they are cancelled, what
//! is done at its end, and the wait for all of it.

use super::packet::Packet;
use super::protect::protect;
use super::spawn::{Builder, current_or_panic};
use crate::runtime::cancelled::{Cancelled, Reason};
use crate::runtime::fiber::{FiberRef, Wait};
use crate::runtime::foreign;
use crate::runtime::lent_frame::LentFrame;
use crate::runtime::members::{MemberSlot, Members};
use crate::runtime::region::Region;
use crate::runtime::shared::Shared;
use crate::runtime::unwinding;
use crate::runtime::wait_target::{TargetInfo, WaitTarget};
use crate::runtime::waker::Waker;
use crate::runtime::worker::{Here, Within, Worker};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a scope and its fibers share.
pub(super) struct ScopeCore {
    /// Fibers that have not ended.
    running: AtomicUsize,
    /// Those among them that are no daemons.
    needed: AtomicUsize,
    /// Fibers that panicked, less those whose payload a `join` took.
    unclaimed_panics: AtomicUsize,
    /// The same for those that were unwound because they were cancelled.
    unclaimed_cancels: AtomicUsize,
    owner: Waker,
    members: Arc<Members>,
    /// The runtime that the scope is in.
    shared: Option<Arc<Shared>>,
    exits: Mutex<Vec<Exit>>,
}

/// What is to be called at a scope's end, on a worker that may be given.
struct Exit {
    call: Box<dyn FnOnce()>,
    worker: Option<u32>,
}

// SAFETY: a call that is not `Send` names the worker of the owner's runtime that it came from, and is
// made there (`add_exit_here`).
unsafe impl Send for Exit {}

impl ScopeCore {
    /// For a scope that the caller opens.
    #[track_caller]
    pub(super) fn new() -> Arc<ScopeCore> {
        let current = Worker::current();
        let members = match current {
            Some((worker, fiber)) => {
                let cause = worker.is_interrupted(fiber).then(|| fiber.cause()).flatten();
                Members::new(Some(worker.address(fiber)), cause)
            }
            None => Members::new(None, None),
        };
        Arc::new(ScopeCore {
            running: AtomicUsize::new(0),
            needed: AtomicUsize::new(0),
            unclaimed_panics: AtomicUsize::new(0),
            unclaimed_cancels: AtomicUsize::new(0),
            owner: match current {
                Some((worker, fiber)) => worker.waker(fiber),
                None => Waker::Thread(std::thread::current()),
            },
            members,
            shared: current.map(|(worker, _)| Arc::clone(worker.shared())),
            exits: Mutex::default(),
        })
    }

    pub(super) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// The runtime that the scope is in, and the worker that its owner lives on.
    pub(super) fn home(&self) -> Option<(&Arc<Shared>, usize)> {
        Some((self.shared.as_ref()?, self.members.home()?.worker as usize))
    }

    /// The calling worker, if it is one of those that the scope's owner can have calls made on.
    #[track_caller]
    pub(super) fn worker_or_panic(&self) -> u32 {
        let (worker, _) = current_or_panic();
        let same = self.shared.as_ref().is_some_and(|own| Arc::ptr_eq(own, worker.shared()));
        assert!(same, "`on_exit_local` was called in another `cringle::run` than the scope's own");
        worker.index()
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn cancel(&self) {
        crate::tracing_events::debug!("a scope is cancelled");
        self.members.cancel(Reason::Cancelled);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.members.cause().is_some()
    }

    pub(super) fn has_unclaimed_panic(&self) -> bool {
        self.unclaimed_panics.load(Ordering::Acquire) > 0
    }

    pub(super) fn has_unclaimed_cancel(&self) -> bool {
        self.unclaimed_cancels.load(Ordering::Acquire) > 0
    }

    fn unclaimed(&self, cancelled: bool) -> &AtomicUsize {
        match cancelled {
            true => &self.unclaimed_cancels,
            false => &self.unclaimed_panics,
        }
    }

    /// A `join` has taken a payload, of a cancel or of a panic.
    pub(super) fn claim(&self, cancelled: bool) {
        self.unclaimed(cancelled).fetch_sub(1, Ordering::Relaxed);
    }

    /// A place for a fiber that is being made.
    pub(super) fn enter(self: &Arc<Self>) -> Membership {
        self.needed.fetch_add(1, Ordering::Relaxed);
        self.enter_as(false)
    }

    /// A place for one that nobody waits for before it is cancelled.
    pub(super) fn enter_daemon(self: &Arc<Self>) -> Membership {
        self.enter_as(true)
    }

    fn enter_as(self: &Arc<Self>, daemon: bool) -> Membership {
        // A count of 2⁶³ would take as many fibers; std checks, we could never get there.
        self.running.fetch_add(1, Ordering::Relaxed);
        Membership { core: Arc::clone(self), daemon, place: Cell::new(None) }
    }

    /// Has `call` made when the fibers have ended, by the scope's owner.
    ///
    /// # Safety
    ///
    /// What it borrows outlives the scope.
    pub(super) unsafe fn add_exit(&self, call: Box<dyn FnOnce() + Send + '_>, worker: Option<u32>) {
        // SAFETY: handed on to the caller; one that is `Send` may be called anywhere.
        unsafe { self.push_exit(call, worker) };
    }

    /// The same for a call that is made on the given worker, which is the calling one, as
    /// [`worker_or_panic`](Self::worker_or_panic) says.
    ///
    /// # Safety
    ///
    /// As for [`add_exit`](Self::add_exit).
    pub(super) unsafe fn add_exit_here(&self, call: Box<dyn FnOnce() + '_>, worker: u32) {
        // SAFETY: handed on to the caller.
        unsafe { self.push_exit(call, Some(worker)) };
    }

    unsafe fn push_exit(&self, call: Box<dyn FnOnce() + '_>, worker: Option<u32>) {
        // SAFETY: I2. By the contract: the scope makes the call before it ends.
        let call =
            unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(call) };
        self.exits().push(Exit { call, worker });
    }

    fn exits(&self) -> MutexGuard<'_, Vec<Exit>> {
        self.exits.lock().expect("no code panics under this lock")
    }

    /// Waits for the fibers; for the daemons when the others have ended.
    fn wait_for_fibers(&self, current: Option<(Here, FiberRef)>) {
        let wait_for = |count: &AtomicUsize| {
            while count.load(Ordering::Acquire) > 0 {
                match current {
                    Some((worker, fiber)) => worker.suspend_for_fibers(fiber, Wait::Scope, self),
                    None => std::thread::park(),
                }
            }
        };
        while self.running.load(Ordering::Acquire) > 0 {
            wait_for(&self.needed);
            self.members.cancel_daemons();
            wait_for(&self.running);
        }
    }

    /// Waits for the fibers, and makes the calls that were asked for; they may start fibers again.
    fn finish(&self, current: Option<(Here, FiberRef)>) -> std::thread::Result<()> {
        let mut outcome = Ok(());
        loop {
            self.wait_for_fibers(current);
            let Some(exit) = self.exits().pop() else { return outcome };
            if let Err(payload) = exit.perform(current) {
                match outcome {
                    Ok(()) => outcome = Err(payload),
                    Err(_) => foreign::discard(payload),
                }
            }
        }
    }
}

impl WaitTarget for ScopeCore {
    fn info(&self) -> TargetInfo {
        TargetInfo::Members(self.running())
    }
}

impl Exit {
    fn perform(self, current: Option<(Here, FiberRef)>) -> std::thread::Result<()> {
        let Exit { call, worker } = self;
        let elsewhere =
            worker.filter(|&worker| current.is_none_or(|(here, _)| here.index() != worker));
        let Some(worker) = elsewhere else { return foreign::call(call) };
        let call = Exit { call, worker: None };
        let perform = move || {
            let call = call;
            protect(call.call);
        };
        // SAFETY: I2. The fiber's end is waited for below, come what may.
        let spawned = unsafe {
            Builder::new().worker(worker as usize).spawn_sent(perform, None::<Membership>)
        };
        let packet: Arc<Packet<()>> = spawned.expect("the worker is one of this runtime");
        packet.wait(|| false);
        packet.take()
    }
}

/// Runs the body of a scope, and returns what came of it when all of the scope has ended. `after` is
/// told of it first.
pub(super) fn run_scope<T>(
    core: &Arc<ScopeCore>,
    body: impl FnOnce() -> T,
    after: impl FnOnce(&std::thread::Result<T>),
) -> std::thread::Result<T> {
    let current = Worker::current();
    let region = Region::of_scope(&core.members);
    // What the fibers borrow from the frames above goes when this one is left.
    let lent = LentFrame::begin();
    // SAFETY: it is dropped below, in this frame, which nothing unwinds before: the body's panic is
    // caught, and so are those of the calls at the end (I12).
    let within = current.map(|(worker, fiber)| unsafe { Within::enter(worker, fiber, &region) });
    current.inspect(|(worker, _)| worker.events().scope_changed(true));
    // The fibers must have ended before this frame goes, also when the body panics.
    let result = unwinding::catch(body);
    after(&result);
    let finished = core.finish(current);
    current.inspect(|(worker, _)| worker.events().scope_changed(false));
    drop(within);
    lent.end();
    match (result, finished) {
        (Err(payload), Err(second)) => {
            foreign::discard(second);
            Err(payload)
        }
        (result, Ok(())) => result,
        (Ok(value), Err(payload)) => {
            if let Err(second) = foreign::drop_value(value) {
                foreign::discard(second);
            }
            Err(payload)
        }
    }
}

/// A fiber's place in its scope, until it is dropped.
pub(super) struct Membership {
    core: Arc<ScopeCore>,
    daemon: bool,
    place: Cell<Option<MemberSlot>>,
}

impl Membership {
    pub(super) fn core(&self) -> &Arc<ScopeCore> {
        &self.core
    }

    /// The fiber has started: it can be cancelled with the scope.
    pub(super) fn begin(&self, worker: Here, fiber: FiberRef) {
        let place = worker.enter_scope(fiber, &self.core.members, self.daemon);
        self.place.set(Some(place));
    }

    /// It is a daemon that nobody needs any more: how it ends says nothing.
    pub(super) fn is_dismissed(&self) -> bool {
        self.daemon && self.core.members.daemons_are_cancelled()
    }

    /// The fiber has ended with this result.
    pub(super) fn note<T>(&self, result: &std::thread::Result<T>) {
        if let Err(payload) = result {
            let cancelled = payload.is::<Cancelled>();
            // A daemon that was cancelled has done what it was there for.
            if !(cancelled && self.daemon) {
                self.core.unclaimed(cancelled).fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let core = &self.core;
        if let Some(place) = self.place.take() {
            core.members.strike_out(place);
        }
        // The counts that free the owner's frame are the last touch of anything in that frame; the
        // scope's own data is kept by this fiber's share of it (I10).
        let last_needed = !self.daemon && core.needed.fetch_sub(1, Ordering::Release) == 1;
        let last = core.running.fetch_sub(1, Ordering::Release) == 1;
        if last_needed || last {
            core.owner.wake();
        }
    }
}
