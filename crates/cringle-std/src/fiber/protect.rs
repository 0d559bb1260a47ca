//! Code that cancels do not reach.

use cringle_core::region::Region;
use cringle_core::worker::{Current, Within};

/// Runs `f` so that nothing in it is cancelled: its operations and waits complete although the
/// fiber is cancelled, before or meanwhile, and so do the fibers of scopes that `f` opens.
/// Afterwards the fiber is cancelled as before. For work that must be completed once begun: a
/// commit, a rename, an answer to a peer. To bound its time, use a
/// [`timeout`](crate::time::timeout) inside of `f`, which does take effect.
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
    // SAFETY: I12. `_within` is dropped when this frame is left, by a return or by an unwinding.
    let _within = Current::get().map(|current| unsafe { Within::enter(current, &region) });
    f()
}
