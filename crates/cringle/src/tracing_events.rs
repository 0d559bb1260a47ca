//! Events for the `tracing` crate (feature `tracing`). Without the feature the macros expand to
//! nothing.
//!
//! Each event names the fiber that causes it, by the fields `fiber` (its name) and `fiber_id` (the
//! number of its [`ThreadId`](crate::fiber::ThreadId)); outside of any fiber it has neither. They
//! are evaluated only for a subscriber that wants the event.
//!
//! A subscriber is foreign code (**I13**), and `tracing` borrows the subscriber's state while it
//! calls it. So the subscriber is called beside the fiber: its waits are plain ones, and its panics
//! are caught. Emit events only where no borrow is held.

macro_rules! debug {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        $crate::tracing_events::report!(
            DEBUG,
            tracing::debug!(
                target: "cringle",
                fiber = $crate::runtime::event_cause::EventCause::now().name(),
                fiber_id = $crate::runtime::event_cause::EventCause::now().number(),
                $($event)*
            )
        );
    };
}

macro_rules! trace {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        $crate::tracing_events::report!(
            TRACE,
            tracing::trace!(
                target: "cringle",
                fiber = $crate::runtime::event_cause::EventCause::now().name(),
                fiber_id = $crate::runtime::event_cause::EventCause::now().number(),
                $($event)*
            )
        );
    };
}

#[cfg(feature = "tracing")]
macro_rules! report {
    ($level:ident, $event:expr) => {
        // A disabled level costs a load and a comparison.
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
