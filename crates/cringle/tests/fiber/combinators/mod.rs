//! Concurrent closures: `join` and `join_all`, `race`, `any`, and `par_map` and
//! `par_map_workers` with their relatives.

mod join;
mod par_map;
mod par_map_workers;
mod race;
mod random;

use cringle::fs::File;
use cringle::{Cancelled, cancel};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Returns a pipe that stays empty as long as its writing end is open.
fn silent_pipe() -> (File, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    (OwnedFd::from(reader).into(), writer)
}

fn is_cancel(error: &io::Error) -> bool {
    cancel::reason(error).is_some()
}

/// Returns the payload of the panic of `f`, which is a number.
fn panic_of(f: impl FnOnce()) -> i32 {
    *catch_unwind(AssertUnwindSafe(f)).unwrap_err().downcast().expect("a number")
}

/// Drops a result of any type.
fn discard<T>(_: T) {}

fn is_unwound(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err_and(|payload| payload.is::<Cancelled>())
}

const FOREVER: Duration = Duration::from_secs(3600);
