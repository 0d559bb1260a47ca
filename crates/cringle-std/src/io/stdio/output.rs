//! Standard output, which is line-buffered, and standard error, which is unbuffered.

use super::raw::{self, Raw};
use crate::sync::reentrant::{ReentrantGuard, ReentrantLock};
use crate::sync::{Mutex, MutexGuard};
use cringle_sys::lock::OnceLock;
use std::fmt;
use std::io::{self, LineWriter, Write};
use std::process::Stdio;
use std::sync::PoisonError;

/// A writer behind two locks. Several fibers may hold the reentrant one: the holder lends its guard
/// to its local children. The inner one lets one of them write at a time.
type Shared<W> = ReentrantLock<Mutex<W>>;

static OUT: OnceLock<Shared<LineWriter<Raw>>> = OnceLock::new();
static ERR: OnceLock<Shared<Raw>> = OnceLock::new();

fn out() -> &'static Shared<LineWriter<Raw>> {
    OUT.get_or_init(make_out)
}

fn err() -> &'static Shared<Raw> {
    ERR.get_or_init(|| ReentrantLock::new(Mutex::new(raw::STDERR)))
}

fn make_out() -> Shared<LineWriter<Raw>> {
    // SAFETY: the contract of `atexit`: an `extern "C"` function without arguments, which does
    // not unwind.
    unsafe { libc::atexit(flush_at_exit) };
    ReentrantLock::new(Mutex::new(LineWriter::new(raw::STDOUT)))
}

/// Writes the buffered partial line when the process exits, as std does. Errors are ignored.
extern "C" fn flush_at_exit() {
    raw::end();
    out().at_exit(|out| {
        if let Ok(mut out) = out.try_lock() {
            let _ = out.flush();
        }
    });
}

/// A handle to the process's standard output, as `std::io::Stdout`. All handles share one buffer,
/// which is written at each newline, behind a reentrant lock.
///
/// ```
/// use std::io::Write;
///
/// cringle::io::stdout().write_all(b"a line\n")?;
/// # std::io::Result::Ok(())
/// ```
pub struct Stdout(());

/// A lock on standard output, held until it is dropped. It stays on its fiber.
///
/// ```
/// use std::io::Write;
///
/// let mut out = cringle::io::stdout().lock();
/// writeln!(out, "a line")?;
/// # std::io::Result::Ok(())
/// ```
pub struct StdoutLock<'a>(ReentrantGuard<'a, Mutex<LineWriter<Raw>>>);

/// A handle to the process's standard error, as `std::io::Stderr`. It is unbuffered, behind a
/// reentrant lock.
///
/// ```
/// use std::io::Write;
///
/// cringle::io::stderr().write_all(b"a warning\n")?;
/// # std::io::Result::Ok(())
/// ```
pub struct Stderr(());

/// A lock on standard error, held until it is dropped. It stays on its fiber.
///
/// ```
/// use std::io::Write;
///
/// let mut err = cringle::io::stderr().lock();
/// writeln!(err, "a warning")?;
/// # std::io::Result::Ok(())
/// ```
pub struct StderrLock<'a>(ReentrantGuard<'a, Mutex<Raw>>);

/// Returns a handle to the process's standard output. If the reader of a pipe is slow, only the
/// calling fiber waits, where `println!` blocks the whole worker.
///
/// ```
/// use cringle::io::{self, Write};
///
/// cringle::run(|| -> io::Result<()> {
///     let mut out = io::stdout().lock();
///     writeln!(out, "a line")?;
///     writeln!(out, "and the next, with no line of another fiber in between")
/// })
/// # ?; io::Result::Ok(())
/// ```
///
/// # Cancellation
///
/// A cancel ends a wait with an error, and unwritten data stays in the buffer. A cancelled fiber
/// that waits for the lock unwinds.
pub fn stdout() -> Stdout {
    Stdout(())
}

/// Returns a handle to the process's standard error.
///
/// # Cancellation
///
/// As for [`stdout`].
pub fn stderr() -> Stderr {
    Stderr(())
}

impl Stdout {
    /// Acquires the lock, which its holder may acquire again. May suspend the calling fiber.
    pub fn lock(&self) -> StdoutLock<'static> {
        StdoutLock(out().lock())
    }
}

impl Stderr {
    /// Acquires the lock, which its holder may acquire again. May suspend the calling fiber.
    pub fn lock(&self) -> StderrLock<'static> {
        StderrLock(err().lock())
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

/// Implements the traits of standard output and standard error.
macro_rules! output {
    ($name:ident, $lock:ident, $fd:expr, $std:expr) => {
        writes_by!(
            &$name, |it| it.lock(),
            write_all(&[u8]) -> (),
            write_fmt(fmt::Arguments<'_>) -> ()
        );
        writes_by!(
            $name, |it| (&*it),
            write_all(&[u8]) -> (),
            write_fmt(fmt::Arguments<'_>) -> ()
        );

        // `write_fmt` is the trait's: it locks the writer for one piece at a time, so that a
        // formatted value may itself print.
        writes_by!($lock<'_>, |it| it.writer(), write_all(&[u8]) -> ());
        opaque_debug!($name, $lock<'a>);
        standard_descriptor!($fd => $name, $lock<'_>);

        /// Lets a child inherit the stream of this process.
        impl From<$name> for Stdio {
            fn from(_: $name) -> Stdio {
                Stdio::from($std)
            }
        }
    };
}
output!(Stdout, StdoutLock, libc::STDOUT_FILENO, io::stdout());
output!(Stderr, StderrLock, libc::STDERR_FILENO, io::stderr());
