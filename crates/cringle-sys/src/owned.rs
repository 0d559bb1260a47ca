//! Values of std's types that own a descriptor.

use super::raw::syscall;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A value of std's that owns a descriptor and nothing else (`OwnedFd`, `File`, a socket, an end of
/// a pipe). Its drop closes the descriptor by a raw system call, where std's calls libc (**I14**).
pub struct Owned<S: AsRawFd = OwnedFd>(ManuallyDrop<S>);

impl<S: AsRawFd> Owned<S> {
    /// Takes over a value of std.
    #[inline]
    pub fn new(std: S) -> Owned<S> {
        Owned(ManuallyDrop::new(std))
    }

    /// Returns std's value, which from then on closes the descriptor in std's way.
    pub fn into_std(self) -> S {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the contract of `take`: `this` is neither dropped nor used again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }

    /// Gives the descriptor up.
    pub fn into_fd(self) -> RawFd {
        ManuallyDrop::new(self).0.as_raw_fd()
    }
}

impl Owned {
    /// Owns a descriptor that a system call has just opened.
    ///
    /// # Safety
    ///
    /// The descriptor is open, and no other value owns it.
    pub unsafe fn of_new(fd: RawFd) -> Owned {
        // SAFETY: by the contract.
        Owned::new(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl<S: AsRawFd> Drop for Owned<S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: no pointers; this value owns the descriptor, and ends here. As std's drop, it
        // ignores the error.
        unsafe { syscall!(SYS_close, self.0.as_raw_fd()) };
    }
}

derefs!([S: AsRawFd] Owned<S> => S, |it| &it.0);

#[doc(hidden)]
impl<S: AsRawFd + AsFd> AsFd for Owned<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[doc(hidden)]
impl<S: AsRawFd> AsRawFd for Owned<S> {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<S: AsRawFd + fmt::Debug> fmt::Debug for Owned<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
