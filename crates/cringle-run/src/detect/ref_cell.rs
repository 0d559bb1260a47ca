//! std's `RefCell`, whose borrows the detector sees.

use cringle_core::hazards;
use cringle_core::hazards::held::{Kind, Record, describe_borrows};
use std::cell::{self, BorrowError, BorrowMutError};
use std::cmp::Ordering;
use std::fmt;
use std::panic::Location;

/// `std::cell::RefCell`, with borrows that the [detector](super) sees.
///
/// ```
/// use cringle::detect::RefCell;
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let list = RefCell::new(vec![1]);
///     list.borrow_mut().push(2); // The borrow ends here.
///     fiber::yield_now();
///     assert_eq!(*list.borrow(), [1, 2]);
/// });
/// ```
#[repr(transparent)]
pub struct RefCell<T: ?Sized>(cell::RefCell<T>);

/// A borrow of a [`RefCell`]'s value.
///
/// ```
/// let cell = cringle::detect::RefCell::new(1);
/// assert_eq!(*cell.borrow(), 1);
/// ```
#[must_use = "the borrow ends when this is dropped"]
pub struct Ref<'b, T: ?Sized + 'b> {
    inner: cell::Ref<'b, T>,
    record: Record,
}

/// A mutable borrow of a [`RefCell`]'s value.
///
/// ```
/// let cell = cringle::detect::RefCell::new(1);
/// *cell.borrow_mut() += 1;
/// assert_eq!(cell.into_inner(), 2);
/// ```
#[must_use = "the borrow ends when this is dropped"]
pub struct RefMut<'b, T: ?Sized + 'b> {
    inner: cell::RefMut<'b, T>,
    record: Record,
}

impl<T> RefCell<T> {
    /// Creates a cell with this value.
    pub const fn new(value: T) -> RefCell<T> {
        RefCell(cell::RefCell::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Sets the value, and returns the one before.
    ///
    /// # Panics
    ///
    /// If the value is borrowed.
    #[track_caller]
    pub fn replace(&self, value: T) -> T {
        std::mem::replace(&mut *self.borrow_mut(), value)
    }

    /// Sets the value to one that `f` makes of it, and returns the one before.
    ///
    /// # Panics
    ///
    /// If the value is borrowed.
    #[track_caller]
    pub fn replace_with<F: FnOnce(&mut T) -> T>(&self, f: F) -> T {
        let value = &mut *self.borrow_mut();
        let new = f(value);
        std::mem::replace(value, new)
    }

    /// Swaps the values of two cells.
    ///
    /// # Panics
    ///
    /// If one of the values is borrowed, or if both cells are the same.
    #[track_caller]
    pub fn swap(&self, other: &RefCell<T>) {
        std::mem::swap(&mut *self.borrow_mut(), &mut *other.borrow_mut());
    }

    /// Takes the value, and leaves the default.
    ///
    /// # Panics
    ///
    /// If the value is borrowed.
    #[track_caller]
    pub fn take(&self) -> T
    where
        T: Default,
    {
        self.replace(T::default())
    }
}

impl<T: ?Sized> RefCell<T> {
    /// Borrows the value.
    ///
    /// # Panics
    ///
    /// If the value is mutably borrowed. The message names the fiber that has borrowed it.
    #[inline]
    #[track_caller]
    pub fn borrow(&self) -> Ref<'_, T> {
        if hazards::is_active() && self.0.try_borrow().is_err() {
            self.explain("mutably borrowed");
        }
        Ref { inner: self.0.borrow(), record: self.record(Kind::Borrow) }
    }

    /// Borrows the value, if it is not mutably borrowed.
    ///
    /// # Errors
    ///
    /// If the value is mutably borrowed.
    #[inline]
    #[track_caller]
    pub fn try_borrow(&self) -> Result<Ref<'_, T>, BorrowError> {
        let inner = self.0.try_borrow()?;
        Ok(Ref { inner, record: self.record(Kind::Borrow) })
    }

