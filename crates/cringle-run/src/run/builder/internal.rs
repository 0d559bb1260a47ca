//! Options that only the library sets.

use super::Builder;
use cringle_driver::simulation::World;
use cringle_sys as sys;
use std::sync::Arc;

/// The options that crates of the library set, beside those that users have.
#[doc(hidden)]
pub trait InternalOptions {
    /// Polls for direct reads and writes of batches, where the device can.
    fn iopoll(self, poll: bool) -> Builder;

    /// Allows other threads to start fibers in the runtime.
    fn open_to_outside(self) -> Builder;

    /// Reports cancelled fibers whose waits do not end. The default is `true`.
    fn stubborn_reports(self, report: bool) -> Builder;

    /// Runs in a simulated world.
    fn in_world(self, world: Arc<dyn World>) -> Builder;
}

impl InternalOptions for Builder {
    fn iopoll(mut self, poll: bool) -> Builder {
        self.ring.iopoll = poll;
        self
    }

    fn open_to_outside(mut self) -> Builder {
        self.is_open = true;
        self
    }

    fn stubborn_reports(mut self, report: bool) -> Builder {
        self.stubborn_reports = report;
        self
    }

    fn in_world(mut self, world: Arc<dyn World>) -> Builder {
        self.world = Some(world);
        self
    }
}

impl Builder {
    /// Returns the entries of the submission and the completion queue that each ring requests.
    #[doc(hidden)]
    pub fn queue_entries(&self) -> (u32, u32) {
        let entries = self.ring.entries;
        (entries, self.ring.cq_entries().max(entries))
    }
}

/// Gives the caller's thread its cores back.
pub(super) struct RestoreAffinity(pub(super) Vec<usize>);

impl Drop for RestoreAffinity {
    fn drop(&mut self) {
        // A changed cpuset may forbid cores that the thread had before. That is no error of the
        // closure.
        let _ = sys::set_affinity(&self.0);
    }
}
