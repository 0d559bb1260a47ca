//! Where a debugger finds the parts of a fiber's block.

use super::{Cold, Fiber, FiberCoroutine, RunState, Transit, Wait, ops};
use crate::shared::Mail;
use crate::stack::{GUARD_BYTES, PAGE_BYTES, StackBounds};
use crate::wait_target::Target;
use cringle_sys::debug_info::{Field, Table};
use std::mem::offset_of;

const STACK: usize = offset_of!(Fiber, cold) + offset_of!(Cold, stack);
const TRANSIT: usize = offset_of!(Fiber, cold) + offset_of!(Cold, transit);

/// The offsets in [`Fiber`].
pub const FIELDS: [Table<Field>; 2] = [Table::new(BLOCK), Table::new(ops::FIELDS)];

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
