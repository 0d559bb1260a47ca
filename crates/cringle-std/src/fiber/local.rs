//! Fiber-locals: for fibers what `thread_local!` is for threads.

use cringle_core::fiber::Locals;
use cringle_core::worker::Current;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Declares values of which every fiber has its own, initialised on its first use.
///
/// A `thread_local!` is shared by all fibers of a worker; a fiber-local is not. Outside of a fiber,
/// each thread has its own value.
///
/// ```
/// use cringle::fiber;
/// use std::cell::Cell;
///
/// cringle::fiber_local! {
///     static DEPTH: Cell<u32> = Cell::new(0);
/// }
///
/// cringle::run(|| {
///     DEPTH.with(|depth| depth.set(7));
///     fiber::spawn_local(|| assert_eq!(DEPTH.with(Cell::get), 0)).join().unwrap();
///     assert_eq!(DEPTH.with(Cell::get), 7);
/// });
/// ```
#[macro_export]
macro_rules! fiber_local {
    () => {};
    ($(#[$attr:meta])* $vis:vis static $name:ident : $type:ty = $init:expr; $($rest:tt)*) => {
        $crate::fiber_local!($(#[$attr])* $vis static $name: $type = $init);
        $crate::fiber_local!($($rest)*);
    };
    ($(#[$attr:meta])* $vis:vis static $name:ident : $type:ty = $init:expr) => {
        $(#[$attr])*
        $vis static $name: $crate::fiber::LocalKey<$type> = {
            // Each key has a static of its own, and so an address that no other key has.
            static KEY: u8 = 0;
            fn init() -> $type {
                $init
            }
            $crate::fiber::LocalKey::new(&KEY, init)
        };
    };
}

thread_local! {
    /// The locals of a thread outside of any fiber.
    static OF_THREAD: RefCell<Locals> = const { RefCell::new(Vec::new()) };
}

/// A fiber-local declared by [`fiber_local!`](crate::fiber_local).
///
/// Its value is dropped when the fiber ends. The destructor may wait, and no cancel interrupts it.
/// If it panics, the process aborts, as for a `thread_local!`.
///
/// ```
/// use cringle::fiber::LocalKey;
/// use std::cell::Cell;
///
/// cringle::fiber_local! { static HITS: Cell<u32> = Cell::new(0); }
///
/// fn increment(counter: &'static LocalKey<Cell<u32>>) {
///     counter.set(counter.get() + 1);
/// }
///
/// cringle::run(|| {
///     increment(&HITS);
///     assert_eq!(HITS.get(), 1);
/// });
/// ```
pub struct LocalKey<T: 'static> {
    key: &'static u8,
    init: fn() -> T,
}

/// The error of [`LocalKey::try_with`]: the value is being destroyed or is gone.
///
/// ```
/// use cringle::fiber::AccessError;
///
/// cringle::fiber_local! { static LIMIT: u32 = 7; }
///
/// fn limit() -> Result<u32, AccessError> {
///     LIMIT.try_with(|limit| *limit)
/// }
///
/// assert_eq!(limit(), Ok(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessError;

impl std::fmt::Display for AccessError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the fiber-local is already destroyed")
    }
}

impl std::error::Error for AccessError {}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(key: &'static u8, init: fn() -> T) -> LocalKey<T> {
        LocalKey { key, init }
    }

    /// Calls `f` with the calling fiber's value, which is initialised first if necessary.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// cringle::fiber_local! { static DEPTH: Cell<u32> = Cell::new(1); }
    ///
    /// assert_eq!(DEPTH.with(|depth| depth.get() + 1), 2);
    /// ```
    ///
    /// # Panics
    ///
    /// In a destructor, if this value is being destroyed or is gone, or if all locals of the thread
    /// are, as std's.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).expect("a fiber-local was used during or after its destruction")
    }

    /// Like [`with`](Self::with), but returns failures as errors.
    ///
    /// # Errors
    ///
    /// In a destructor, if this value is being destroyed or is gone, or if all locals of the thread
    /// are.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let value = match Current::identity() {
            Some(fiber) => self.get_in(fiber.locals()),
            None => OF_THREAD.try_with(|locals| self.get_in(locals)).map_err(|_| AccessError)?,
        };
        Ok(f(&*value?))
    }

    fn get_in(&'static self, locals: &RefCell<Locals>) -> Result<Rc<T>, AccessError> {
        let key = std::ptr::from_ref(self.key) as usize;
        let find = |locals: &Locals| {
            let found = locals.iter().find(|(k, _)| *k == key);
            found.map(|(_, value)| value.as_ref().map(Rc::clone).ok_or(AccessError))
        };
        let found = find(&locals.borrow());
        let value: Rc<dyn Any> = found.unwrap_or_else(|| {
            // No borrow is held here: the initialiser may use other locals, and may suspend.
            let value: Rc<dyn Any> = Rc::new((self.init)());
            let first = find(&locals.borrow());
            // If the initialiser used this very key, the value that was stored first stays. The
            // other one is dropped without a borrow: its destructor may use locals.
            first.unwrap_or_else(|| {
                locals.borrow_mut().push((key, Some(Rc::clone(&value))));
                Ok(value)
            })
        })?;
        Ok(value.downcast().expect("a key has one type"))
    }
}

/// std's shortcuts for a `Cell`, on the calling fiber's value.
///
/// ```
/// use std::cell::Cell;
///
/// cringle::fiber_local! { static COUNT: Cell<u32> = Cell::new(1); }
///
/// COUNT.set(COUNT.get() + 1);
/// assert_eq!((COUNT.replace(5), COUNT.take(), COUNT.get()), (2, 5, 0));
/// ```
impl<T: 'static> LocalKey<Cell<T>> {
    /// Sets the value. Unlike std's, it initialises the value first.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// cringle::fiber_local! { static COUNT: Cell<u32> = Cell::new(1); }
    ///
    /// COUNT.set(2);
    /// assert_eq!(COUNT.get(), 2);
    /// ```
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Returns a copy of the value.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the value, and leaves the default.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }

    /// Sets the value and returns the previous one.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

/// std's shortcuts for a `RefCell`, on the calling fiber's value. Each panics where the `RefCell`
/// does.
///
/// ```
/// use std::cell::RefCell;
///
/// cringle::fiber_local! { static NAMES: RefCell<Vec<&'static str>> = RefCell::new(vec![]); }
///
/// NAMES.with_borrow_mut(|names| names.push("rope"));
/// assert_eq!(NAMES.with_borrow(|names| names.len()), 1);
/// assert_eq!(NAMES.take(), ["rope"]);
/// ```
impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `f` with a borrow of the value.
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with a mutable borrow of the value.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }

    /// Sets the value. Unlike std's, it initialises the value first.
    pub fn set(&'static self, value: T) {
        drop(self.replace(value));
    }

    /// Takes the value, and leaves the default.
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(RefCell::take)
    }

    /// Sets the value and returns the previous one.
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> std::fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}
