//! The part that all kinds of scopes share: the counts of their fibers, cancellation, the calls at
//! the end, and the wait for all of it.

use super::packet::Packet;
use super::protect::protect;
use super::spawn::{Builder, current_or_panic};
use cringle_core::cancelled::{Cancelled, Reason};
use cringle_core::family::Ticket;
use cringle_core::fiber::Wait;
use cringle_core::foreign;
use cringle_core::lent_frame::LentFrame;
use cringle_core::members::{MemberSlot, Members};
use cringle_core::region::Region;
use cringle_core::shared::Shared;
use cringle_core::unwinding;
use cringle_core::wait_target::{Target, TargetInfo, TargetKind, WaitTarget};
use cringle_core::waker::{Waker, park_thread_until};
use cringle_core::worker::{Current, Within};
use cringle_sys::lock::{Mutex, MutexGuard};
use std::cell::Cell;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The state that a scope shares with its fibers.
pub(super) struct ScopeCore {
    /// The number of fibers that have not ended.
    running: AtomicUsize,
    /// The number of fibers that have not ended and are no daemons.
    needed: AtomicUsize,
    /// The number of fibers that panicked, less those whose payload a `join` took.
    unclaimed_panics: AtomicUsize,
    /// The number of fibers that a cancel unwound, less those whose payload a `join` took.
    unclaimed_cancels: AtomicUsize,
    owner: Waker,
    members: Arc<Members>,
    /// The runtime in which the scope was opened.
    shared: Option<Arc<Shared>>,
    exits: Mutex<Vec<Exit>>,
}

/// A call at the end of a scope, at a given place or by the owner.
struct Exit {
    call: Box<dyn FnOnce()>,
    home: Option<ExitHome>,
}

/// Where a call that is not `Send` is made: by a fiber that is one thread with the fiber that
/// registered the call.
pub(super) struct ExitHome {
    worker: u32,
    ticket: Ticket,
}

// SAFETY: I3. A call that is not `Send` names the worker and the family that registered it, and is
// made there: see the contract of `add_exit_here`. The ticket keeps the family, which is used there
// alone.
unsafe impl Send for Exit {}

impl ScopeCore {
    /// Creates the core of a scope that the caller opens.
    #[track_caller]
    pub(super) fn new() -> Arc<ScopeCore> {
        let current = Current::get();
        let members = match current {
            Some(current) => {
                let cause = current.is_interrupted().then(|| current.fiber.cause()).flatten();
                Members::new(Some(current.address()), cause)
            }
            None => Members::new(None, None),
        };
        Arc::new(ScopeCore {
            running: AtomicUsize::new(0),
            needed: AtomicUsize::new(0),
            unclaimed_panics: AtomicUsize::new(0),
            unclaimed_cancels: AtomicUsize::new(0),
            owner: match current {
                Some(current) => current.waker(),
                None => Waker::Thread(std::thread::current()),
            },
            members,
            shared: current.map(|current| Arc::clone(current.worker.shared())),
            exits: Mutex::default(),
        })
    }

    pub(super) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Returns the runtime in which the scope was opened, and the index of its owner's worker.
    pub(super) fn home(&self) -> Option<(&Arc<Shared>, usize)> {
        Some((self.shared.as_ref()?, self.members.home()?.worker as usize))
    }

