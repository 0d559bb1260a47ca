//! The events that the library reports to the `tracing` crate (feature `tracing`): none without it.
//!
//! A subscriber is foreign code (**I13**), and `tracing` itself holds the subscriber's state while it is called. So
//! it is called beside the fiber: its waits are plain ones, and a panic of it ends there. Report only where no
//! borrow is held.

macro_rules! debug {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        $crate::tracing_events::report!(DEBUG, tracing::debug!(target: "cringle", $($event)*));
    };
}

macro_rules! trace {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        $crate::tracing_events::report!(TRACE, tracing::trace!(target: "cringle", $($event)*));
    };
}

#[cfg(feature = "tracing")]
macro_rules! report {
    ($level:ident, $event:expr) => {
        // What a disabled level costs: a load and a comparison.
        if tracing::level_filters::LevelFilter::current()
            >= tracing::level_filters::LevelFilter::$level
        {
            $crate::runtime::foreign::call_beside(|| $event);
        }
    };
}

#[cfg(feature = "tracing")]
pub(crate) use report;
pub(crate) use {debug, trace};
