//! The program's code on a fiber: its identity, and the destructors of its locals.

use super::FiberRef;
use crate::foreign;
use crate::identity::Meta;
use crate::label::Origin;
use crate::spans;
use crate::unwinding;
use crate::worker::Current;
use std::ptr::NonNull;

/// Runs `f` on a fiber that has no handle and belongs to no scope.
pub fn run_root_body(name: &str, origin: Origin, f: &mut dyn FnMut()) -> std::thread::Result<()> {
    let current = Current::get().expect("called on a fiber");
    current.enter_root();
    current.worker.outer_spans.enter();
    let mut result = Ok(());
    run_body(&Meta::new(Some(name.into()), origin), f, &mut |ended| result = ended);
    result
}

/// Runs a fiber's closure, passes `then` the payload if the closure unwinds, and runs the
/// destructors of the fiber's locals.
#[inline]
pub fn run_body(meta: &Meta, f: &mut dyn FnMut(), then: &mut dyn FnMut(std::thread::Result<()>)) {
    with_identity(meta, &mut || {
        let result = unwinding::catch_apart(f);
        if result.is_err() {
            unwinding::has_ended();
        }
        then(result);
    });
}

/// Runs `f` as code of the calling fiber, which has the name and identity of `meta` meanwhile. Then
/// drops the locals that `f` made.
#[inline]
pub fn with_identity(meta: &Meta, f: &mut dyn FnMut()) {
    let current = Current::get().expect("a fiber's body runs on a worker");
    current.worker.events().named(current.fiber, meta);
    // SAFETY: I2. The caller's frame holds `meta`, and it is cleared below; callers let nothing
    // unwind out of `f`.
    unsafe { current.fiber.set_meta(Some(NonNull::from(meta))) };
    spans::begin_body(current);
    f();
    destroy_locals(current.fiber);
    spans::end_body(current);
    current.end_thread_locals();
    // SAFETY: the contract asks nothing of a call that clears.
    unsafe { current.fiber.set_meta(None) };
}

/// Drops the fiber's locals, the last one made first, and the locals that destructors make. Keys
/// stay taken until all are gone, so each local is made at most once more.
fn destroy_locals(fiber: FiberRef) {
    loop {
        let last = fiber.locals().borrow_mut().iter_mut().rev().find_map(|(_, value)| value.take());
        let Some(last) = last else { break };
        if let Err(_payload) = foreign::drop_value(last) {
            // As std does for a thread's locals. The payload is not dropped, because that may panic
            // too.
            cringle_sys::report(format_args!("the destructor of a fiber-local panicked; aborting"));
            std::process::abort();
        }
    }
    fiber.locals().borrow_mut().clear();
}
