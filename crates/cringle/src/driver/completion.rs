//! Where an op's result lands: in the frame that waits for it.
//!
//! There is no table of pending requests and no allocation: a cqe's `user_data` is the address of
//! a [`Completion`], which points to the [`Waiter`] of its frame. Both are borrowed by the driver
//! from `push` until the waiter's count is back to zero, and the frame's owner must not move,
//! free or reuse them before (**I1**).

use super::about::{About, OpName};
use super::op::Op;
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
    /// Before there is one: the op's number in the trace, 0 if it was queued without one.
    result: Cell<i32>,
    state: Cell<OpState>,
    pub(super) cancel: Cell<CancelState>,
    pub(super) cancel_tries: Cell<u8>,
    /// Which place of the driver's backlog is its cancel's, while that is queued there.
    pub(super) cancel_place: Cell<u64>,
    op_name: Cell<OpName>,
    /// The file that the op is about, as [`Op::file`] says.
    file: Cell<i32>,
    /// `cancel_place` is not needed for a cancel yet, and says where in the file, or what else.
    placed: Cell<bool>,
    /// It takes one of the places that the limit is about.
    takes_place: Cell<bool>,
    /// The result is in; the kernel has yet to let go of the memory.
    noted: Cell<bool>,
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
            file: Cell::new(-1),
            placed: Cell::new(false),
            takes_place: Cell::new(true),
            noted: Cell::new(false),
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

    /// What is still known of the op here.
    pub(super) fn about(&self) -> About {
        let place = self.placed.get().then(|| self.cancel_place.get());
        About { name: self.op_name.get(), file: self.file.get(), place }
    }

    /// Keeps what the op is about: the op itself need not outlive its push. It costs two stores, into
    /// memory that is not used before a cancel.
    #[inline(always)]
    pub(super) fn keep(&self, op: &Op) {
        self.file.set(op.file());
        self.cancel_place.set(op.place());
        self.placed.set(true);
    }

    /// For a cancel, which needs the memory.
    pub(super) fn set_cancel_place(&self, place: u64) {
        self.placed.set(false);
        self.cancel_place.set(place);
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
        Recorder::with(|recorder| self.result.set(recorder.op_pushed(op.name() as u8) as i32));
    }

    pub(super) fn finish(&self, result: i32) {
        debug_assert_eq!(self.state.get(), OpState::InFlight, "one cqe too many for an op");
        if !self.noted.get() {
            self.trace(result);
        }
        self.result.set(result);
        self.state.set(OpState::Done);
    }

    /// Its result is here.
    #[inline]
    fn trace(&self, result: i32) {
        Recorder::with(|recorder| {
            let number = self.result.get() as u32;
            recorder.op_completed(self.op_name.get() as u8, number, result);
        });
    }

    /// Whether it counts against the limit of ops in flight.
    #[inline]
    pub(super) fn takes_place(&self) -> bool {
        self.takes_place.get()
    }

    /// An entry that is not the op's last: its result counts, the frame stays.
    pub(super) fn note(&self, result: i32) {
        self.trace(result);
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

    /// The slot that a completion is in.
    ///
    /// # Safety
    ///
    /// It is in one, and the address comes from there.
    pub(crate) unsafe fn of(completion: *const Completion) -> NonNull<OpSlot> {
        // SAFETY: by the contract.
        unsafe {
            let slot = completion.byte_sub(std::mem::offset_of!(OpSlot, completion));
            NonNull::new_unchecked(slot.cast::<OpSlot>().cast_mut())
        }
    }
}

// A completion is written on every call.
const _: () = assert!(size_of::<Completion>() == 32 && size_of::<OpSlot>() == 64);
const _: () = assert!(align_of::<Completion>() >= 16, "the low bits of user_data are tags");
