//! The frame's side of an op: where its result is stored.
//!
//! There is no table of pending requests and no allocation: a cqe's `user_data` is the address of a
//! [`Completion`], which points to the [`Waiter`] of its frame. The driver borrows both from `push`
//! until the waiter's count is zero again. The frame's owner must not move, free or reuse them in
//! between (**I1**).

use super::op::{Op, OpDescription, OpName};
use crate::trace::Recorder;
use cringle_sys::debug_info::Field;
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr::NonNull;

/// Names a frame towards the runtime, which alone knows what it points to. The driver returns it
/// once it owes that frame nothing more.
pub type Token = NonNull<()>;

/// A frame that waits for one op or for a batch of them.
#[derive(Debug)]
pub struct Waiter {
    /// The completion queue entries that are still owed to this frame, for its ops and their
    /// cancels.
    owed: Cell<u32>,
    token: Token,
}

impl Waiter {
    pub fn new(token: Token) -> Waiter {
        Waiter { owed: Cell::new(0), token }
    }

    /// Whether nothing is owed: the frame is its owner's again.
    pub fn is_settled(&self) -> bool {
        self.owed.get() == 0
    }

    /// Counts one more entry that will arrive for this frame.
    pub fn owe(&self) {
        self.owed.set(self.owed.get() + 1);
    }

    /// Counts one entry as arrived. Returns the token after the last one.
    pub fn settle_one(&self) -> Option<Token> {
        let owed = self.owed.get();
        debug_assert!(owed > 0, "I5: the driver settled an entry that it did not owe");
        self.owed.set(owed - 1);
        (owed == 1).then_some(self.token)
    }
}

/// The progress of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpState {
    /// Not given to a driver yet.
    New,
    /// Not for a driver: its owner performs the op by other means.
    Apart,
    /// Given to a driver; its last cqe has not been reaped.
    InFlight,
    /// It has its result.
    Done,
}

/// The progress of an op's cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelState {
    /// None is requested, or the last one has been answered.
    No,
    /// It waits in the driver's backlog for room in the submission queue.
    Queued,
    /// The kernel has it; its own cqe is owed.
    InFlight,
    /// The kernel could not cancel the op yet; the driver asks again later.
    RetryLater,
}

/// What has arrived of an op that takes two entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Arrived {
    /// Nothing; or the op takes one entry.
    Nothing,
    /// Nothing, and the op ends when both its result and its release have arrived.
    NothingOfTwo,
    /// The result: the kernel still uses the op's memory or its file.
    Result,
    /// The release. (The kernel failed to start the op.)
    Release,
}

/// The state of one op. Its address is the op's `user_data`; the driver uses the low bits as tags.
#[derive(Debug)]
#[repr(align(16))]
pub struct Completion {
    waiter: Cell<*const Waiter>,
    /// While the op is in flight: its number in the trace, 0 if no trace recorded its push.
    result: Cell<i32>,
    state: Cell<OpState>,
    pub cancel: Cell<CancelState>,
    pub cancel_attempts: Cell<u8>,
    /// The cancel's place in the driver's backlog while it is queued there. On a ring, the op's
    /// [place](OpDescription::place) until then. On epoll, the op's number.
    pub(super) cancel_place: Cell<u64>,
    op_name: Cell<OpName>,
    /// See [`OpDescription::file`].
    file: Cell<i32>,
    /// Whether `cancel_place` holds the op's place.
    has_place: Cell<bool>,
    /// Whether the op counts against the limit of ops in flight.
    counts_against_limit: Cell<bool>,
    arrived: Cell<Arrived>,
}

default_by_new!(Completion);

impl Completion {
    pub fn new() -> Completion {
        Completion {
            waiter: Cell::new(std::ptr::null()),
            result: Cell::new(0),
            state: Cell::new(OpState::New),
            cancel: Cell::new(CancelState::No),
            cancel_attempts: Cell::new(0),
            cancel_place: Cell::new(0),
            op_name: Cell::new(OpName::Nop),
            file: Cell::new(-1),
            has_place: Cell::new(false),
            counts_against_limit: Cell::new(true),
            arrived: Cell::new(Arrived::Nothing),
        }
    }

