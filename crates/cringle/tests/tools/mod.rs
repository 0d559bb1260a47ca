//! What the tests of cancels, scopes and deadlines share.
#![allow(dead_code, reason = "each test file uses a part")]

use cringle::cancel::{self, Reason};
use cringle::fs::File;
use cringle::{Builder, Cancelled, fiber};
use std::any::Any;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;

pub(crate) fn on_one_worker<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(1).run(f).unwrap()
}

pub(crate) fn on_two_workers<T>(f: impl FnOnce() -> T) -> T {
    Builder::new().workers(2).run(f).unwrap()
}

/// Both ends of a pipe, as files of the library.
pub(crate) fn pipe() -> (File, File) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
}

/// Lets every other fiber of this worker run until it waits, and what they asked for be submitted.
pub(crate) fn let_others_wait() {
    (0..6).for_each(|_| fiber::yield_now());
}

/// Starts a fiber of the scope on this worker of two.
pub(crate) fn spawn_on<'scope, T: Send + 'scope>(
    worker: usize,
    s: &'scope fiber::Scope<'scope, '_>,
    f: impl FnOnce() -> T + Send + 'scope,
) -> fiber::ScopedJoinHandle<'scope, T> {
    fiber::Builder::new().worker(worker).spawn_scoped(s, f).unwrap()
}

/// The error is a plain cancel's.
#[track_caller]
pub(crate) fn assert_cancelled(error: &io::Error) {
    assert_eq!(cancel::reason(error), Some(Reason::Cancelled), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Other, "{error:?}");
}

/// The error is that of the deadline with this limit.
#[track_caller]
pub(crate) fn assert_elapsed(error: &io::Error, limit: Duration) {
    assert_eq!(limit_of(error), Some(limit), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
}

/// The limit of the deadline that an error names.
pub(crate) fn limit_of(error: &io::Error) -> Option<Duration> {
    match cancel::reason(error) {
        Some(Reason::Elapsed(elapsed)) => elapsed.limit(),
        _ => None,
    }
}

#[track_caller]
pub(crate) fn assert_unwound<T: std::fmt::Debug>(result: fiber::Result<T>) {
    assert!(result.unwrap_err().is::<Cancelled>());
}

/// What a panic said.
pub(crate) fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a message")).to_owned(),
    }
}
