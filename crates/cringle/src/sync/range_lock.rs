//! A fair lock of ranges: two callers hold it at once only if their ranges do not overlap.
//!
//! The requests form a list in the order of their arrival. A caller waits for each earlier request
//! whose range overlaps its own, and for no later one. So nobody overtakes, a wide range is not
//! starved by narrow ones, and no two callers wait for each other.

use super::caller::{WaitError, WaitOptions};
use super::gate::Gate;
use super::wait_queue::ShortLock;
use crate::runtime::fiber::Wait;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// See the module.
pub(crate) struct RangeLock(ShortLock<Vec<Arc<Request>>>);

/// A range that a caller holds or waits for.
struct Request {
    range: Range<u64>,
    /// Gets a permit when the request has ended. Each waiter takes the permit and returns it.
    ended: Gate,
}

/// Holds a range until it is dropped.
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    request: Arc<Request>,
}

impl Default for RangeLock {
    fn default() -> RangeLock {
        RangeLock(ShortLock::new(Vec::new()))
    }
}

impl RangeLock {
    /// Acquires a range. Fails only if the calling fiber is cancelled while it would wait.
    pub(crate) fn lock(&self, range: Range<u64>) -> io::Result<RangeGuard<'_>> {
        let request = Arc::new(Request { range, ended: Gate::new(0) });
        let mut requests = self.0.lock();
        let overlapping = requests.iter().filter(|earlier| earlier.overlaps(&request));
        let earlier: Vec<Arc<Request>> = overlapping.cloned().collect();
        requests.push(Arc::clone(&request));
        drop(requests);
        // A caller that is cancelled below ends its request by dropping this.
        let guard = RangeGuard { lock: self, request };
        for request in earlier {
            let ended = request.ended.acquire_unspent(1, WaitOptions::fallible(Wait::Lock));
            ended.map_err(WaitError::into_io_error)?;
            request.ended.release(1);
        }
        Ok(guard)
    }
}

impl Request {
    fn overlaps(&self, other: &Request) -> bool {
        self.range.start < other.range.end && other.range.start < self.range.end
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.lock.0.lock().retain(|request| !Arc::ptr_eq(request, &self.request));
        self.request.ended.release(1);
    }
}
