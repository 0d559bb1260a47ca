//! The events that workers record: what a trace is made of.
//!
//! [`Recorder`] is a worker's; it writes [`event`]s into a [`queue`]. The thread that reads the
//! queues and encodes the events is above this layer: it registers itself by [`change`].

pub mod clock;
pub mod event;
pub mod flow;
pub mod queue;
mod recorder;

pub use clock::Clock;
pub use event::{Cause, Kind};
pub use recorder::{Recorder, RecorderPlace};

use cringle_sys::lock::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The names of the numbers in events, which the layers above define.
#[derive(Debug)]
pub struct EventNames {
    pub ops: &'static [&'static str],
    /// The names of the completions of the ops.
    pub done: &'static [&'static str],
    /// The names of waits. The last one is a yield, which waits for nothing.
    pub waits: &'static [&'static str],
    /// The number of the wait for ops.
    pub wait_for_ops: u8,
    pub reasons: &'static [&'static str],
}

/// Makes a recorder for the calling worker, whose number comes first, if there is a trace. The last
/// argument says whether its time is virtual.
pub type Attach = fn(u32, &'static EventNames, bool) -> Option<Recorder>;

static ATTACH: OnceLock<Attach> = OnceLock::new();
/// Incremented whenever a trace starts or ends.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Returns the epoch, which changes when a trace starts or ends.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Tells the workers that a trace has started or ended.
pub fn change(attach: Attach) {
    ATTACH.get_or_init(|| attach);
    EPOCH.fetch_add(1, Ordering::Release);
}

/// Returns a recorder for the calling worker, if there is a trace.
pub fn attach(worker: u32, names: &'static EventNames, is_virtual: bool) -> Option<Recorder> {
    ATTACH.get().and_then(|attach| attach(worker, names, is_virtual))
}
