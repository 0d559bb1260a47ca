//! Errors: an `errno` with words, which the calling thread keeps.

use crate::{cancellation, sabotage, terms};
use cringle::cancel;
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The failure of a call.
#[derive(Debug)]
pub(crate) struct Error {
    errno: c_int,
    text: Cow<'static, str>,
}

impl Error {
    pub(crate) fn new(errno: c_int, text: impl Into<Cow<'static, str>>) -> Error {
        Error { errno, text: text.into() }
    }
}

impl Error {
    /// Returns the error of a start that the kernel has refused, with a remedy.
    pub(crate) fn of_start(e: io::Error) -> Error {
        let Error { errno, text } = Error::from(e);
        let remedy = match errno {
            _ if text.contains("raise") => return Error { errno, text },
            libc::EAGAIN => {
                "a thread was refused: raise RLIMIT_NPROC (`ulimit -u`), pids.max of the control \
                 group, or the sysctl kernel.threads-max, or ask for fewer workers"
            }
            libc::ENOMEM => {
                "memory was refused: raise RLIMIT_AS (`ulimit -v`), memory.max of the control \
                 group, or the sysctl vm.max_map_count, or ask for fewer workers"
            }
            _ => return Error { errno, text },
        };
        Error::new(errno, format!("the engine cannot start: {text}; {remedy}"))
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::new(errno_of(&e), terms::of_c(e.to_string()))
    }
}

/// Returns the `errno` of an error, also of one that has a message instead.
pub(crate) fn errno_of(e: &io::Error) -> c_int {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(error) = next {
        if let Some(errno) = error.downcast_ref().and_then(io::Error::raw_os_error) {
            return errno;
        }
        next = error.source();
    }
    if cancel::reason(e).is_some() {
        return libc::ECANCELED;
    }
    match e.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::NotConnected => libc::EBADF,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        io::ErrorKind::PermissionDenied => libc::EPERM,
        io::ErrorKind::Deadlock => libc::EDEADLK,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        _ => libc::EIO,
    }
}

thread_local! {
    /// The words of the last failure of a call by this thread.
    static LAST: RefCell<Cow<'static, str>> = const { RefCell::new(Cow::Borrowed("")) };
}

/// Keeps the words for `cringle_last_error`. (A thread that ends has no place for them.)
#[cold]
pub(crate) fn remember(text: Cow<'static, str>) {
    let _ = LAST.try_with(|last| drop(last.replace(text)));
}

pub(crate) fn last() -> Cow<'static, str> {
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

/// Runs the body of an exported function: no panic leaves it, no cancel of the thread ends it, and
/// the words of an error are kept.
pub(crate) fn border(body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    let _disabled = cancellation::disable();
    let body = || {
        sabotage::at("calls");
        body()
    };
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error,
        Err(payload) => Error::new(libc::ENOTRECOVERABLE, words_of_panic(payload)),
    };
    remember(error.text);
    -error.errno
}

/// Runs the body of an exported function that copies words as [`copy_text`] does: no panic leaves
/// it, and no cancel of the thread ends it. The words of a panic are copied instead.
///
/// # Safety
///
/// As for [`copy_text`].
pub(crate) unsafe fn border_of_words(
    words: impl FnOnce() -> Cow<'static, str>,
    out: *mut c_char,
    size: usize,
) -> usize {
    let _disabled = cancellation::disable();
    let words = || {
        sabotage::at("calls");
        words()
    };
    let words = catch_unwind(AssertUnwindSafe(words));
    let words = words.unwrap_or_else(|payload| words_of_panic(payload).into());
    // SAFETY: this function's contract.
    unsafe { copy_text(&words, out, size) }
}

#[cold]
fn words_of_panic(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast_ref::<&str>().unwrap_or(&"a panic").to_string(),
    };
    format!("a bug of the library: {text}; report it")
}

/// Copies a text as `snprintf` does: at most `size - 1` bytes and a 0. Returns the text's length.
///
/// # Safety
///
/// `out` points to `size` bytes, or `size` is 0.
pub(crate) unsafe fn copy_text(text: &str, out: *mut c_char, size: usize) -> usize {
    if let Some(room) = size.checked_sub(1)
        && !out.is_null()
    {
        let count = floor_char_boundary(text, room);
        // SAFETY: this function's contract.
        unsafe {
            out.copy_from_nonoverlapping(text.as_ptr().cast(), count);
            out.add(count).write(0);
        }
    }
    text.len()
}

/// Returns the last boundary of a character that is not behind `at`.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}
