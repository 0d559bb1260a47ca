//! Keeping the calling fiber on its worker.

use cringle_core::family::FamilyRef;
use cringle_core::worker::Current;
use std::marker::PhantomData;

/// Keeps the calling fiber, and the fibers that share its thread-locals, on its worker until the
/// value is dropped. It matters where fibers [move](cringle_core::choices::Balance::Moving): for
/// code that relies on what the kernel keeps of a thread, such as its affinity, between two waits.
/// Outside of a fiber it does nothing.
///
/// ```
/// use cringle::{fiber, runtime};
///
/// cringle::run(|| {
///     let pin = fiber::pin();
///     let worker = runtime::worker();
///     fiber::yield_now();
///     assert_eq!(runtime::worker(), worker);
///     drop(pin);
/// });
/// ```
pub fn pin() -> Pin {
    // A family that never moves may end before the value, which may lie in a thread's locals.
    let family = Current::identity().map(|fiber| fiber.family());
    let family = family.filter(|family| family.has_own_locals());
    family.inspect(|family| family.pin());
    Pin { family, not_send: PhantomData }
}

/// The result of [`pin`].
///
/// ```
/// let pin: cringle::fiber::Pin = cringle::fiber::pin();
/// # drop(pin);
/// ```
#[must_use = "the fiber may move again when this is dropped"]
pub struct Pin {
    /// It exists until this is dropped: this is not `Send`, so it lies in a frame or in the
    /// thread-locals of the family, which are gone when the family ends.
    family: Option<FamilyRef>,
    not_send: PhantomData<*const ()>,
}

// It only counts.
impl std::panic::UnwindSafe for Pin {}
impl std::panic::RefUnwindSafe for Pin {}

impl Drop for Pin {
    fn drop(&mut self) {
        self.family.inspect(|family| family.unpin());
    }
}

opaque_debug!(Pin);
