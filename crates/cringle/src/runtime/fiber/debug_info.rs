//! Where a debugger finds the parts of a fiber's block; and a copy of a block for other threads,
//! which read its parts there, too.

use super::{Cold, Fiber, FiberCoroutine, RunState, Transit, WAIT_PHRASES, Wait, ops};
use crate::runtime::label::Label;
use crate::runtime::shared::Mail;
use crate::runtime::stack::{GUARD_BYTES, PAGE_BYTES, StackBounds};
use crate::runtime::wait_target::Target;
use crate::sys;
use crate::sys::debug_info::{Field, Table};
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::NonNull;

const WORD: usize = size_of::<usize>();

const STACK: usize = offset_of!(Fiber, cold) + offset_of!(Cold, stack);
const TRANSIT: usize = offset_of!(Fiber, cold) + offset_of!(Cold, transit);

/// The offsets in [`Fiber`].
pub(in crate::runtime) const FIELDS: [Table<Field>; 2] =
    [Table::new(BLOCK), Table::new(ops::FIELDS)];

const BLOCK: &[Field] = &[
    Field::new("fiber.index", offset_of!(Fiber, index)),
    Field::new("fiber.generation", offset_of!(Fiber, generation)),
    Field::new("fiber.state", offset_of!(Fiber, state)),
    Field::new("fiber.coroutine", offset_of!(Fiber, coroutine)),
    Field::new("fiber.coroutine.size", size_of::<Option<FiberCoroutine>>()),
    Field::new("fiber.yielder", offset_of!(Fiber, yielder)),
    Field::new("fiber.cancelled", offset_of!(Fiber, cancelled)),
    Field::new("fiber.since_ns", offset_of!(Fiber, since_ns)),
    Field::new("fiber.target.object", offset_of!(Fiber, target) + Target::OBJECT),
    Field::new("fiber.target.form", offset_of!(Fiber, target) + Target::FORM),
    Field::new("fiber.meta", offset_of!(Fiber, cold) + offset_of!(Cold, meta)),
    Field::new("fiber.stack.guard", STACK + StackBounds::GUARD),
    Field::new("fiber.stack.bytes", STACK + StackBounds::BYTES),
    Field::new("stack.guard_bytes", GUARD_BYTES),
    Field::new("stack.spare_bytes", PAGE_BYTES),
    Field::new("fiber.host", TRANSIT + Transit::<Mail>::HOST),
    Field::new("fiber.size", size_of::<Fiber>()),
    Field::new("state.vacant", byte(RunState::Vacant)),
    Field::new("state.runnable", byte(RunState::Runnable)),
    Field::new("wait.ops", byte(RunState::Waiting(Wait::Ops))),
    Field::new("wait.sleep", byte(RunState::Waiting(Wait::Sleep))),
    Field::new("wait.park", byte(RunState::Waiting(Wait::Park))),
    Field::new("wait.lock", byte(RunState::Waiting(Wait::Lock))),
    Field::new("wait.permit", byte(RunState::Waiting(Wait::Permit))),
];

/// The byte by which memory holds a state. A wait's is its number.
const fn byte(state: RunState) -> usize {
    // SAFETY: I3. The sizes are equal, or this does not compile, and each byte is a `u8`.
    (unsafe { std::mem::transmute::<RunState, u8>(state) }) as usize
}

const _: () = assert!(byte(RunState::Waiting(Wait::Ops)) == Wait::Ops as usize);
const _: () = assert!(byte(RunState::Waiting(Wait::Answers)) == Wait::Answers as usize);
// No target is a null form.
const _: () = assert!(size_of::<Option<Target<'static>>>() == size_of::<Target<'static>>());

/// A copy of a block that another worker's thread may change meanwhile.
pub(in crate::runtime) struct RemoteFiber([u8; size_of::<Fiber>()]);

impl RemoteFiber {
    /// Has the kernel copy the block; `None` if it is gone.
    pub(in crate::runtime) fn read(block: NonNull<Fiber>) -> Option<RemoteFiber> {
        let mut copy = [0; size_of::<Fiber>()];
        sys::read_own(block.as_ptr().addr(), &mut copy).then_some(RemoteFiber(copy))
    }

    /// What other threads may read in the block itself.
    ///
    /// # Safety
    ///
    /// I2: the block exists until the label is no longer used.
    pub(in crate::runtime) unsafe fn label<'a>(block: NonNull<Fiber>) -> &'a Label {
        // SAFETY: I2, by the contract. Only the label is touched, which any thread may read.
        unsafe { &(*block.as_ptr()).cold.label }
    }

    /// The number of the worker that hosts it.
    pub(in crate::runtime) fn host(&self) -> usize {
        self.word(TRANSIT + Transit::<Mail>::HOST)
    }

    /// The object of its wait; `None` if it is ready to run.
    pub(in crate::runtime) fn wait(&self) -> Option<&'static str> {
        WAIT_PHRASES.get(usize::from(self.0[offset_of!(Fiber, state)])).copied()
    }

    /// The part of its stack that it uses, if it has begun and is suspended. (Of the running fiber
    /// it is the part that it used before.)
    pub(in crate::runtime) fn suspended_stack(&self) -> Option<Range<usize>> {
        let state = usize::from(self.0[offset_of!(Fiber, state)]);
        if state == byte(RunState::Vacant) || self.word(offset_of!(Fiber, yielder)) == 0 {
            return None;
        }
        let low = self.word(STACK + StackBounds::GUARD).checked_add(GUARD_BYTES)?;
        let high =
            low.checked_add(self.word(STACK + StackBounds::BYTES))?.checked_add(PAGE_BYTES)?;
        // The coroutine holds the saved stack pointer, the initial one, and the top of the stack.
        let words = (0..size_of::<Option<FiberCoroutine>>() / WORD)
            .map(|at| self.word(offset_of!(Fiber, coroutine) + at * WORD));
        let pointers = words.filter(|&word| low < word && word <= high);
        (pointers.clone().count() == 3).then(|| pointers.min())?.map(|pointer| pointer..high)
    }

    fn word(&self, at: usize) -> usize {
        let mut word = [0; WORD];
        word.copy_from_slice(&self.0[at..at + WORD]);
        usize::from_ne_bytes(word)
    }
}
