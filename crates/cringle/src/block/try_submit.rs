//! Batches that need not wait.

use super::{Batch, Results};
use crate::runtime::worker::Current;

impl<'b> Batch<'b> {
    /// Performs the batch without a system call, if all of its operations are reads of mapped files
    /// whose pages are in memory, or if it has none. Otherwise returns the batch, to be submitted;
    /// the reads that were copied keep their results and are not repeated.
    ///
    /// A thread that calls it before [`BlockIo::submit`](super::BlockIo::submit) saves the way to
    /// the worker and back. On a fiber [`submit`](Batch::submit) does the same by itself.
    ///
    /// ```
    /// use cringle::block::{Batch, BlockIo, MappedFile, SigbusHandler};
    /// use cringle::fs::File;
    ///
    /// let io = BlockIo::builder().build()?;
    /// let program = MappedFile::new(File::open("/proc/self/exe")?, SigbusHandler::install()?)?;
    /// let mut pages = vec![0; 4 * 4096];
    /// let mut batch = Batch::new();
    /// for (page, offset) in pages.chunks_mut(4096).zip((0..).step_by(4096)) {
    ///     batch.read_mapped(&program, page, offset);
    /// }
    /// let results = match batch.try_submit() {
    ///     Ok(results) => results,
    ///     Err(batch) => io.submit(batch)?,
    /// };
    /// assert!(results.iter().all(|count| matches!(count, Ok(4096))));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The batch, if an operation is left. The batch of a cancelled fiber is returned as it was.
    #[allow(clippy::result_large_err, reason = "it returns the batch, as `Arc::try_unwrap` does")]
    pub fn try_submit(mut self) -> Result<Results, Batch<'b>> {
        if self.slots.is_empty() {
            return Ok(Results::new(self.slots, self.refused, self.exact, self.mapped));
        }
        let current = Current::get();
        let is_refused = current.is_some_and(Current::refuses);
        if is_refused || self.mapped.is_empty() || self.mapped.len() < self.slots.len() {
            return Err(self);
        }
        if self.copy_resident(current) == self.slots.len() && self.exact.is_empty() {
            return Ok(Results::new(self.slots, self.refused, self.exact, self.mapped));
        }
        Err(self)
    }
}
