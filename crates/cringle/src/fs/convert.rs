//! Conversions of a file to and from descriptors and std's types.
//!
//! Each conversion marks the cursor as shared with handles that the library does not know: see
//! [`cursor`](super::cursor). The library's own calls use `File::fd` and `File::std` instead.

use super::File;
use crate::sys;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        sys::debug_plainly(self.std(), f)
    }
}

impl From<std::fs::File> for File {
    fn from(std: std::fs::File) -> File {
        let file = File::of_std(std);
        file.lend();
        file
    }
}

impl From<File> for std::fs::File {
    fn from(file: File) -> std::fs::File {
        file.lend();
        file.into_std()
    }
}

/// Uses the file as a child process's standard stream.
impl From<File> for std::process::Stdio {
    fn from(file: File) -> std::process::Stdio {
        std::fs::File::from(file).into()
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        std::fs::File::from(fd).into()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        std::fs::File::from(file).into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lend();
        self.std().as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.lend();
        self.std().as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        std::fs::File::from(self).into_raw_fd()
    }
}

impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the contract of std's function: the caller passes ownership of an open
        // descriptor.
        unsafe { std::fs::File::from_raw_fd(fd) }.into()
    }
}
