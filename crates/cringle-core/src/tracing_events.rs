//! Events for the `tracing` crate (feature `tracing`). Without the feature `emit!` expands
//! to nothing.
//!
//! Each event names the fiber that causes it, by the fields `fiber` (its name) and `fiber_id` (the
//! number of its `ThreadId`); outside of any fiber it has neither. They are evaluated only for a
//! subscriber that wants the event.
//!
//! A subscriber is foreign code (**I13**), and `tracing` borrows the subscriber's state while it
//! calls it. So the subscriber is called beside the fiber: its waits are plain ones, and its panics
//! are caught. Emit events only where no borrow is held.

/// Emits an event of a level: `emit!(DEBUG, workers = 2, "run")`.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! emit {
    ($level:ident, $($event:tt)*) => {
        // A disabled level costs a load and a comparison.
        if $crate::tracing::level_filters::LevelFilter::current()
            >= $crate::tracing::level_filters::LevelFilter::$level
        {
            $crate::foreign::call_beside(|| $crate::tracing::event!(
                target: "cringle",
                $crate::tracing::Level::$level,
                fiber = $crate::event_cause::EventCause::now().name(),
                fiber_id = $crate::event_cause::EventCause::now().number(),
                $($event)*
            ));
        }
    };
}

/// See the module.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! emit {
    ($($event:tt)*) => {};
}
