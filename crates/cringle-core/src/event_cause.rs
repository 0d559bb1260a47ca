//! The fiber that events of `tracing` name: see [`tracing_events`](crate::tracing_events).

use super::identity::Identity;
use super::worker::Current;
use std::sync::Arc;

/// The fiber that causes an event, if it is caused on one.
pub struct EventCause(Option<Arc<Identity>>);

impl EventCause {
    /// The calling fiber, which gets its number if it has none.
    pub fn now() -> EventCause {
        let fiber = Current::identity();
        let meta = fiber.as_ref().and_then(|fiber| fiber.meta());
        EventCause(meta.map(|meta| Arc::clone(meta.identity())))
    }

    pub fn name(&self) -> Option<&str> {
        self.0.as_ref()?.name()
    }

    pub fn number(&self) -> Option<u64> {
        Some(self.0.as_ref()?.number().get())
    }
}
