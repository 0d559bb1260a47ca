//! The counters of a worker. The worker alone writes them; `runtime::stats` and the watchdog read
//! them.
//!
//! # A new counter
//!
//! It is a field of [`Counters`], a method of `worker/events` that adds to it, and a row of
//! `numbers!` in `diagnostics/stats.rs` of `cringle-run`. (A counter of the driver is a field of
//! `cringle_driver::Counts`, to which the driver adds.) The compiler then names `WorkerStats::of`,
//! which reads the field. By hand: the table in `docs/book/src/diagnosing.md`, a line in
//! `CHANGELOG.md`, and, if the counter belongs there, the metrics in
//! `crates/cringle/examples/metrics.rs`; the dictionary in `bindings/python/src/block_io.rs`, which
//! has a part of the counters; and [`FIELDS`], for debuggers.

use cringle_driver::Counter;
use cringle_sys::debug_info::Field;
use cringle_sys::lock::OF_THE_LIBRARY;
use cringle_sys::plainly;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// See the module. Aligned, so that readers share no cache line with other data of the worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    pub turns: Counter,
    /// Fibers that wait now.
    pub waiting: Counter,
    pub started: Counter,
    /// The most fibers that were alive at once. Each of them has a stack.
    pub most_alive: Counter,
    pub inline_hits: Counter,
    pub inline_misses: Counter,
    /// Reads of mapped files that were copied from memory.
    pub mapped_copies: Counter,
    /// Waits of fibers for room among the ops in flight.
    pub room_waits: Counter,
    /// Unstarted fibers taken from other workers.
    pub steals: Counter,
    /// Started fibers that came from other workers.
    pub moves: Counter,
    pub sleeps: Counter,
    /// Sleeping workers that this one has woken.
    pub wakes: Counter,
    /// Messages of other threads.
    pub messages: Counter,
    /// The kernel's number of the worker's thread; 0 before it runs.
    thread: AtomicI32,
}

/// Where a debugger finds the counters.
pub const FIELDS: &[Field] = &[
    Field::new("counters.turns", offset_of!(Counters, turns)),
    Field::new("counters.started", offset_of!(Counters, started)),
    Field::new("counters.sleeps", offset_of!(Counters, sleeps)),
    Field::new("counters.thread", offset_of!(Counters, thread)),
];

/// Returns the number of the system call that a thread of the process waits in, and where it will
/// return to. `None` if it waits in none.
///
/// # Errors
///
/// If `/proc` has no answer: it is not mounted, or the process has changed its user.
pub fn system_call(thread: i32) -> io::Result<Option<(libc::c_long, usize)>> {
    let words = system_call_in_words(thread)?;
    let mut words = words.split_whitespace();
    let number = words.next().and_then(|word| word.parse().ok());
    let place = words.last().and_then(|word| word.strip_prefix("0x"));
    let place = place.and_then(|word| usize::from_str_radix(word, 16).ok());
    Ok(number.zip(place))
}

fn system_call_in_words(thread: i32) -> io::Result<String> {
    let path = format!("/proc/self/task/{thread}/syscall");
    plainly(|| std::fs::read_to_string(path))
}

impl Counters {
    /// Notes the calling thread as the worker's.
    pub(super) fn set_thread(&self) {
        self.thread.store(cringle_sys::thread_number(), Ordering::Relaxed);
    }

    /// Whether the worker's thread has this number of the kernel's.
    pub fn is_thread(&self, number: i32) -> bool {
        self.thread_number() == number
    }

