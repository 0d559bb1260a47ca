//! Reads and writes that the page cache answers without waiting (`RWF_NOWAIT`).
//!
//! A cached read costs less as a plain call than through the ring, even if the ring's trip to the
//! kernel is shared with other ops (`benches/RESULTS.md`). One that would wait costs an extra call.
//! So:
//!
//! - a fiber with no other runnable fiber on its worker tries `preadv2(RWF_NOWAIT)` first, and
//!   submits to the ring what the page cache does not hold;
//! - a fiber among others does the same while the page cache answers. After a miss, reads are
//!   submitted to the ring, in the turn's batch, until one of these batches ends within the
//!   submitting call. A read at the cursor is always tried first, because the ring would take two
//!   more system calls to move the cursor;
//! - a fiber is *solitary* if no other fiber could run while it waits. As a thread, it makes plain
//!   calls on seekable files, hit or miss (see [`File::ring`](super::File::ring)).
//!
//! Inline calls spend the fiber's budget; when it is spent, the worker runs other fibers and enters
//! the kernel. Writes are tried likewise where the file system supports it (ext4 does not: there a
//! kernel thread of the ring performs them).

use super::File;
use super::properties::{DIRECT, NO_INLINE_READ, NO_INLINE_WRITE, REGULAR};
use cringle_core::worker::Current;
use cringle_sys as sys;

/// The bytes that a read got from the page cache.
pub(in crate::fs) enum Inline {
    /// The read is complete: the buffer is full, or the file ends there.
    All(usize),
    /// Reading past these bytes would wait.
    Rest(usize),
}

/// Keeps the second call of a closure out of line, so that the first one is inlined.
#[cold]
#[inline(never)]
fn seldom(pays: impl Fn() -> bool) -> bool {
    pays()
}

impl File {
    /// Whether an inline call is worth a try now. `never` is the property that rules it out, and
    /// `pays` returns whether the call is cheaper than the ring.
    #[inline]
    fn tries_inline(&self, current: Current, never: u32, pays: impl Fn() -> bool) -> bool {
        let properties = self.properties();
        if properties & (REGULAR | DIRECT | never) != REGULAR || !pays() {
            return false;
        }
        Self::spend_inline(current) || seldom(pays)
    }

    /// Spends from the fiber's budget. Returns false if other fibers ran because it was used up.
    #[inline]
    pub(super) fn spend_inline(current: Current) -> bool {
        let has_budget = match current.worker.is_alone() {
            true => current.fiber.spend_inline(),
            false => current.fiber.spend_inline_among_others(),
        };
        if !has_budget {
            current.refresh_budget();
        }
        has_budget
    }

    /// Reads what the page cache holds. An error is left to the ring, which returns it too. An
    /// `offset` of −1 reads at the cursor and moves it; `position` is where that is, if known.
    #[inline]
    pub(in crate::fs) fn read_inline(
        &self,
        current: Current,
        buf: &mut [u8],
        offset: i64,
        position: Option<u64>,
    ) -> Inline {
        let pays = || match offset {
            // No other work would share the trip to the kernel, or the page cache has answered the
            // last reads.
            0.. => {
                current.worker.is_alone() || current.worker.driver().borrow().page_cache_answers()
            }
            _ => current.worker.may_bypass(),
        };
        if !self.tries_inline(current, NO_INLINE_READ, pays) {
            return Inline::Rest(0);
        }
        let mut done = 0;
        loop {
            let at = if offset < 0 { offset } else { offset + done as i64 };
            match sys::read_nowait(self.fd(), &mut buf[done..], at) {
                // The end of the file, or an empty buffer.
                0 => {
                    current.worker.events().tried_inline(true);
                    return Inline::All(done);
                }
                count if count > 0 => {
                    done += count as usize;
                    if position.is_some_and(|start| is_within_page(start + done as u64)) {
                        current.worker.events().tried_inline(true);
                        return Inline::All(done);
                    }
                }
                error => {
                    if error == -libc::EOPNOTSUPP {
                        self.add_property(NO_INLINE_READ);
                    }
                    current.worker.driver().borrow_mut().note_cache_miss();
                    current.worker.events().tried_inline(false);
                    return Inline::Rest(done);
                }
            }
            if done == buf.len() {
                current.worker.events().tried_inline(true);
                return Inline::All(done);
            }
        }
    }

    /// Writes without waiting; `None` if it was not tried, or would wait.
    #[inline]
    pub(super) fn write_inline(&self, current: Current, buf: &[u8], offset: i64) -> Option<usize> {
        // An empty `pwritev2` returns 0 without asking the file, which may refuse the write.
        let pays = || current.worker.is_alone();
        if buf.is_empty() || !self.tries_inline(current, NO_INLINE_WRITE, pays) {
            return None;
        }
        let result = sys::write_nowait(self.fd(), buf, offset);
        if result == -libc::EOPNOTSUPP {
            self.add_property(NO_INLINE_WRITE);
        }
        current.worker.events().tried_inline(result >= 0);
        (result >= 0).then_some(result as usize)
    }
}

/// Whether a read that stopped here has read all that it can: the page cache holds whole pages, so
/// the buffer or the file ends within one.
pub(super) fn is_within_page(position: u64) -> bool {
    !position.is_multiple_of(LEAST_PAGE_BYTES)
}

/// No page is smaller.
const LEAST_PAGE_BYTES: u64 = 4096;
