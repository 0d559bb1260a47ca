//! Standard output, with an error if the process was started without one.
//!
//! If descriptor 1 is closed at the start (`>&-`), std opens `/dev/null` in its place before
//! `main`, so that output is lost without an error. This module therefore looks at the descriptor
//! before std does.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn record() {
    // SAFETY: a system call with no pointers.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags < 0, Relaxed);
}

// SAFETY: glibc and musl call every function in this section once before `main`. This one makes one
// system call and stores to an atomic, which needs none of std's set-up.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record;

/// Writes all bytes and flushes. Fails with `EBADF` if the process was started without a standard
/// output, or with one that is only for reading, which std would ignore.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    crate::file::may_write_to(libc::STDOUT_FILENO)?;
    if CLOSED.load(Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
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
