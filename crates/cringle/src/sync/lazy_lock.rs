//! A value that is made when it is first used.

use super::once::Once;
use super::once_lock::OnceLock;
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// `std::sync::LazyLock`, for fibers of any workers and for OS threads. The initialiser may wait:
/// the others' fibers wait for it, their workers do not.
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
    /// Taken by whoever runs the `Once`.
    initialiser: UnsafeCell<Option<F>>,
}

// SAFETY: the initialiser is taken by one caller, under the `Once`, on any thread (`Send`).
unsafe impl<T: Sync + Send, F: Send> Sync for LazyLock<T, F> {}
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    constructor! {
        /// One whose value `f` will make.
        pub const fn new(f: F) -> LazyLock<T, F> {
            let initialiser = UnsafeCell::new(Some(f));
            LazyLock { once: Once::new(), value: OnceLock::new(), initialiser }
        }
    }

    /// The value; made now if it is the first time.
    /// Suspends the calling fiber only while another one initialises.
    ///
    /// # Panics
    ///
    /// If the initialiser panics, or has been unwound before: it can be called only once.
    ///
    /// # Cancellation
    ///
    /// A cancelled fiber unwinds where it would wait for another one that makes the value.
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        match this.value.get() {
            Some(value) => value,
            None => this.make(),
        }
    }

    #[cold]
    #[track_caller]
    fn make(&self) -> &T {
        self.once.call_once_force(|_| {
            // SAFETY: one closure at a time runs under the `Once`, and nobody else looks.
            let f = unsafe { (*self.initialiser.get()).take() };
            // A panic or a cancel has unwound it.
            let f = f.expect("LazyLock instance has previously been poisoned");
            let set = self.value.set(f());
            debug_assert!(set.is_ok(), "only this writes it");
        });
        self.value.get().expect("initialised")
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
        match self.value.get() {
            Some(value) => fields.field(value),
            None => fields.field(&format_args!("<uninit>")),
        };
        fields.finish()
    }
}
