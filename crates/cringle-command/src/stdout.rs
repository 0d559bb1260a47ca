//! Standard output, with an error if the process was started without one.

use crate::startup;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

/// Writes all bytes. Fails with `EBADF` if the process was started without a standard output, or
/// with one that is only for reading, also if there are no bytes.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    crate::file::may_write_to(libc::STDOUT_FILENO)?;
    let mut out = io::stdout().lock();
    out.flush()?;
    write_whole(libc::STDOUT_FILENO, bytes)
}

/// Writes all bytes to descriptor 1 or 2. Std's handles hide `EBADF`, the error of a descriptor
/// that is closed, or open only for reading.
pub(crate) fn write_whole(fd: i32, bytes: &[u8]) -> io::Result<()> {
    if startup::is_closed(fd) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: `ManuallyDrop` never closes the descriptor, which is open for the whole process.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }).write_all(bytes)
}

/// Describes an error of [`write()`].
pub fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        // The socket that stands in for a closed descriptor is not connected.
        Some(libc::EBADF | libc::ENOTCONN) => {
            "standard output is closed, or only for reading".into()
        }
        _ => error.to_string(),
    }
}
