//! Standard input.

use super::raw::{self, Raw};
use crate::sync::{Mutex, MutexGuard};
use cringle_core::worker::fairness;
use cringle_sys::lock::OnceLock;
use std::io::{self, BufRead, BufReader, IoSliceMut, Lines, Read};
use std::sync::PoisonError;

static BUFFER: OnceLock<Mutex<BufReader<Raw>>> = OnceLock::new();

fn buffer() -> &'static Mutex<BufReader<Raw>> {
    BUFFER.get_or_init(|| Mutex::new(BufReader::new(raw::STDIN)))
}

/// A handle to the process's standard input, as `std::io::Stdin`. All handles share one buffer,
/// behind a lock.
///
/// ```no_run
/// use std::io::Read;
///
/// let mut text = String::new();
/// cringle::io::stdin().read_to_string(&mut text)?;
/// # std::io::Result::Ok(())
/// ```
pub struct Stdin(());

opaque_debug!(Stdin);

/// A lock on standard input, held until it is dropped, which implements [`BufRead`]. It stays on
/// its fiber.
///
/// ```no_run
/// use std::io::BufRead;
///
/// let mut line = Vec::new();
/// cringle::io::stdin().lock().read_until(b';', &mut line)?;
/// # std::io::Result::Ok(())
/// ```
pub struct StdinLock<'a>(MutexGuard<'a, BufReader<Raw>>);

/// Returns a handle to the process's standard input.
///
/// ```
/// use cringle::io;
///
/// cringle::run(|| -> io::Result<()> {
///     for line in io::stdin().lines() {
///         println!("{}", line?); // Other fibers run while this one waits.
///     }
///     Ok(())
/// })
/// # ?; io::Result::Ok(())
/// ```
///
/// # Cancellation
///
/// A cancel ends a wait for input with an error. No data is lost, except for the start of a line
/// that [`lines`](Stdin::lines) has not returned yet ([`read_line`](Stdin::read_line) leaves it in
/// the caller's `String`). A cancelled fiber that waits for the lock unwinds.
pub fn stdin() -> Stdin {
    Stdin(())
}

impl Stdin {
    /// Acquires the lock. May suspend the calling fiber.
    pub fn lock(&self) -> StdinLock<'static> {
        // A panic of the holder leaves the buffer consistent, so poisoning is ignored.
        StdinLock(buffer().lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends a line, including its newline, to `buf`, and returns the number of bytes, 0 at the
    /// end of the input. May suspend the calling fiber.
    ///
    /// # Errors
    ///
    /// As std's: `InvalidData` if the line is not UTF-8; and
    /// [`Cancelled`](cringle_core::cancelled::Cancelled).
    pub fn read_line(&self, buf: &mut String) -> io::Result<usize> {
        self.lock().read_line(buf)
    }

    /// Acquires the lock, and returns an iterator over the lines without their newlines.
    /// May suspend the calling fiber.
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }
}

macro_rules! reads_whole {
    ($type:ty, |$it:ident| $reader:expr) => {
        reads_by!(
            $type, |$it| $reader,
            read_to_end(&mut Vec<u8>) -> usize,
            read_to_string(&mut String) -> usize,
            read_exact(&mut [u8]) -> ()
        );
    };
}
reads_whole!(&Stdin, |it| it.lock());
reads_whole!(Stdin, |it| (&*it));

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

opaque_debug!(StdinLock<'a>);

standard_descriptor!(libc::STDIN_FILENO => Stdin, StdinLock<'_>);