    /// Borrows the value mutably.
    ///
    /// # Panics
    ///
    /// If the value is borrowed. The message names the fibers that have borrowed it.
    #[inline]
    #[track_caller]
    pub fn borrow_mut(&self) -> RefMut<'_, T> {
        if hazards::is_active() && self.0.try_borrow_mut().is_err() {
            self.explain("borrowed");
        }
        RefMut { inner: self.0.borrow_mut(), record: self.record(Kind::BorrowMut) }
    }

    /// Borrows the value mutably, if it is not borrowed.
    ///
    /// # Errors
    ///
    /// If the value is borrowed.
    #[inline]
    #[track_caller]
    pub fn try_borrow_mut(&self) -> Result<RefMut<'_, T>, BorrowMutError> {
        let inner = self.0.try_borrow_mut()?;
        Ok(RefMut { inner, record: self.record(Kind::BorrowMut) })
    }

    /// Returns a pointer to the value.
    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Returns the value. The exclusive borrow proves that it is not borrowed.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    #[inline]
    #[track_caller]
    fn record(&self, kind: Kind) -> Record {
        Record::new(kind, (&raw const self.0).cast(), Location::caller())
    }

    /// Panics as std does, if the detector can say more than std.
    #[cold]
    #[track_caller]
    fn explain(&self, how: &str) {
        if let Some(borrows) = describe_borrows((&raw const self.0).cast()) {
            panic!("RefCell already {how}: {borrows}");
        }
    }
}

impl<'b, T: ?Sized> Ref<'b, T> {
    /// Returns another borrow of the same value. As of std's, this is no method, so that it does
    /// not hide the value's own.
    #[allow(clippy::should_implement_trait, reason = "std's is an associated function, too")]
    #[track_caller]
    pub fn clone(orig: &Ref<'b, T>) -> Ref<'b, T> {
        Ref { inner: cell::Ref::clone(&orig.inner), record: orig.record.again(Location::caller()) }
    }

    /// Returns a borrow of a part of the value.
    pub fn map<U: ?Sized, F: FnOnce(&T) -> &U>(orig: Ref<'b, T>, f: F) -> Ref<'b, U> {
        Ref { inner: cell::Ref::map(orig.inner, f), record: orig.record }
    }
}

impl<'b, T: ?Sized> RefMut<'b, T> {
    /// Returns a mutable borrow of a part of the value.
    pub fn map<U: ?Sized, F: FnOnce(&mut T) -> &mut U>(orig: RefMut<'b, T>, f: F) -> RefMut<'b, U> {
        RefMut { inner: cell::RefMut::map(orig.inner, f), record: orig.record }
    }
}

derefs!([T: ?Sized] Ref<'_, T> => T, |guard| &guard.inner);

derefs!([T: ?Sized] RefMut<'_, T> => T, |guard| &guard.inner, mut &mut guard.inner);

prints_value!(Ref, RefMut);

impl<T: ?Sized + fmt::Debug> fmt::Debug for RefCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

made_of_value!(RefCell);

impl<T: Clone> Clone for RefCell<T> {
    #[track_caller]
    fn clone(&self) -> RefCell<T> {
        RefCell::new(self.borrow().clone())
    }
}

impl<T: ?Sized + PartialEq> PartialEq for RefCell<T> {
    fn eq(&self, other: &RefCell<T>) -> bool {
        *self.borrow() == *other.borrow()
    }
}

impl<T: ?Sized + Eq> Eq for RefCell<T> {}

impl<T: ?Sized + PartialOrd> PartialOrd for RefCell<T> {
    fn partial_cmp(&self, other: &RefCell<T>) -> Option<Ordering> {
        self.borrow().partial_cmp(&*other.borrow())
    }
}

impl<T: ?Sized + Ord> Ord for RefCell<T> {
    fn cmp(&self, other: &RefCell<T>) -> Ordering {
        self.borrow().cmp(&*other.borrow())
    }
}
