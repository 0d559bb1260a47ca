//! A condition variable: [`std::sync::Condvar`] without poison.

use super::futex::Futex;
use super::mutex::{MutexGuard, acquire, release};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// See the [module](super). The word counts notifications.
///
/// A waiter reads the count under the mutex, and sleeps while it is unchanged. A notifier has held
/// the mutex after that, or holds it now, so its increment follows the read, and the waiter either
/// does not sleep or is woken.
pub struct Condvar {
    notifications: Futex,
}

impl Condvar {
    /// A condition for which no thread waits.
    pub const fn new() -> Condvar {
        Condvar { notifications: Futex::new(0) }
    }

    /// Wakes a waiting thread.
    pub fn notify_one(&self) {
        self.notifications.word().fetch_add(1, Relaxed);
        self.notifications.wake(1);
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.notifications.word().fetch_add(1, Relaxed);
        self.notifications.wake(i32::MAX);
    }

    /// Releases the mutex, waits for a notification, and acquires the mutex again. It may return
    /// without one.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_within(guard, None).0
    }

    /// [`wait`](Self::wait), up to the limit. Also returns whether the time is over.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_within(guard, Some(limit))
    }

    fn wait_within<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        let before = self.notifications.word().load(Relaxed);
        release(guard.word());
        let timed_out = self.notifications.wait_within(before, limit);
        // Nothing panics in between, so the guard is not dropped while the lock is released.
        acquire(guard.word());
        (guard, timed_out)
    }
}

default_by_new!(Condvar);

opaque_debug!(Condvar);

#[cfg(test)]
mod tests {
    use super::super::Mutex;
    use super::*;

    #[test]
    fn a_notification_ends_the_wait() {
        const TURNS: u32 = 2_000;
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        let take_turns = |parity: u32| {
            for _ in 0..TURNS {
                let mut turn = turn.lock();
                while *turn % 2 != parity {
                    turn = changed.wait(turn);
                }
                *turn += 1;
                changed.notify_one();
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| take_turns(0));
            s.spawn(|| take_turns(1));
        });
        assert_eq!(*turn.lock(), 2 * TURNS);
    }

    #[test]
    fn a_limit_ends_the_wait() {
        let (mutex, changed) = (Mutex::new(()), Condvar::new());
        let mut guard = mutex.lock();
        let mut timed_out = false;
        while !timed_out {
            (guard, timed_out) = changed.wait_timeout(guard, Duration::from_millis(1));
        }
    }
}
