//! A value that is written once.

use super::caller::Caller;
use super::once::Once;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// `std::sync::OnceLock`, for fibers of any workers and for OS threads. The initialiser may wait:
/// the others' fibers wait for it, their workers do not.
///
/// ```
/// use cringle::{fiber, sync::OnceLock};
///
/// static LIMIT: OnceLock<u32> = OnceLock::new();
///
/// cringle::run(|| {
///     fiber::scope(|s| {
///         for _ in 0..3 {
///             s.spawn(|| assert_eq!(*LIMIT.get_or_init(|| 7), 7));
///         }
///     });
/// });
/// assert_eq!(LIMIT.set(8), Err(8));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// `Some` if the `Once` is completed. It drops itself: with a `Drop` of our own, a value could not borrow
    /// from what is dropped before the cell, which std's may.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written by one, and then only read; it may be dropped on another thread than
// the one that made it (`Send`).
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    constructor! {
        /// One without a value.
        #[must_use]
        pub const fn new() -> OnceLock<T> {
            OnceLock { once: Once::new(), value: UnsafeCell::new(None) }
        }
    }

    /// The value, if there is one. Never waits.
    /// Never suspends the calling fiber.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        Caller::current().count();
        // SAFETY: a completed `Once` has written the value, and nobody writes again.
        self.once.is_completed().then(|| unsafe { (*self.value.get()).as_ref().unwrap_unchecked() })
    }

    /// The value, if there is one.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// The value; waits until there is one.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    pub fn wait(&self) -> &T {
        // An initialiser that panicked leaves no poison: another one may come.
        self.once.wait_force();
        self.get().expect("waited for")
    }

    /// [`wait`](Self::wait), for a fiber that wants to be told that it is cancelled.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](crate::Cancelled) if the fiber is cancelled while it waits.
    pub fn wait_cancellable(&self) -> io::Result<&T> {
        self.once.wait_force_cancellable()?;
        Ok(self.get().expect("waited for"))
    }

    /// Leaves this value if there is none; waits if somebody is about to.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Errors
    ///
    /// The value, if there is one already.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// The value; made by `f` if there is none. If several ask at once, one makes it.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Panics
    ///
    /// With `f`'s panic; the next one may try then. An `f` that comes back here waits for ever.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        self.once.call_once_force(|_| {
            let value = f();
            // SAFETY: one closure at a time, and nobody reads before it has come to its end.
            unsafe { *self.value.get() = Some(value) };
        });
        self.get().expect("initialised")
    }

    /// The value, if there is one.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out, if there is one; another may come then.
    pub fn take(&mut self) -> Option<T> {
        self.once.reset();
        self.value.get_mut().take()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => fields.field(value),
            None => fields.field(&format_args!("<uninit>")),
        };
        fields.finish()
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.get().map_or_else(OnceLock::new, |value| OnceLock::from(value.clone()))
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        let lock = OnceLock::new();
        let set = lock.set(value);
        debug_assert!(set.is_ok(), "it is new");
        lock
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}
