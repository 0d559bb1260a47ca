//! Code that no cancel reaches.

use crate::runtime::region::Region;
use crate::runtime::worker::{Within, Worker};

/// Runs `f` so that nothing in it is cancelled: operations and waits go to their end though the fiber
/// is cancelled, or becomes it meanwhile, and so do the fibers of scopes that `f` opens. Afterwards
/// the fiber is cancelled as before. For what must be done once it was begun: a commit, a rename, an
/// answer to a peer. Bound it by a [`timeout`](crate::time::timeout) within: that one counts.
///
/// ```
/// use cringle::{cancel, fiber};
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         s.cancel();
///         assert!(cancel::check().is_err());
///         fiber::protect(|| {
///             assert!(cancel::check().is_ok());
///             fiber::yield_now();
///         });
///         assert!(cancel::check().is_err());
///     });
/// });
/// ```
pub fn protect<T>(f: impl FnOnce() -> T) -> T {
    let region = Region::shielded();
    // SAFETY: it is dropped when this frame goes, which it does by a return or an unwinding.
    let _within =
        Worker::current().map(|(worker, fiber)| unsafe { Within::enter(worker, fiber, &region) });
    f()
}
