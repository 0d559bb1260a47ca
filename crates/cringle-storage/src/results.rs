//! The results of a batch.

use super::notes::{Note, Notes, find};
use super::{Batch, OpId};
use cringle_core::cancelled;
use cringle_core::cancelled::Reason;
use cringle_driver::{OpSlot, means_cancelled};
use cringle_sys as sys;
use std::io::{self, Read, Write};

/// Results of operations that are no `-errno`: the registered file or buffer belongs to another
/// ring.
pub(super) const OTHER_RING: i32 = i32::MIN;
/// A `read_exact` found the end of the file.
pub(super) const END_OF_FILE: i32 = i32::MIN + 1;
/// A `write_all` wrote 0 bytes.
pub(super) const WROTE_NOTHING: i32 = i32::MIN + 2;
/// An exact operation has transferred all bytes of its [`Note::Long`].
pub(super) const LONG: i32 = i32::MIN + 3;

/// The results of a [`Batch`], in the order of its operations. Every operation has ended, and the
/// borrows of the batch with it.
///
/// ```
/// use cringle::{block::{Batch, Results}, fs::File};
///
/// let file = File::open("/proc/self/exe")?;
/// let mut magic = [0; 4];
/// let mut batch = Batch::new();
/// batch.read(&file, &mut magic, 0);
/// let results: Results = batch.submit();
/// assert!(results.iter().all(|count| matches!(count, Ok(4))));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Results {
    slots: Vec<OpSlot>,
    notes: Notes,
    cancelled: Option<Reason>,
}

// SAFETY: I1. The pointers belong to operations that have ended, and are not dereferenced any
// more.
unsafe impl Send for Results {}

impl Results {
    /// The results of operations that have ended. The reason of the fiber's cancel explains those
    /// that the kernel has cancelled.
    pub(super) fn new(batch: Batch<'_>, cancelled: Option<Reason>) -> Results {
        let Batch { slots, notes, .. } = batch;
        Results { slots, notes, cancelled }
    }

    /// Returns the number of operations.
    ///
    /// ```
    /// use cringle::block::Batch;
    ///
    /// assert_eq!(Batch::new().submit().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there were no operations.
    ///
    /// ```
    /// use cringle::block::Batch;
    ///
    /// assert!(Batch::new().submit().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the result of one operation: the number of bytes, or its error.
    ///
    /// ```
    /// use cringle::{block::Batch, fs::File};
    ///
    /// let file = File::open("/proc/self/exe")?;
    /// let mut magic = [0; 4];
    /// let mut batch = Batch::new();
    /// let read = batch.read(&file, &mut magic, 0);
    /// assert_eq!(batch.submit().get(read)?, 4);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The operation's error.
    ///
    /// # Panics
    ///
    /// If `id` belongs to a larger batch.
    #[inline]
    pub fn get(&self, id: OpId) -> io::Result<usize> {
        match self.slots[id.0 as usize].completion.result() {
            count @ 0.. => Ok(count as usize),
            result => self.explain(id, result),
        }
    }

    #[cold]
    fn explain(&self, id: OpId, result: i32) -> io::Result<usize> {
        if let Some(reason) = self.cancelled
            && means_cancelled(result)
        {
            return Err(cancelled::error_of(reason));
        }
        match result {
            LONG => Ok(find(&self.notes, id, Note::as_long).expect("noted")),
            OTHER_RING => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the registered file or buffer belongs to another ring: register it on the worker \
                 that uses it",
            )),
            // std's own errors, which std makes without an allocation.
            END_OF_FILE => io::empty().read_exact(&mut [0]).map(|()| 0),
            WROTE_NOTHING => <&mut [u8]>::default().write_all(&[0]).map(|()| 0),
            errno => find(&self.notes, id, Note::as_misaligned)
                .map_or_else(|| sys::result_of(errno), |why| Err(why.into_error())),
        }
    }

    /// Returns an iterator over the results, in the order of the operations.
    ///
    /// ```
    /// use cringle::block::Batch;
    ///
    /// assert!(Batch::new().submit().iter().all(|count| count.is_ok()));
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = io::Result<usize>> {
        (0..self.slots.len()).map(|index| self.get(OpId(index as u32)))
    }

    /// Returns an empty batch that reuses the memory of this one, and may borrow other buffers.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// use cringle::{block::Batch, fs::File};
    ///
    /// cringle::run(|| {
    ///     let file = File::open("/proc/self/exe")?;
    ///     let mut pages = vec![0; 32 * 4096];
    ///     let mut spare = Batch::new();
    ///     for round in 0..4 {
    ///         let mut batch = spare;
    ///         for (page, offset) in pages.chunks_mut(4096).zip((round * 32..).map(|n| n * 4096)) {
    ///             batch.read(&file, page, offset);
    ///         }
    ///         let results = batch.submit();
    ///         assert!(results.iter().all(|count| count.is_ok()));
    ///         assert!(round > 0 || pages.starts_with(b"\x7fELF"));
    ///         spare = results.recycle();
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn recycle<'n>(self) -> Batch<'n> {
        Batch::reusing(self.slots, self.notes)
    }
}

impl IntoIterator for Results {
    type Item = io::Result<usize>;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        let len = self.len();
        IntoIter { results: self, next: 0..len }
    }
}

/// An iterator over the results of a batch: see [`Results`]. It never waits.
///
/// ```
/// use cringle::block::Batch;
///
/// assert_eq!(Batch::new().submit().into_iter().len(), 0);
/// ```
#[derive(Debug)]
pub struct IntoIter {
    results: Results,
    next: std::ops::Range<usize>,
}

impl Iterator for IntoIter {
    type Item = io::Result<usize>;

    fn next(&mut self) -> Option<io::Result<usize>> {
        self.next.next().map(|index| self.results.get(OpId(index as u32)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.next.size_hint()
    }
}

impl ExactSizeIterator for IntoIter {}
