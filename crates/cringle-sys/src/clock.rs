//! The library's own look at the clock.

use std::time::Instant;

/// Returns the time of the monotonic clock, by which the library's timers go. An interposed
/// `clock_gettime` shows it even on a fiber whose clock is ahead.
#[inline(always)]
pub fn now() -> Instant {
    if super::is_interposed() {
        return interposed::now();
    }
    Instant::now()
}

pub use interposed::is_own_look;

mod interposed {
    use std::cell::Cell;
    use std::time::Instant;

    thread_local! {
        static OWN: Cell<bool> = const { Cell::new(false) };
    }

    #[inline]
    pub(super) fn now() -> Instant {
        OWN.set(true);
        let now = Instant::now();
        OWN.set(false);
        now
    }

    /// Whether the caller, an interposed `clock_gettime`, is within [`now`](super::now).
    pub fn is_own_look() -> bool {
        OWN.get()
    }
}