    /// The kernel's number of the worker's thread.
    pub fn thread_number(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// The times for which the worker's thread has had a processor, and has waited for one. `None`
    /// if `/proc` has no answer.
    pub fn processor_times(&self) -> Option<(Duration, Duration)> {
        let thread = self.thread.load(Ordering::Relaxed);
        let path = format!("/proc/self/task/{thread}/schedstat");
        let times = plainly(|| std::fs::read_to_string(path)).ok()?;
        let mut times = times.split_whitespace().map(|ns| ns.parse().map(Duration::from_nanos));
        Some((times.next()?.ok()?, times.next()?.ok()?))
    }

    /// Returns the futex that the worker's thread waits for, as locks do. `None` if it waits for
    /// none, or if `/proc` has no answer.
    pub fn futex(&self) -> Option<FutexWait> {
        /// `futex_waitv` and `futex_wait`, on every architecture.
        const SEVERAL: libc::c_long = 449;
        const NEWER: libc::c_long = 455;
        let call = system_call_in_words(self.thread_number()).ok()?;
        let mut words = call.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut arguments =
            words.map(|word| usize::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        match number {
            libc::SYS_futex | NEWER => {
                // The second address follows the first, the operation, the value and the limit.
                Some(FutexWait { is_librarys: arguments.nth(4)?? == OF_THE_LIBRARY })
            }
            SEVERAL => Some(FutexWait { is_librarys: false }),
            _ => None,
        }
    }

    /// Asks the kernel about the worker's thread. `None` if `/proc` has no answer, or the worker
    /// has ended.
    pub fn thread_times(&self) -> Option<ThreadTimes> {
        let thread = self.thread.load(Ordering::Relaxed);
        let path = format!("/proc/self/task/{thread}/stat");
        let stat = plainly(|| std::fs::read_to_string(path)).ok()?;
        let (_, after_name) = stat.rsplit_once(") ")?;
        let (ran, waited) = self.processor_times()?;
        Some(ThreadTimes { is_blocked: !after_name.starts_with('R'), ran, waited })
    }
}

/// A futex that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWait {
    /// The futex belongs to a lock of this library.
    pub is_librarys: bool,
}

/// See [`Counters::thread_times`].
#[derive(Clone, Copy)]
pub struct ThreadTimes {
    /// The thread waits in a system call.
    is_blocked: bool,
    /// The total time for which it has had a processor.
    ran: Duration,
    /// The total time for which it has waited for a processor, up to when it last got one.
    waited: Duration,
}

impl ThreadTimes {
    /// Of the time `elapsed` since `before`, the part in which the thread ran or waited in a system
    /// call. The part in which it waited for a processor does not count.
    pub fn spent_since(&self, before: &ThreadTimes, elapsed: Duration) -> Duration {
        if self.is_blocked {
            elapsed.saturating_sub(self.waited.saturating_sub(before.waited))
        } else {
            self.ran.saturating_sub(before.ran)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use cringle_sys::{lock, syscall};
    use std::sync::atomic::AtomicU32;

    /// Returns the futex for which a thread waits in `block`, after it has been seen there.
    /// `unblock` ends that. `None` where `/proc` does not say it.
    fn futex_of(block: impl FnOnce() + Send, unblock: impl FnOnce()) -> Option<FutexWait> {
        let counters = Counters::default();
        std::thread::scope(|s| {
            s.spawn(|| {
                counters.set_thread();
                block();
            });
            let is_readable = std::fs::read_to_string("/proc/thread-self/syscall").is_ok();
            let found = is_readable.then(|| {
                loop {
                    if let Some(found) = counters.futex() {
                        return found;
                    }
                    std::thread::yield_now();
                }
            });
            unblock();
            found
        })
    }

    #[test]
    fn lock_of_the_library_is_none_of_std() {
        let (own, word) = (lock::Mutex::new(()), AtomicU32::new(0));
        let guard = own.lock();
        let of_own = futex_of(|| drop(own.lock()), || drop(guard));
        // As a lock of std waits and wakes.
        let futex = |operation, value| {
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: by the contract of the call: the word lives until the thread was joined.
            unsafe { syscall!(SYS_futex, word.as_ptr(), operation, value, forever) };
        };
        let wait = || {
            while word.load(Ordering::Acquire) == 0 {
                futex(libc::FUTEX_WAIT, 0);
            }
        };
        let wake = || {
            word.store(1, Ordering::Release);
            futex(libc::FUTEX_WAKE, 1);
        };
        let of_std = futex_of(wait, wake);
        let (Some(of_own), Some(of_std)) = (of_own, of_std) else {
            return println!("skipped: /proc/thread-self/syscall cannot be read");
        };
        assert!(of_own.is_librarys && !of_std.is_librarys);
    }
}
