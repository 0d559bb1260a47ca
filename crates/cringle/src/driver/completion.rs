//! Where an op's result lands: in the frame that waits for it.
//!
//! There is no table of pending requests and no allocation: a cqe's `user_data` is the address of
//! a [`Completion`], which points to the [`Waiter`] of its frame. Both are borrowed by the driver
//! from `push` until the waiter's count is back to zero, and the frame's owner must not move,
//! free or reuse them before (**I1**).

use super::op::{Op, OpName};
use crate::trace::Recorder;
use std::cell::Cell;
use std::ptr::NonNull;

/// What the driver hands back when everything a waiter asked for has ended. Opaque here.
pub(crate) type Token = NonNull<()>;

/// One frame that waits: for a single op, or for a whole batch.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Entries of the completion queue still owed to this frame: its ops, and the cancels of them.
    owed: Cell<u32>,
    token: Token,
}

impl Waiter {
    pub(crate) fn new(token: Token) -> Waiter {
        Waiter { owed: Cell::new(0), token }
    }

    /// Nothing is owed: the frame is its owner's again.
    pub(crate) fn is_settled(&self) -> bool {
        self.owed.get() == 0
    }

    /// One more entry of the completion queue will come for this frame.
    pub(super) fn owe(&self) {
        self.owed.set(self.owed.get() + 1);
    }

    /// One has come. Returns the token when it was the last.
    pub(super) fn settle_one(&self) -> Option<Token> {
        let owed = self.owed.get();
        debug_assert!(owed > 0, "a completion came twice");
        self.owed.set(owed - 1);
        (owed == 1).then_some(self.token)
    }
}

/// Where the op stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpState {
    /// Not given to the driver yet.
    New,
    /// Its last cqe has not come.
    InFlight,
    /// It has a result.
    Done,
}

/// Where the wish to cancel it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CancelState {
    No,
    /// Waits in the driver's backlog for room in the submission queue.
    Queued,
    /// Given to the kernel; its own cqe is owed.
    InFlight,
    /// The kernel could not yet; it is asked again later.
    Again,
}

/// The state of one op. Its address is the op's `user_data`; the low bits are the driver's.
#[derive(Debug)]
#[repr(align(16))]
pub(crate) struct Completion {
    waiter: Cell<*const Waiter>,
    result: Cell<i32>,
    state: Cell<OpState>,
    pub(super) cancel: Cell<CancelState>,
    pub(super) cancel_tries: Cell<u8>,
    /// Which place of the driver's backlog is its cancel's, while that is queued there.
    pub(super) cancel_place: Cell<u64>,
    op_name: Cell<OpName>,
    /// It takes one of the places that the limit is about.
    takes_place: Cell<bool>,
    /// The result is in; the kernel has yet to let go of the memory.
    noted: Cell<bool>,
    /// Its number in the trace, 0 if it was queued without one.
    traced: Cell<u32>,
}

impl Completion {
    pub(crate) fn new() -> Completion {
        Completion {
            waiter: Cell::new(std::ptr::null()),
            result: Cell::new(0),
            state: Cell::new(OpState::New),
            cancel: Cell::new(CancelState::No),
            cancel_tries: Cell::new(0),
            cancel_place: Cell::new(0),
            op_name: Cell::new(OpName::Nop),
            takes_place: Cell::new(true),
            noted: Cell::new(false),
            traced: Cell::new(0),
        }
    }

    /// The op's result: a count or a descriptor, or a negated errno.
    pub(crate) fn result(&self) -> i32 {
        debug_assert_eq!(self.state.get(), OpState::Done);
        self.result.get()
    }

    /// What a person calls the op.
    pub(crate) fn op_name(&self) -> &'static str {
        self.op_name.get().as_str()
    }

    pub(crate) fn state(&self) -> OpState {
        self.state.get()
    }

    /// Ends the op without the kernel: it was never submitted.
    pub(crate) fn refuse(&self, result: i32) {
        debug_assert_eq!(self.state.get(), OpState::New);
        self.result.set(result);
        self.state.set(OpState::Done);
    }

    #[inline]
    pub(super) fn start(&self, op: &Op, waiter: *const Waiter) {
        debug_assert_eq!(self.state.get(), OpState::New);
        self.waiter.set(waiter);
        self.op_name.set(op.name());
        self.takes_place.set(!op.waits_for_peer());
        self.state.set(OpState::InFlight);
        self.waiter_ref().owe();
        Recorder::with(|recorder| self.traced.set(recorder.op_pushed(op.name() as u8)));
    }

    pub(super) fn finish(&self, result: i32) {
        debug_assert_eq!(self.state.get(), OpState::InFlight, "one cqe too many for an op");
        self.result.set(result);
        self.state.set(OpState::Done);
        Recorder::with(|recorder| {
            recorder.op_completed(self.op_name.get() as u8, self.traced.get(), result);
        });
    }

    /// Whether it counts against the limit of ops in flight.
    #[inline]
    pub(super) fn takes_place(&self) -> bool {
        self.takes_place.get()
    }

    /// An entry that is not the op's last: its result counts, the frame stays.
    pub(super) fn note(&self, result: i32) {
        self.result.set(result);
        self.noted.set(true);
    }

    /// Whether only the last entry is still to come. Nobody can hasten it.
    pub(super) fn is_noted(&self) -> bool {
        self.noted.get()
    }

    /// The result that came before the last entry.
    pub(super) fn noted(&self) -> i32 {
        self.result.get()
    }

    pub(super) fn waiter_ref(&self) -> &Waiter {
        debug_assert!(!self.waiter.get().is_null());
        // SAFETY: I1. `start` stored the address of a waiter that its frame keeps alive and in
        // place until nothing is owed to it; the driver asks only while something is.
        unsafe { &*self.waiter.get() }
    }
}

/// One op of a batch and its completion, side by side in the memory of what waits for them.
#[derive(Debug)]
pub(crate) struct OpSlot {
    pub(crate) op: Op,
    pub(crate) completion: Completion,
}

impl OpSlot {
    #[inline]
    pub(crate) fn new(op: Op) -> OpSlot {
        OpSlot { op, completion: Completion::new() }
    }
}

const _: () =
    assert!(size_of::<Completion>() == 32, "a completion is written on every call: keep it small");
const _: () = assert!(align_of::<Completion>() >= 16, "the low bits of user_data are tags");
