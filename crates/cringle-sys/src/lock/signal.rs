//! A token for one waiting thread: `park` and `unpark` without the thread's own token.

use super::futex::Futex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// See the [module](super). It is set by any thread, and taken by the one that waits.
pub struct Signal(Futex);

impl Signal {
    /// A signal that is not set.
    pub const fn new() -> Signal {
        Signal(Futex::new(0))
    }

    /// Sets the signal, and ends the wait for it. What happened before is visible after that wait.
    pub fn set(&self) {
        if self.0.word().swap(1, Ordering::Release) == 0 {
            self.0.wake(1);
        }
    }

    /// Takes the signal, after a wait up to the limit. It may return early. Returns whether it was
    /// set.
    pub fn wait_timeout(&self, limit: Duration) -> bool {
        self.take() || {
            self.0.wait_within(0, Some(limit));
            self.take()
        }
    }

    fn take(&self) -> bool {
        self.0.word().swap(0, Ordering::Acquire) == 1
    }
}

default_by_new!(Signal);

opaque_debug!(Signal);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_stays_until_it_is_taken() {
        let signal = Signal::new();
        signal.set();
        signal.set();
        assert!(signal.wait_timeout(Duration::ZERO));
        assert!(!signal.wait_timeout(Duration::ZERO));
    }

    #[test]
    fn a_signal_ends_a_wait() {
        let signal = Signal::new();
        std::thread::scope(|s| {
            s.spawn(|| while !signal.wait_timeout(Duration::MAX) {});
            signal.set();
        });
    }
}
