//! Helpers of the tests that run fibers: how to start them, cancel them, and check how they ended.

use cringle::cancel::{self, Reason};
use cringle::fs::File;
use cringle::net::{TcpListener, TcpStream};
use cringle::{Builder, Cancelled, fiber};
use std::any::Any;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

#[track_caller]
pub fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    on_workers(1, f)
}

#[track_caller]
pub fn on_two_workers<T>(f: impl FnOnce() -> T) -> T {
    on_workers(2, f)
}

#[track_caller]
fn on_workers<T>(count: usize, f: impl FnOnce() -> T) -> T {
    let (mut f, mut value) = (Some(f), None);
    run(Builder::new().workers(count), &mut || value = f.take().map(|f| f()));
    value.expect("the closure has run")
}

/// Runs a closure whose type is always the same, so that `Builder::run` is compiled once for all
/// tests, and not for each closure.
#[track_caller]
pub(crate) fn run(builder: Builder, f: &mut dyn FnMut()) {
    builder.run(f).unwrap();
}

/// Returns the reading and the writing end of a pipe.
pub fn pipe() -> (File, File) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
}

/// Both ends of a TCP connection.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Returns the number of bytes that a read would find now.
pub fn readable_bytes(reader: &impl AsFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the call writes one integer, which is borrowed for it.
    let result = unsafe { libc::ioctl(reader.as_fd().as_raw_fd(), libc::FIONREAD, &mut count) };
    assert_eq!(result, 0);
    count as usize
}

/// Yields until every other fiber of this worker waits and its ops are submitted.
pub fn let_others_wait() {
    yield_times(6);
}

pub fn yield_times(count: usize) {
    (0..count).for_each(|_| fiber::yield_now());
}

/// Spawns a fiber of the scope on the worker with this number.
pub fn spawn_on<'scope, T: Send + 'scope>(
    worker: usize,
    s: &'scope fiber::Scope<'scope, '_>,
    f: impl FnOnce() -> T + Send + 'scope,
) -> fiber::ScopedJoinHandle<'scope, T> {
    fiber::Builder::new().worker(worker).spawn_scoped(s, f).unwrap()
}

pub fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

/// Asserts that the error is a cancel's, not a deadline's.
#[track_caller]
pub fn assert_cancelled(error: &io::Error) {
    assert_eq!(cancel::reason(error), Some(Reason::Cancelled), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Other, "{error:?}");
}

/// Asserts that a call suspends only its fiber, and that a cancel ends it.
#[track_caller]
pub fn ends_when_cancelled<T>(call: impl FnOnce() -> io::Result<T>) {
    fiber::scope(|s| {
        let waits = s.spawn_local(|| assert_cancelled(&call().err().expect("it waits")));
        let_others_wait();
        assert!(!waits.is_finished());
        s.cancel();
        waits.join().unwrap();
    });
}

/// Asserts that the error is that of the deadline with this limit.
#[track_caller]
pub fn assert_elapsed(error: &io::Error, limit: Duration) {
    assert_eq!(limit_of(error), Some(limit), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
}

/// Returns the limit of the deadline that the error names.
pub fn limit_of(error: &io::Error) -> Option<Duration> {
    match cancel::reason(error) {
        Some(Reason::Elapsed(elapsed)) => elapsed.limit(),
        _ => None,
    }
}

/// Asserts that a cancel has unwound the fiber.
#[track_caller]
pub fn assert_unwound<T: std::fmt::Debug>(result: fiber::Result<T>) {
    assert!(result.unwrap_err().is::<Cancelled>());
}

/// Returns the message of a panic.
pub fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a message")).to_owned(),
    }
}

/// Calls the closure when it is dropped.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
