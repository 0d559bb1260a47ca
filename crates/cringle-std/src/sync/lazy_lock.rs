//! A value that is initialised on its first use.

use super::caller::Caller;
use super::once::Once;
use super::once_lock::OnceLock;
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// `std::sync::LazyLock`, for fibers of any workers and for threads. The initialiser may wait: the
/// fibers that need the value wait for it, their workers do not.
///
/// ```
/// use cringle::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
///
/// cringle::run(|| assert_eq!(SQUARES[7], 49));
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    once: Once,
    value: OnceLock<T>,
    /// Taken by the caller that runs the `Once`.
    initialiser: UnsafeCell<Option<F>>,
}

// SAFETY: the contract of `Once`: one caller takes the initialiser, on any thread (`F: Send`). The
// value is shared as by `OnceLock<T>`, which is `Sync` under the same bounds.
unsafe impl<T: Sync + Send, F: Send> Sync for LazyLock<T, F> {}
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    constructor! {
        /// Creates a value that `f` will initialise.
        ///
        /// ```
        /// let lazy = cringle::sync::LazyLock::new(|| 6 * 7);
        /// assert_eq!(*lazy, 42);
        /// ```
        pub const fn new(f: F) -> LazyLock<T, F> {
            let initialiser = UnsafeCell::new(Some(f));
            LazyLock { once: Once::new(), value: OnceLock::new(), initialiser }
        }
    }

    /// Returns the value, and initialises it on the first call.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// ```
    /// use cringle::sync::LazyLock;
    ///
    /// let lazy = LazyLock::new(|| 92);
    /// assert_eq!(LazyLock::force(&lazy), &92);
    /// ```
    ///
    /// # Panics
    ///
    /// If the initialiser panics, or unwound before: it can be called only once.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait for the initialiser of another caller.
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        match this.value.peek() {
            Some(value) => {
                Caller::current().count();
                value
            }
            None => this.make(),
        }
    }

    #[cold]
    #[track_caller]
    fn make(&self) -> &T {
        self.once.call_once_force(|_| {
            // SAFETY: the contract of `Once`: one closure runs at a time, and only this one touches
            // the initialiser.
            let f = unsafe { (*self.initialiser.get()).take() };
            // `None` if a panic or a cancel unwound the initialiser.
            let f = f.expect("LazyLock instance has previously been poisoned");
            let set = self.value.set(f());
            debug_assert!(set.is_ok(), "only this closure sets the value");
        });
        self.value.peek().expect("the closure has set the value")
    }
}

impl<T, F> LazyLock<T, F> {
    /// Returns the value, if it is initialised. Never waits.
    /// Suspends the calling fiber only after 128 failures in a row.
    #[inline]
    pub fn get(this: &LazyLock<T, F>) -> Option<&T> {
        this.value.get()
    }

    /// Returns the value for a change, if it is initialised.
    #[inline]
    pub fn get_mut(this: &mut LazyLock<T, F>) -> Option<&mut T> {
        this.value.get_mut()
    }
}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// Returns the value for a change, and initialises it on the first call.
    /// Never suspends the calling fiber, unless the initialiser does.
    ///
    /// ```
    /// use cringle::sync::LazyLock;
    ///
    /// let mut lazy = LazyLock::new(|| 92);
    /// *LazyLock::force_mut(&mut lazy) += 1;
    /// assert_eq!(LazyLock::get_mut(&mut lazy), Some(&mut 93));
    /// *lazy += 1;
    /// assert_eq!(*lazy, 94);
    /// ```
    ///
    /// # Panics
    ///
    /// As [`force`](LazyLock::force).
    #[inline]
    #[track_caller]
    pub fn force_mut(this: &mut LazyLock<T, F>) -> &mut T {
        LazyLock::force(this);
        this.value.get_mut().expect("`force` has set the value")
    }
}

impl<T, F: FnOnce() -> T> DerefMut for LazyLock<T, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        LazyLock::force_mut(self)
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_tuple("LazyLock");
        match self.value.peek() {
            Some(value) => fields.field(value),
            None => fields.field(&format_args!("<uninit>")),
        };
        fields.finish()
    }
}