    /// The op's result: a count or a descriptor, or a negated errno.
    pub fn result(&self) -> i32 {
        debug_assert_eq!(self.state.get(), OpState::Done, "I1: a result was read too early");
        self.result.get()
    }

    /// The op as the object of "waits for".
    pub fn op_name(&self) -> &'static str {
        self.op_name.get().as_str()
    }

    /// Describes the op by what the completion has kept of it.
    pub fn describe(&self) -> OpDescription {
        let place = self.has_place.get().then(|| self.cancel_place.get());
        OpDescription { name: self.op_name.get(), file: self.file.get(), place }
    }

    /// Keeps the op's file and place for reports, because the op itself need not outlive its push.
    /// The stores go to memory that only a cancel needs otherwise.
    #[inline(always)]
    pub(super) fn keep_description(&self, op: &Op) {
        let (file, place) = op.file_and_place();
        self.file.set(file);
        self.cancel_place.set(place);
        self.has_place.set(true);
    }

    /// Keeps the op's file, for debuggers. The description is the driver's.
    pub(super) fn keep_file(&self, op: &Op) {
        self.file.set(op.file_and_place().0);
    }

    /// Overwrites the op's place, whose memory the cancel needs.
    pub(super) fn set_cancel_place(&self, place: u64) {
        self.has_place.set(false);
        self.cancel_place.set(place);
    }

    pub fn state(&self) -> OpState {
        self.state.get()
    }

    /// Keeps the op from the driver.
    pub fn set_apart(&self) {
        debug_assert_eq!(self.state.get(), OpState::New, "I5: a driver has this op already");
        self.state.set(OpState::Apart);
    }

    /// Ends an op that no driver was given, or replaces the result of one that has ended.
    pub fn refuse(&self, result: i32) {
        debug_assert_ne!(self.state.get(), OpState::InFlight, "I5: a driver has this op");
        self.result.set(result);
        self.state.set(OpState::Done);
    }

    /// Inlined, so that an op of a known kind need not be in memory for it.
    #[inline(always)]
    pub fn start(&self, op: &Op, waiter: *const Waiter) {
        self.start_named(op.name(), op.waits_for_peer(), waiter);
    }

    #[inline]
    fn start_named(&self, name: OpName, waits_for_peer: bool, waiter: *const Waiter) {
        debug_assert_eq!(self.state.get(), OpState::New, "I1: a completion serves one op");
        debug_assert_eq!(self.cancel.get(), CancelState::No, "I9: a cancel of another op is left");
        self.waiter.set(waiter);
        self.op_name.set(name);
        self.counts_against_limit.set(!waits_for_peer);
        self.state.set(OpState::InFlight);
        self.waiter_ref().owe();
        Recorder::with(|recorder| self.result.set(recorder.op_pushed(name as u8) as i32));
    }

    /// Stores the result with the op's last entry.
    #[inline]
    pub fn finish(&self, result: i32) {
        debug_assert_eq!(self.state.get(), OpState::InFlight, "I5: an op was answered twice");
        debug_assert!(
            matches!(self.cancel.get(), CancelState::No | CancelState::InFlight),
            "I9: a cancel of an op that has ended is still queued"
        );
        if self.arrived.get() != Arrived::Result {
            self.trace(result);
        }
        self.result.set(result);
        self.state.set(OpState::Done);
    }

    /// Records the op's end in the trace.
    #[inline]
    fn trace(&self, result: i32) {
        Recorder::with(|recorder| {
            let number = self.result.get() as u32;
            recorder.op_completed(self.op_name.get() as u8, number, result);
        });
    }

    /// Whether the op counts against the limit of ops in flight.
    #[inline]
    pub fn counts_against_limit(&self) -> bool {
        self.counts_against_limit.get()
    }

    /// Stores the result of an op whose last entry has yet to arrive: the frame stays.
    pub fn set_early_result(&self, result: i32) {
        debug_assert_eq!(self.state.get(), OpState::InFlight, "I5: an op was answered twice");
        self.trace(result);
        self.result.set(result);
        self.arrived.set(Arrived::Result);
    }

    /// Makes the op end only when the kernel has released its file: see
    /// [`Op::may_keep_file`](super::op::Op::may_keep_file).
    pub(super) fn await_release(&self) {
        self.arrived.set(Arrived::NothingOfTwo);
    }

    /// Takes the op's entry with the result. Returns the result if the op has ended.
    #[inline]
    pub(super) fn take_result(&self, result: i32) -> Option<i32> {
        if self.arrived.get() == Arrived::NothingOfTwo {
            self.set_early_result(result);
            return None;
        }
        Some(result)
    }

    /// Takes the entry of the op's release. Returns the result if the op has ended. The entries
    /// may arrive in either order.
    pub(super) fn take_release(&self) -> Option<i32> {
        if self.arrived.get() == Arrived::Result {
            return Some(self.result.get());
        }
        debug_assert_eq!(self.arrived.get(), Arrived::NothingOfTwo, "I5: a release was not owed");
        self.arrived.set(Arrived::Release);
        None
    }

    /// The result that arrived before the last entry.
    pub(super) fn early_result(&self) -> i32 {
        debug_assert_eq!(
            self.arrived.get(),
            Arrived::Result,
            "I5: a last entry without a result before it"
        );
        self.result.get()
    }

    /// Whether a cancel of the op can still have an effect. It has none once the result has
    /// arrived, although the kernel still uses the op's memory or its file.
    pub fn is_cancellable(&self) -> bool {
        self.state.get() == OpState::InFlight && self.arrived.get() != Arrived::Result
    }

    pub fn waiter_ref(&self) -> &Waiter {
        debug_assert!(!self.waiter.get().is_null(), "a completion without a waiter");
        // SAFETY: I1. `start` stored the address of a waiter, which by `push`'s contract stays in
        // place until nothing is owed to it. The driver calls this only for an op in flight, or for
        // a cancel whose cqe is owed.
        unsafe { &*self.waiter.get() }
    }
}

