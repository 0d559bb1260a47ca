//! A word on which threads wait in the kernel.

use crate::raw::syscall;
use crate::timespec;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The word of a lock. (A trait, so that the model can replace the kernel.)
pub(super) trait Word {
    /// How often a thread looks at the word again before it waits.
    const SPINS: u32;

    fn load(&self) -> u32;

    /// Changes the word if it has the value `old`. Success acquires.
    fn change(&self, old: u32, new: u32) -> bool;

    fn swap(&self, new: u32, order: Ordering) -> u32;

    /// Waits while the word has this value. It may return early.
    fn wait(&self, value: u32);

    fn wake_one(&self);
}

/// The argument by which the watchdog recognises these waits in `/proc`: the second address, which
/// the kernel ignores here.
pub const OF_THE_LIBRARY: usize = 0x6372_696e;

/// A futex, private to the process.
pub(super) struct Futex(AtomicU32);

impl Futex {
    pub(super) const fn new(value: u32) -> Futex {
        Futex(AtomicU32::new(value))
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Waits while the word has this value, up to the limit. It may return early. Returns whether
    /// the time is over.
    pub(super) fn wait_within(&self, value: u32, limit: Option<Duration>) -> bool {
        let limit = limit.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let word = self.0.as_ptr();
        // SAFETY: the word and the limit are borrowed for the call, which only reads them.
        let result = unsafe { syscall!(SYS_futex, word, operation, value, limit, OF_THE_LIBRARY) };
        result == -(libc::ETIMEDOUT as isize)
    }

    /// Wakes up to `count` waiting threads.
    pub(super) fn wake(&self, count: i32) {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the contract of `FUTEX_WAKE`: it does not access the memory at the address. So it
        // may be made for a lock whose memory another thread frees, as soon as the word has its new
        // value.
        unsafe { syscall!(SYS_futex, self.0.as_ptr(), operation, count) };
    }
}

impl Word for Futex {
    const SPINS: u32 = 100;

    #[inline]
    fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn change(&self, old: u32, new: u32) -> bool {
        self.0.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.0.swap(new, order)
    }

    #[cold]
    fn wait(&self, value: u32) {
        self.wait_within(value, None);
    }

    #[cold]
    fn wake_one(&self) {
        self.wake(1);
    }
}
