//! A cell that is written once.

use super::caller::Caller;
use super::once::Once;
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// `std::sync::OnceLock`, for fibers of any workers and for threads. The initialiser may wait: the
/// fibers that need the value wait for it, their workers do not.
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
    /// `Some` if the `Once` is completed. The type has no `Drop` impl: with one, a value could not
    /// borrow from data that is dropped before the cell, as it can with std's.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the contract of `Once`: one thread writes the value, and others only read it afterwards
// (`Sync`). A thread that did not make the value may drop it (`Send`).
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: the contract of `Send`: the cell owns its value, which is `Send`, and moves with it.
unsafe impl<T: Send> Send for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    constructor! {
        /// Creates an empty cell.
        #[must_use]
        pub const fn new() -> OnceLock<T> {
            OnceLock { once: Once::new(), value: UnsafeCell::new(None) }
        }
    }

    /// Returns the value, if it is set. Never waits.
    /// Suspends the calling fiber only after 128 failures in a row.
    /// A call that finds the value counts as nothing.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        let value = self.peek();
        if value.is_none() {
            Caller::current().tried(false);
        }
        value
    }

    /// [`get`](Self::get), which never suspends and counts as nothing.
    #[inline]
    pub(super) fn peek(&self) -> Option<&T> {
        // SAFETY: the completed `Once` has written the value, and it is not written again while the
        // cell is borrowed.
        self.once.is_done().then(|| unsafe { (*self.value.get()).as_ref().unwrap_unchecked() })
    }

    /// Returns the value, if it is set.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Waits until the value is set, and returns it.
    /// May suspend the calling fiber.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    pub fn wait(&self) -> &T {
        // An initialiser that panics does not poison the cell: another caller may set it.
        self.once.wait_force();
        self.peek().expect("the wait ends when the value is set")
    }

    /// Like [`wait`](Self::wait), but returns an error if the calling fiber is cancelled.
    /// May suspend the calling fiber.
    ///
    /// ```
    /// use cringle::{fiber, sync::OnceLock};
    ///
    /// let cell = OnceLock::<u8>::new();
    /// cringle::run(|| {
    ///     fiber::scope(|s| {
    ///         s.cancel();
    ///         assert!(cell.wait_cancellable().is_err());
    ///     });
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// A [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled while it
    /// waits.
    pub fn wait_cancellable(&self) -> io::Result<&T> {
        self.once.wait_force_cancellable()?;
        Ok(self.peek().expect("the wait ends when the value is set"))
    }

    /// Sets the value if the cell is empty. Waits for a caller that initialises it.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Errors
    ///
    /// The value, if the cell is already set.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value. If the cell is empty, one caller sets it to the result of its `f`, and
    /// the others wait.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Panics
    ///
    /// If `f` panics; the cell stays empty, and the next caller may initialise it. An `f` that
    /// initialises the same cell waits for itself for ever.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait.
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        self.once.call_once_force(|_| {
            let value = f();
            // SAFETY: the contract of `Once`: one closure runs at a time, and no caller reads the
            // value before a closure has completed.
            unsafe { *self.value.get() = Some(value) };
        });
        self.peek().expect("the closure has set the value")
    }

    /// Returns the value, if it is set.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out, if it is set, and leaves the cell empty.
    pub fn take(&mut self) -> Option<T> {
        self.once.reset();
        self.value.get_mut().take()
    }
}

default_by_new!(OnceLock<T>);

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_tuple("OnceLock");
        match self.peek() {
            Some(value) => fields.field(value),
            None => fields.field(&format_args!("<uninit>")),
        };
        fields.finish()
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.peek().map_or_else(OnceLock::new, |value| OnceLock::from(value.clone()))
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        let lock = OnceLock::new();
        let set = lock.set(value);
        debug_assert!(set.is_ok(), "a new cell is empty");
        lock
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.peek() == other.peek()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}
