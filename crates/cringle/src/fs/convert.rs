//! Conversions of a file from and to descriptors and std's types.

use super::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.std().fmt(f)
    }
}

impl From<std::fs::File> for File {
    fn from(std: std::fs::File) -> File {
        File::of_std(std)
    }
}

/// Clones made before do not share the lock of the cursor with what is made of it.
impl From<File> for std::fs::File {
    fn from(file: File) -> std::fs::File {
        file.into_std()
    }
}

/// A child process's standard stream.
impl From<File> for std::process::Stdio {
    fn from(file: File) -> std::process::Stdio {
        file.into_std().into()
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        std::fs::File::from(fd).into()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.into_std().into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.std().as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.std().as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.into_std().into_raw_fd()
    }
}

impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the caller owns the descriptor, as std's function asks.
        unsafe { std::fs::File::from_raw_fd(fd) }.into()
    }
}