    /// Returns the place of the calling fiber. Panics if its worker does not belong to the scope's
    /// runtime, so that the scope could not make calls on it.
    #[track_caller]
    pub(super) fn home_or_panic(&self) -> ExitHome {
        let current = current_or_panic();
        let same =
            self.shared.as_ref().is_some_and(|own| Arc::ptr_eq(own, current.worker.shared()));
        assert!(same, "`on_exit_local` was called in another `cringle::run` than the scope's own");
        ExitHome { worker: current.worker.index(), ticket: Ticket::new(current.fiber.family()) }
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn cancel(&self) {
        cringle_core::emit!(DEBUG, "a scope is cancelled");
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

    fn unclaimed(&self, is_cancel: bool) -> &AtomicUsize {
        if is_cancel { &self.unclaimed_cancels } else { &self.unclaimed_panics }
    }

    /// Records that a `join` took the payload of a cancel or of a panic.
    pub(super) fn claim(&self, is_cancel: bool) {
        self.unclaimed(is_cancel).fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a fiber that is being spawned.
    pub(super) fn enter(self: &Arc<Self>) -> Membership {
        self.needed.fetch_add(1, Ordering::Relaxed);
        self.enter_as(false)
    }

    /// Counts a daemon that is being spawned.
    pub(super) fn enter_daemon(self: &Arc<Self>) -> Membership {
        self.enter_as(true)
    }

    fn enter_as(self: &Arc<Self>, daemon: bool) -> Membership {
        // The count cannot overflow: 2⁶³ fibers do not fit into memory.
        self.running.fetch_add(1, Ordering::Relaxed);
        Membership { core: Arc::clone(self), daemon, place: Cell::new(None) }
    }

    /// Registers a call that the scope's owner makes when the fibers have ended.
    ///
    /// # Safety
    ///
    /// What `call` borrows outlives the scope.
    pub(super) unsafe fn add_exit(&self, call: Box<dyn FnOnce() + Send + '_>) {
        // SAFETY: by this function's contract. A call that is `Send` may be made on any worker.
        unsafe { self.push_exit(call, None) };
    }

    /// Registers a call that is made at the place of the calling fiber, which
    /// [`home_or_panic`](Self::home_or_panic) returned.
    ///
    /// # Safety
    ///
    /// What `call` borrows outlives the scope.
    pub(super) unsafe fn add_exit_here(&self, call: Box<dyn FnOnce() + '_>, home: ExitHome) {
        // SAFETY: by this function's contract.
        unsafe { self.push_exit(call, Some(home)) };
    }

    unsafe fn push_exit(&self, call: Box<dyn FnOnce() + '_>, home: Option<ExitHome>) {
        // SAFETY: I2. The scope makes the call before it ends, and by the callers' contract what it
        // borrows outlives the scope.
        let call =
            unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(call) };
        self.exits().push(Exit { call, home });
    }

    fn exits(&self) -> MutexGuard<'_, Vec<Exit>> {
        self.exits.lock()
    }

    /// Waits for the fibers, and then cancels the daemons and waits for them.
    fn wait_for_fibers(&self, current: Option<Current>) {
        let wait_for = |count: &AtomicUsize| {
            let is_over = || count.load(Ordering::Acquire) == 0;
            let Some(current) = current else { return park_thread_until(is_over) };
            while !is_over() {
                current.suspend_for_fibers(Wait::Scope, Target::of(self));
            }
        };
        while self.running.load(Ordering::Acquire) > 0 {
            wait_for(&self.needed);
            self.members.cancel_daemons();
            wait_for(&self.running);
        }
    }

    /// Waits for the fibers and makes the registered calls, which may spawn fibers again. Returns
    /// the first panic of a call.
    fn finish(&self, current: Option<Current>) -> std::thread::Result<()> {
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
    const KIND: TargetKind = TargetKind::Members;
    const PARTS: &[usize] = &[offset_of!(ScopeCore, running)];

    fn info(&self) -> TargetInfo {
        TargetInfo::Members(self.running())
    }
}

impl Exit {
    fn perform(self, current: Option<Current>) -> std::thread::Result<()> {
        let Some(ExitHome { worker, ticket }) = &self.home else {
            return foreign::call(self.call);
        };
        let (worker, family) = (*worker, ticket.family());
        if current.is_some_and(|current| current.fiber.family() == family) {
            // The ticket is dropped after the call.
            return foreign::call(self.call);
        }
        let perform = move || {
            // The whole value, which is `Send`.
            let exit = self;
            protect(exit.call);
        };
        let builder = Builder::new().worker(worker as usize);
        // SAFETY: I2. This function waits for the fiber's end below, and nothing unwinds before.
        let spawned =
            unsafe { builder.spawn_sent(Some(family.on_worker()), perform, None::<Membership>) };
        let packet: Arc<Packet<()>> = spawned.expect("the worker is one of this runtime");
        packet.wait(|| false);
        packet.take()
    }
}

/// Runs the body of a scope, then `after`, waits until the whole scope has ended, and returns the
/// body's result.
pub(super) fn run_scope<T>(
    core: &ScopeCore,
    body: impl FnOnce() -> T,
    after: &mut dyn FnMut(),
) -> std::thread::Result<T> {
    let (mut body, mut value) = (Some(body), None);
    let ended = hold_open(core, &mut || value = body.take().map(|body| body()), after);
    if ended.is_err()
        && let Some(value) = value.take()
        && let Err(second) = foreign::drop_value(value)
    {
        foreign::discard(second);
    }
    ended.map(|()| value.expect("the body has returned"))
}

/// [`run_scope`] without its types.
#[inline]
fn hold_open(
    core: &ScopeCore,
    body: &mut dyn FnMut(),
    after: &mut dyn FnMut(),
) -> std::thread::Result<()> {
    let current = Current::get();
    let region = Region::of_scope(&core.members);
    // The fibers borrow from the frames above, which stay while this frame does.
    let lent = LentFrame::begin();
    // SAFETY: I12. `within` is dropped below, in this frame. Nothing unwinds the frame before: the
    // panics of the body and of the calls at the end are caught.
    let within = current.map(|current| unsafe { Within::enter(current, &region) });
    current.inspect(|current| current.worker.events().scope_changed(true));
    // The fibers must have ended before this frame is left, also when the body panics.
    let result = unwinding::catch_call(current, body);
    after();
    let finished = core.finish(current);
    current.inspect(|current| current.worker.events().scope_changed(false));
    drop(within);
    lent.end();
    match (result, finished) {
        (Err(payload), Err(second)) => {
            foreign::discard(second);
            Err(payload)
        }
        (result, finished) => result.and(finished),
    }
}

/// A fiber's membership in its scope, which ends when this is dropped.
pub(super) struct Membership {
    core: Arc<ScopeCore>,
    daemon: bool,
    place: Cell<Option<MemberSlot>>,
}

impl Membership {
    pub(super) fn core(&self) -> &Arc<ScopeCore> {
        &self.core
    }

    /// Enters the fiber, which has started, into the list of fibers that a cancel reaches.
    pub(super) fn begin(&self, current: Current) {
        let place = current.enter_scope(&self.core.members, self.daemon);
        self.place.set(Some(place));
    }

    /// Returns whether it is a daemon that the scope has cancelled at its end.
    pub(super) fn is_dismissed(&self) -> bool {
        self.daemon && self.core.members.daemons_are_cancelled()
    }

    /// Records the fiber's result.
    pub(super) fn record<T>(&self, result: &std::thread::Result<T>) {
        if let Err(payload) = result {
            let is_cancel = payload.is::<Cancelled>();
            // A daemon always ends by a cancel.
            if !(is_cancel && self.daemon) {
                self.core.unclaimed(is_cancel).fetch_add(1, Ordering::Relaxed);
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
        // These decrements free the owner's frame, so they are the last touch of it. The core
        // itself stays until this fiber's reference is dropped (I10).
        let last_needed = !self.daemon && core.needed.fetch_sub(1, Ordering::Release) == 1;
        let last = core.running.fetch_sub(1, Ordering::Release) == 1;
        if last_needed || last {
            core.owner.wake();
        }
    }
}
