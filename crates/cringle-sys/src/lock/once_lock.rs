//! A value that is set once: [`std::sync::OnceLock`].

use super::futex::Futex;
use super::mutex::{FREE, acquire, release};
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

/// See the [module](super).
pub struct OnceLock<T> {
    is_set: AtomicBool,
    /// Held by the thread that sets the value.
    setting: Futex,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: I14. The value is written once, under the lock, and only read after `is_set`, as std's
// is, under the same bounds.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: I14. As above.
unsafe impl<T: Send> Send for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// The offset of the value, for debuggers.
    pub const VALUE: usize = std::mem::offset_of!(OnceLock<T>, value);

    /// A cell without a value.
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            is_set: AtomicBool::new(false),
            setting: Futex::new(FREE),
            value: UnsafeCell::new(None),
        }
    }

    /// Returns the value, if it is set. Never waits.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: I14. The value is set, and no longer written.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// Returns the value, and sets it by `f` if there is none. Other callers are blocked meanwhile,
    /// so `f` must neither wait nor get to this value.
    #[inline]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.init(f);
        self.get().expect("the value is set")
    }

    /// Sets the value. Returns the given one if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    #[cold]
    fn init(&self, f: impl FnOnce() -> T) {
        let _setting = Setting::begin(&self.setting);
        if !self.is_set.load(Ordering::Relaxed) {
            let value = f();
            // SAFETY: I14. The lock is held and no value is set, so no other thread reads or writes
            // the place.
            unsafe { *self.value.get() = Some(value) };
            self.is_set.store(true, Ordering::Release);
        }
    }
}

/// Releases the lock also if the closure panics, which leaves the value unset.
struct Setting<'a>(&'a Futex);

impl Setting<'_> {
    fn begin(word: &Futex) -> Setting<'_> {
        acquire(word);
        Setting(word)
    }
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        release(self.0);
    }
}

default_by_new!(OnceLock<T>);

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => debug.field(value),
            None => debug.field(&format_args!("<uninit>")),
        };
        debug.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_of_many_threads_sets_it() {
        for round in 0..200 {
            let (once, calls) = (OnceLock::new(), AtomicUsize::new(0));
            let set = |value| {
                *once.get_or_init(|| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    round + value
                })
            };
            let values = std::thread::scope(|s| {
                let threads = [1, 2, 3, 4].map(|value| s.spawn(move || set(value)));
                threads.map(|thread| thread.join().unwrap())
            });
            assert_eq!(values, [values[0]; 4]);
            assert_eq!(calls.into_inner(), 1);
        }
    }

    #[test]
    fn a_panic_leaves_it_unset() {
        let once = OnceLock::new();
        let panic = || once.get_or_init(|| std::panic::resume_unwind(Box::new(())));
        assert!(std::panic::catch_unwind(panic).is_err());
        assert_eq!(once.get(), None);
        assert_eq!(once.set(1), Ok(()));
        assert_eq!(once.set(2), Err(2));
        assert_eq!(once.get(), Some(&1));
    }
}
