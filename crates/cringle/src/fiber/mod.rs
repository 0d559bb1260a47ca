//! Fibers: `std::thread`'s names and semantics, for threads that cost a microsecond and a page.
//!
//! `use cringle::fiber as thread` ports a program. What differs:
//!
//! - fibers exist inside of [`run`](crate::run) only; `spawn` elsewhere panics and says so;
//! - they share their worker: one that computes for long keeps the others of its worker waiting
//!   ([`yield_now`] lets them go on), and one that blocks the thread blocks them
//!   ([`unblock`] does it elsewhere);
//! - [`spawn_local`] and [`Scope::spawn_local`] start a fiber on the same worker, which may use
//!   what is not `Send`;
//! - what std has deprecated (`sleep_ms`, `park_timeout_ms`) is left out, and so is
//!   `Builder::spawn_unchecked`: [`scope`] borrows soundly;
//! - a scope's panic says that "a scoped fiber panicked";
//! - [`join`], [`race`], [`any`] and [`par_map`] combine closures that run beside each other.
//!
//! # Order
//!
//! Ready fibers of a worker run first come, first served. `spawn_local` appends the new fiber to
//! them and goes on. Timers that are due come before completions, and completions come in the
//! order in which the kernel reports them.

pub(crate) mod backoff;
mod block_on;
mod combine;
mod handle;
mod local;
pub(crate) mod op;
mod packet;
mod park;
mod protect;
mod scope;
mod scope_core;
mod spawn;
mod try_scope;
pub(crate) mod unblock;

pub use block_on::{block_on, block_on_cancellable};
pub use combine::{
    any, join, join_all, par_for_each, par_map, race, race_with, try_par_for_each, try_par_map,
};
pub use handle::{JoinHandle, Thread, ThreadId, current};
pub use local::{AccessError, LocalKey};
pub(crate) use park::sleep_till_cancellable;
pub use park::{
    park, park_cancellable, park_timeout, park_timeout_cancellable, sleep, sleep_cancellable,
    yield_now, yield_now_cancellable,
};
pub use protect::protect;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use spawn::{Builder, spawn, spawn_local};
pub use std::thread::Result;
pub use try_scope::{TryScope, try_scope};
pub use unblock::unblock;

use crate::runtime::unwinding;
use crate::runtime::worker::Worker;
use std::any::Any;
use std::io;
use std::num::NonZeroUsize;
use std::panic::UnwindSafe;

/// Whether the calling fiber's call is refused because it is cancelled; it is counted.
fn is_refused() -> bool {
    Worker::current().is_some_and(|(worker, fiber)| worker.refuses(fiber))
}

/// What the calling fiber is told then.
fn refusal() -> io::Error {
    let (_, fiber) = Worker::current().expect("only fibers are cancelled");
    fiber.cancel_error()
}

/// Whether the calling fiber is unwinding. (`std::thread::panicking` tells it of the thread, and so
/// of any fiber that is suspended in a destructor on it.) Outside of a fiber: std's answer.
///
/// In a panic hook it is true, as std's.
pub fn panicking() -> bool {
    match Worker::current() {
        Some((worker, fiber)) => worker.surely_unwinds(fiber),
        None => std::thread::panicking(),
    }
}

/// `std::panic::catch_unwind`, for fibers: it catches the same, and the library knows at once that the panic is
/// over. (After std's it looks at the fiber's frames where that matters, while another fiber of the worker is
/// suspended in a destructor.)
///
/// ```
/// use cringle::fiber;
///
/// cringle::run(|| {
///     let caught = fiber::catch_unwind(|| panic!("mine"));
///     assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "mine");
///     assert!(!fiber::panicking());
/// });
/// ```
///
/// # Errors
///
/// The payload of `f`'s panic. A [`Cancelled`](crate::Cancelled) among them is better handed on, by
/// [`resume_unwind`]: the fiber's next wait will unwind it again.
pub fn catch_unwind<F, R>(f: F) -> Result<R>
where
    F: FnOnce() -> R + UnwindSafe,
{
    unwinding::catch(f)
}

/// `std::panic::resume_unwind`, for fibers: it raises the same, and the library knows why the fiber unwinds. A
/// [`Cancelled`](crate::Cancelled) that is raised by this poisons no lock, as when a wait raises it; raised by
/// std's it does, like any payload.
///
/// ```
/// use cringle::{Cancelled, fiber, sync::Mutex};
///
/// cringle::run(|| {
///     let lock = Mutex::new(());
///     let result = fiber::scope(|s| {
///         s.cancel();
///         s.spawn_local(|| {
///             let _guard = lock.lock().unwrap_or_else(|_| unreachable!());
///             let payload = fiber::catch_unwind(fiber::park).unwrap_err();
///             println!("cancelled, and goes on to be");
///             fiber::resume_unwind(payload);
///         })
///         .join()
///         .map(drop)
///     });
///     assert!(result.unwrap_err().is::<Cancelled>());
///     assert!(!lock.is_poisoned());
/// });
/// ```
pub fn resume_unwind(payload: Box<dyn Any + Send>) -> ! {
    unwinding::resume(payload)
}

/// How many fibers can run at the same instant: the runtime's workers. Outside of
/// [`run`](crate::run): std's answer.
///
/// # Errors
///
/// Only outside of `run`, as std's.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    match Worker::here() {
        Some(worker) => Ok(NonZeroUsize::new(worker.workers()).expect("there is a worker")),
        None => std::thread::available_parallelism(),
    }
}
