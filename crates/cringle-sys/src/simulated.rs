//! The system calls that only the simulation makes.

use super::{Owned, check, fstat, report, syscall};
use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, RawFd};

/// Whether the descriptor refers to a Unix socket.
pub fn is_unix_socket(fd: RawFd) -> bool {
    // SAFETY: the caller's op borrows the descriptor, so it is open for the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    matches!(socket2::SockRef::from(&fd).domain(), Ok(socket2::Domain::UNIX))
}

/// Returns the inode number of a file.
pub fn inode_number(fd: RawFd) -> Option<u64> {
    fstat(fd).map(|stat| stat.st_ino)
}

/// Creates a file in memory (`memfd_create`).
pub fn memory_file(name: &str) -> io::Result<Owned<std::fs::File>> {
    let name = CString::new(name)?;
    // SAFETY: the C string is borrowed for the call; the descriptor is newly opened.
    unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC))?;
        Ok(Owned::new(FromRawFd::from_raw_fd(fd)))
    }
}

/// Returns the file's cursor.
pub fn cursor(fd: RawFd) -> u64 {
    // SAFETY: no pointers.
    unsafe { syscall!(SYS_lseek, fd, 0, libc::SEEK_CUR) }.max(0) as u64
}

/// Returns the number that [`set_description_mark`] has stored, or 0.
pub fn description_mark(fd: RawFd) -> u8 {
    const F_GETSIG: c_int = 11;
    // SAFETY: `F_GETSIG` takes no pointer.
    unsafe { syscall!(SYS_fcntl, fd, F_GETSIG) }.max(0) as u8
}

/// Stores a number up to 64 in an open file description, where all clones find it: as the signal
/// that would announce readiness, which a file never sends.
pub fn set_description_mark(fd: RawFd, mark: u8) {
    const F_SETSIG: c_int = 10;
    // SAFETY: `F_SETSIG` takes no pointer.
    unsafe { syscall!(SYS_fcntl, fd, F_SETSIG, mark) };
}

/// Sets the seed that this thread's reports name, while the thread runs a simulation.
pub fn set_report_seed(seed: Option<u64>) {
    report::SEED.set(seed);
}
