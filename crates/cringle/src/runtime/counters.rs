//! What a worker counts of itself. It alone writes; whoever asks for [`stats`](super::stats) reads.

use crate::driver::Counter;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// See the module. (On cache lines of its own: what others read must not be written beside it.)
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(super) turns: Counter,
    /// Fibers that wait.
    pub(super) waiting: Counter,
    pub(super) started: Counter,
    /// Fibers there were at once, at most: each has a stack.
    pub(super) most_alive: Counter,
    pub(super) inline_hits: Counter,
    pub(super) inline_misses: Counter,
    /// Times that a fiber waited for room among the ops in flight.
    pub(super) room_waits: Counter,
    /// Fibers taken from other workers before they had started.
    pub(super) steals: Counter,
    /// Times that it went to sleep.
    pub(super) sleeps: Counter,
    /// Sleeping workers that it has woken.
    pub(super) wakes: Counter,
    /// Messages of other threads that it has read.
    pub(super) messages: Counter,
    /// The kernel's number of the worker's thread; 0 before it runs.
    thread: AtomicI32,
}

impl Counters {
    /// For the worker.
    pub(super) fn set_thread(&self) {
        self.thread.store(crate::sys::thread_number(), Ordering::Relaxed);
    }

    /// What the kernel says of its thread; `None` where it says nothing, or the worker has ended.
    pub(super) fn thread_times(&self) -> Option<ThreadTimes> {
        let thread = self.thread.load(Ordering::Relaxed);
        let read = |file| std::fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
        let (stat, times) = (read("stat")?, read("schedstat")?);
        let (_, after_name) = stat.rsplit_once(") ")?;
        let mut times =
            times.split_whitespace().map(|field| field.parse().map(Duration::from_nanos));
        let (ran, waited) = (times.next()?.ok()?, times.next()?.ok()?);
        Some(ThreadTimes { sleeps: !after_name.starts_with('R'), ran, waited })
    }
}

/// See [`Counters::thread_times`].
#[derive(Clone, Copy)]
pub(super) struct ThreadTimes {
    /// It waits in a call.
    pub(super) sleeps: bool,
    /// For how long it has had a processor.
    pub(super) ran: Duration,
    /// For how long it had to wait for one, up to when it last got it.
    pub(super) waited: Duration,
}

impl ThreadTimes {
    /// How much of the time since `before` (`elapsed`) the thread ran, or waited in a call: the time that it
    /// waited for a processor does not count.
    pub(super) fn spent_since(&self, before: &ThreadTimes, elapsed: Duration) -> Duration {
        match self.sleeps {
            true => elapsed.saturating_sub(self.waited.saturating_sub(before.waited)),
            false => self.ran.saturating_sub(before.ran),
        }
    }
}
