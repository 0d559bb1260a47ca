//! What the library tells the `tracing` crate of what it does (feature `tracing`): nothing without it.
//!
//! Only from a fiber's own stack, or outside of any runtime, and where no borrow is held: who listens may
//! be any code, which may wait as the fiber's own may.

macro_rules! debug {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "cringle", $($event)*);
    };
}

macro_rules! trace {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::trace!(target: "cringle", $($event)*);
    };
}

pub(crate) use {debug, trace};
