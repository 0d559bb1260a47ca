//! Standard output, in lines, and standard error, at once.

use super::raw::{self, Raw};
use crate::sync::reentrant::{ReentrantGuard, ReentrantLock};
use crate::sync::{Mutex, MutexGuard};
use std::fmt;
use std::io::{self, IoSlice, LineWriter, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::process::Stdio;
use std::sync::{LazyLock, PoisonError};

/// The holder of the outer lock may be several fibers: its local children, that were lent a guard. One of
/// them writes at a time.
type Shared<W> = ReentrantLock<Mutex<W>>;

static OUT: LazyLock<Shared<LineWriter<Raw>>> = LazyLock::new(|| {
    // SAFETY: the function takes nothing, and never unwinds.
    unsafe { libc::atexit(flush_at_exit) };
    ReentrantLock::new(Mutex::new(LineWriter::new(raw::STDOUT)))
});
static ERR: LazyLock<Shared<Raw>> = LazyLock::new(|| ReentrantLock::new(Mutex::new(raw::STDERR)));

/// A line that was begun is written when the process ends, as std does. An error has nobody to be told.
extern "C" fn flush_at_exit() {
    raw::end();
    OUT.at_exit(|out| {
        if let Ok(mut out) = out.try_lock() {
            let _ = out.flush();
        }
    });
}

/// The process's standard output, as `std::io::Stdout`: one buffer for all, written out at each end of a
/// line, behind a lock that its holder may take again.
pub struct Stdout(());

/// Standard output, locked until this is dropped. It stays with its fiber.
pub struct StdoutLock<'a>(ReentrantGuard<'a, Mutex<LineWriter<Raw>>>);

/// The process's standard error, as `std::io::Stderr`: unbuffered, behind a lock that its holder may take
/// again.
pub struct Stderr(());

/// Standard error, locked until this is dropped. It stays with its fiber.
pub struct StderrLock<'a>(ReentrantGuard<'a, Mutex<Raw>>);

/// The process's standard output. Where the other end of a pipe reads slowly, only the calling fiber
/// waits; `println!` would keep all of its worker waiting.
///
/// ```
/// use cringle::io::{self, Write};
///
/// cringle::run(|| -> io::Result<()> {
///     let mut out = io::stdout().lock();
///     writeln!(out, "a line")?;
///     writeln!(out, "and the next, with no other fiber's in between")
/// })
/// # ?; Ok::<(), io::Error>(())
/// ```
///
/// # Cancellation
///
/// A wait is given up with an error; what was not written stays in the buffer. A cancelled fiber that
/// waits for the lock unwinds.
pub fn stdout() -> Stdout {
    Stdout(())
}

/// The process's standard error.
///
/// ```
/// use cringle::io::{self, Write};
///
/// cringle::run(|| writeln!(io::stderr(), "something is wrong"))?;
/// # Ok::<(), io::Error>(())
/// ```
///
/// # Cancellation
///
/// As of [`stdout`].
pub fn stderr() -> Stderr {
    Stderr(())
}

impl Stdout {
    /// Waits until no other fiber or thread has the lock.
    /// May suspend the calling fiber.
    pub fn lock(&self) -> StdoutLock<'static> {
        StdoutLock(OUT.lock())
    }
}

impl Stderr {
    /// Waits until no other fiber or thread has the lock.
    /// May suspend the calling fiber.
    pub fn lock(&self) -> StderrLock<'static> {
        StderrLock(ERR.lock())
    }
}

impl StdoutLock<'_> {
    fn writer(&self) -> MutexGuard<'_, LineWriter<Raw>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StderrLock<'_> {
    fn writer(&self) -> MutexGuard<'_, Raw> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What standard output and standard error have in common.
macro_rules! output {
    ($name:ident, $lock:ident, $fd:expr, $std:expr) => {
        impl Write for &$name {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.lock().write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.lock().write_vectored(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                self.lock().flush()
            }

            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                self.lock().write_all(buf)
            }

            fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
                self.lock().write_fmt(text)
            }
        }

        impl Write for $name {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                (&*self).flush()
            }

            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                (&*self).write_all(buf)
            }

            fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
                (&*self).write_fmt(text)
            }
        }

        // `write_fmt` is std's: it borrows for one piece at a time, so that what is formatted may print.
        impl Write for $lock<'_> {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.writer().write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.writer().write_vectored(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                self.writer().flush()
            }

            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                self.writer().write_all(buf)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl fmt::Debug for $lock<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($lock)).finish_non_exhaustive()
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: std takes the standard streams to be open for ever.
                unsafe { BorrowedFd::borrow_raw($fd) }
            }
        }

        impl AsFd for $lock<'_> {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: as above.
                unsafe { BorrowedFd::borrow_raw($fd) }
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                $fd
            }
        }

        impl AsRawFd for $lock<'_> {
            fn as_raw_fd(&self) -> RawFd {
                $fd
            }
        }

        /// The child's stream is this process's.
        impl From<$name> for Stdio {
            fn from(_: $name) -> Stdio {
                Stdio::from($std)
            }
        }
    };
}
output!(Stdout, StdoutLock, libc::STDOUT_FILENO, io::stdout());
output!(Stderr, StderrLock, libc::STDERR_FILENO, io::stderr());
