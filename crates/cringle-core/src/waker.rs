//! A handle that ends one wait from anywhere: another fiber, another worker, a thread without a
//! runtime.

use super::fiber::FiberId;
use super::shared::{Mail, MailBox};
use super::worker::Worker;
use cringle_sys::plainly;
use std::sync::Arc;

/// Wakes one fiber, or one OS thread that waits outside of any fiber.
///
/// A wake-up after the fiber has ended, or after `run` has returned, does nothing (**I9**).
#[derive(Clone)]
pub enum Waker {
    Fiber { home: Arc<MailBox>, id: FiberId },
    Thread(std::thread::Thread),
}

/// Parks the calling thread until `is_over` returns true.
///
/// The wait may consume an `unpark` token that was meant for the program's own `park`, so it makes
/// one available again: `park` may wake spuriously.
pub fn park_thread_until(is_over: impl Fn() -> bool) {
    if is_over() {
        return;
    }
    while !is_over() {
        std::thread::park();
    }
    std::thread::current().unpark();
}

impl Waker {
    /// Ends the wait. A late wake-up may end a later wait of the same fiber, which checks again.
    pub fn wake(&self) {
        match self {
            // std wakes the thread by a call of libc.
            Waker::Thread(thread) => plainly(|| thread.unpark()),
            Waker::Fiber { home, id } => match Worker::here() {
                Some(worker) if worker.table.reaches(home) => worker.wake(*id),
                Some(worker) => worker.mail(home, Mail::Wake(*id, None)),
                None => drop(home.inbox.send(Mail::Wake(*id, None))),
            },
        }
    }
}
