//! A fair lock of ranges: two callers hold it at once only if their ranges do not overlap.
//!
//! The requests are numbered in the order of their arrival. A caller waits until no earlier request
//! overlaps its own, and for no later one. So no request overtakes another, a wide range is not
//! starved by narrow ones, and no two callers wait for each other.
//!
//! It waits for the latest of them first. That one ends after most of the others, so each of many
//! callers that want the same range is woken once, and refers to one other.

use super::caller::{Caller, WaitError, WaitOptions};
use super::gate::Gate;
use super::wait_queue::ShortLock;
use cringle_core::fiber::Wait;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// See the module.
pub(crate) struct RangeLock(ShortLock<Requests>);

/// The requests that have not ended, by their numbers.
#[derive(Default)]
struct Requests {
    next: u64,
    by_number: BTreeMap<u64, Arc<Request>>,
}

/// A range that a caller holds or waits for.
struct Request {
    range: Range<u64>,
    /// Gets a permit when the request has ended. Each waiter takes the permit and returns it.
    ended: Gate,
}

/// Holds a range until it is dropped.
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    number: u64,
    request: Arc<Request>,
}

impl Default for RangeLock {
    fn default() -> RangeLock {
        RangeLock(ShortLock::new(Requests::default()))
    }
}

impl RangeLock {
    /// Acquires a range. Fails if the calling fiber is cancelled while it would wait, and with
    /// `EDEADLK` if code beside a fiber would wait: for a fiber of its own worker, perhaps.
    pub(crate) fn lock(&self, range: Range<u64>) -> io::Result<RangeGuard<'_>> {
        let request = Arc::new(Request { range, ended: Gate::new(0) });
        let mut requests = self.0.lock();
        let number = requests.next;
        requests.next += 1;
        let mut blocking = requests.latest_before(number, &request);
        requests.by_number.insert(number, Arc::clone(&request));
        drop(requests);
        // A caller that is cancelled below ends its request by dropping this.
        let guard = RangeGuard { lock: self, number, request };
        if blocking.is_some() && Caller::current().is_beside_a_fiber() {
            return Err(io::Error::from_raw_os_error(libc::EDEADLK));
        }
        while let Some(earlier) = blocking {
            let ended = earlier.ended.acquire_unspent(1, WaitOptions::fallible(Wait::Lock));
            ended.map_err(WaitError::into_io_error)?;
            earlier.ended.release(1);
            blocking = self.0.lock().latest_before(number, &guard.request);
        }
        Ok(guard)
    }
}

impl Requests {
    /// Returns the latest request before the given number that overlaps the given one.
    fn latest_before(&self, number: u64, request: &Request) -> Option<Arc<Request>> {
        let mut earlier = self.by_number.range(..number).rev().map(|(_, earlier)| earlier);
        earlier.find(|earlier| earlier.overlaps(request)).cloned()
    }
}

impl Request {
    fn overlaps(&self, other: &Request) -> bool {
        self.range.start < other.range.end && other.range.start < self.range.end
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.lock.0.lock().by_number.remove(&self.number);
        self.request.ended.release(1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::RangeLock;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// If such code waited for a range of a fiber of this worker, neither it nor the worker would
    /// continue.
    #[test]
    fn code_beside_a_fiber_does_not_wait() {
        use super::{Range, io};
        use std::sync::mpsc;

        let lock = RangeLock::default();
        let beside = |range: Range<u64>| {
            let lock = || lock.lock(range).map(drop).map_err(|e| e.kind());
            cringle_run::run::run(|| cringle_core::foreign::call_beside(lock).unwrap())
        };
        thread::scope(|s| {
            let ((inform, informed), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
            let lock = &lock;
            s.spawn(move || {
                let _held = lock.lock(0..10).unwrap();
                inform.send(()).unwrap();
                let _ = ended.recv();
            });
            informed.recv().unwrap();
            assert_eq!(beside(10..20), Ok(()));
            assert_eq!(beside(5..20), Err(io::ErrorKind::Deadlock));
            drop(end);
        });
        assert_eq!(beside(5..20), Ok(()));
    }

    #[test]
    fn each_of_many_waiters_refers_to_one_other() {
        const WAITERS: usize = 40;
        let (lock, served) = (RangeLock::default(), AtomicUsize::new(0));
        thread::scope(|s| {
            let held = lock.lock(0..10).unwrap();
            for n in 0..WAITERS {
                let (lock, served) = (&lock, &served);
                s.spawn(move || {
                    let range = if n.is_multiple_of(10) { 0..u64::MAX } else { 5..10 };
                    let _held = lock.lock(range).unwrap();
                    assert_eq!(served.fetch_add(1, Ordering::SeqCst), n, "one overtakes");
                    thread::yield_now();
                    assert_eq!(served.load(Ordering::SeqCst), n + 1, "two hold it");
                });
                // The held request, and the requests of the threads until now.
                while lock.0.lock().by_number.len() < n + 2 {
                    thread::yield_now();
                }
            }
            // The lock's, the guard's, and the first waiter's.
            assert_eq!(Arc::strong_count(&held.request), 3);
        });
        assert_eq!(served.into_inner(), WAITERS);
        assert!(lock.0.lock().by_number.is_empty());
    }
}
