//! Options that only the library sets.

use super::Builder;
use crate::sys;

impl Builder {
    /// Polls for direct reads and writes of batches, where the device can.
    pub(crate) fn iopoll(mut self, poll: bool) -> Builder {
        self.ring.iopoll = poll;
        self
    }

    /// Allows other threads to start fibers in the runtime.
    pub(crate) fn open_to_outside(mut self) -> Builder {
        self.is_open = true;
        self
    }

    /// Reports cancelled fibers whose waits do not end. The default is `true`.
    pub(crate) fn stubborn_reports(mut self, report: bool) -> Builder {
        self.stubborn_reports = report;
        self
    }

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
