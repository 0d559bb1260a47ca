//! Standard input.

use super::raw::{self, Raw};
use crate::runtime::worker::fairness;
use crate::sync::{Mutex, MutexGuard};
use std::fmt;
use std::io::{self, BufRead, BufReader, IoSliceMut, Lines, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{LazyLock, PoisonError};

static BUFFER: LazyLock<Mutex<BufReader<Raw>>> =
    LazyLock::new(|| Mutex::new(BufReader::new(raw::STDIN)));

/// The process's standard input, as `std::io::Stdin`: one buffer for all, behind a lock.
pub struct Stdin(());

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdin").finish_non_exhaustive()
    }
}

/// Standard input, locked until this is dropped: [`BufRead`]. It stays with its fiber.
pub struct StdinLock<'a>(MutexGuard<'a, BufReader<Raw>>);

/// The process's standard input.
///
/// ```
/// use cringle::io;
///
/// cringle::run(|| -> io::Result<()> {
///     for line in io::stdin().lines() {
///         println!("{}", line?); // The other fibers go on while this one waits for the next.
///     }
///     Ok(())
/// })
/// # ?; Ok::<(), io::Error>(())
/// ```
///
/// # Cancellation
///
/// A wait for input is given up with an error; no byte is lost to it, but the beginning of a line that
/// [`lines`](Stdin::lines) had not returned yet ([`read_line`](Stdin::read_line) leaves it in its buffer). A
/// cancelled fiber that waits for the lock unwinds.
pub fn stdin() -> Stdin {
    Stdin(())
}

impl Stdin {
    /// Waits until nobody else has the lock.
    /// May suspend the calling fiber.
    pub fn lock(&self) -> StdinLock<'static> {
        // Who panicked with the lock left the buffer as it was.
        StdinLock(BUFFER.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends a line, with its end, to `buf`; how many bytes, 0 at the end of the input.
    /// May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As std's: `InvalidData` for what is no UTF-8; and [`Cancelled`](crate::Cancelled).
    pub fn read_line(&self, buf: &mut String) -> io::Result<usize> {
        self.lock().read_line(buf)
    }

    /// Its lines without their ends, under one lock.
    /// May suspend the calling fiber.
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }
}

impl Read for &Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.lock().read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.lock().read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        self.lock().read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.lock().read_exact(buf)
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        (&*self).read_exact(buf)
    }
}

impl Read for StdinLock<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        fairness::spend();
        self.0.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.0.read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        self.0.read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(buf)
    }
}

impl BufRead for StdinLock<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        fairness::spend();
        self.0.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.0.consume(count);
    }
}

impl fmt::Debug for StdinLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdinLock").finish_non_exhaustive()
    }
}

macro_rules! descriptor_0 {
    ($($name:ty),*) => {$(
        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: std takes the standard streams to be open for ever.
                unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                libc::STDIN_FILENO
            }
        }
    )*};
}
descriptor_0!(Stdin, StdinLock<'_>);
