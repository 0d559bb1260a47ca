//! Standard output, and whether there was one.
//!
//! A program may be started with descriptor 1 closed (`>&-`). Before `main`, std opens `/dev/null` there, so
//! that no file gets the number: what is printed is lost, and no call fails. So this looks earlier.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags < 0, Relaxed);
}

// SAFETY: the C library calls each function of this section once, before `main` and before std's set-up;
// `look` calls one function of the C library and stores to an atomic.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

/// Writes all of it, at once; fails with `EBADF` if the program was started without a standard output.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    if CLOSED.load(Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