/// One op of a batch beside its completion, in memory that the waiting frame owns.
#[derive(Debug)]
pub struct OpSlot {
    pub op: Op,
    pub completion: Completion,
}

impl OpSlot {
    #[inline]
    pub fn new(op: Op) -> OpSlot {
        OpSlot { op, completion: Completion::new() }
    }

    /// The slot that a completion is part of.
    ///
    /// # Safety
    ///
    /// The completion is part of a slot, and its address was derived from that slot's.
    pub unsafe fn of(completion: *const Completion) -> NonNull<OpSlot> {
        // SAFETY: by the contract, the slot begins so many bytes before its completion, within the
        // same allocation; so the address is in bounds and not null.
        unsafe {
            let slot = completion.byte_sub(std::mem::offset_of!(OpSlot, completion));
            NonNull::new_unchecked(slot.cast::<OpSlot>().cast_mut())
        }
    }
}

/// Where a debugger finds the parts of an op.
pub const FIELDS: &[Field] = &[
    Field::new("completion.result", offset_of!(Completion, result)),
    Field::new("completion.state", offset_of!(Completion, state)),
    Field::new("completion.place", offset_of!(Completion, cancel_place)),
    Field::new("completion.name", offset_of!(Completion, op_name)),
    Field::new("completion.file", offset_of!(Completion, file)),
    Field::new("completion.has_place", offset_of!(Completion, has_place)),
    Field::new("op_state.in_flight", OpState::InFlight as usize),
];

/// Prefetches the cache line at an address, which may be invalid.
#[inline(always)]
pub fn prefetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no memory is accessed: a prefetch is a hint, which faults at no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

// A completion is written on every call.
const _: () = assert!(size_of::<Completion>() == 32 && size_of::<OpSlot>() == 64);
const _: () = assert!(align_of::<Completion>() >= 16, "the low bits of user_data are tags");
