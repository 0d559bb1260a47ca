//! Fibers: `std::thread`'s names and semantics, for threads that cost a microsecond and a page.
//!
//! `use cringle::fiber as thread` ports a program. The differences:
//!
//! - Fibers exist only inside of [`run`]. A `spawn` elsewhere panics with a message that says so.
//! - Fibers share their worker. One that computes for long keeps the others of its worker waiting
//!   ([`yield_now`] lets them run); one that blocks its thread blocks them ([`unblock`] runs
//!   blocking code on another thread).
//! - [`spawn_local`] and [`Scope::spawn_local`] spawn a fiber on the same worker, which may use
//!   data that is not `Send`.
//! - std's deprecated functions (`sleep_ms`, `park_timeout_ms`) are left out, and so is
//!   `Builder::spawn_unchecked`: [`scope`] borrows soundly.
//! - The panic of a scope says "a scoped fiber panicked".
//! - [`join`], [`race`], [`any`] and [`par_map`] combine closures that run concurrently.
//!   [`par_map_workers`] does so on all workers.
//!
//! ```
//! use cringle::fiber;
//!
//! cringle::run(|| {
//!     let words = ["stackful", "fibers"];
//!     let lengths = fiber::scope(|s| {
//!         let handles = words.map(|word| s.spawn(move || word.len()));
//!         handles.map(|handle| handle.join().unwrap())
//!     });
//!     assert_eq!(lengths, [8, 6]);
//! });
//! ```
//!
//! # Order
//!
//! The ready fibers of a worker run first come, first served. `spawn_local` appends the new fiber
//! to them, and the caller continues. Due timers are processed before completions, and completions
//! in the order in which the kernel reports them.
//!
//! [`run`]: https://docs.rs/cringle/latest/cringle/fn.run.html

pub(crate) mod backoff;
mod block_on;
mod body;
mod combine;
mod handle;
mod local;
pub(crate) mod op;
mod packet;
pub(crate) mod park;
mod pin;
mod protect;
mod scope;
mod scope_core;
mod scoped_handle;
mod spawn;
mod try_scope;
pub(crate) mod unblock;

pub use block_on::{block_on, block_on_cancellable};
pub use combine::{
    any, join, join_all, par_for_each, par_for_each_workers, par_map, par_map_workers, race,
    race_with, try_par_for_each, try_par_for_each_workers, try_par_map, try_par_map_workers,
};
pub use handle::{JoinHandle, Thread, ThreadId, current};
pub use local::{AccessError, LocalKey};
pub use park::{
    park, park_cancellable, park_timeout, park_timeout_cancellable, sleep, sleep_cancellable,
    yield_now, yield_now_cancellable,
};
pub use pin::{Pin, pin};
pub use protect::protect;
pub use scope::{Scope, scope};
pub use scoped_handle::ScopedJoinHandle;
pub use spawn::{Builder, spawn, spawn_local};
pub use std::thread::Result;
pub use try_scope::{TryScope, try_scope};
pub use unblock::unblock;

use cringle_core::unwinding;
use cringle_core::worker::{Current, Worker};
use std::any::Any;
use std::io;
use std::num::NonZeroUsize;
use std::panic::UnwindSafe;

/// Returns whether the calling fiber is cancelled, and counts the refusal.
fn is_refused() -> bool {
    Current::get().is_some_and(Current::refuses)
}

/// Returns the error for a refused call.
fn refusal() -> io::Error {
    let Current { fiber, .. } = Current::get().expect("only fibers are cancelled");
    fiber.cancel_error()
}

/// Returns whether the calling fiber is unwinding. Outside of a fiber: `std::thread::panicking`,
/// which on a worker counts for all fibers of the thread, and so for any fiber that is suspended in
/// a destructor.
///
/// As std's, it returns true in a panic hook.
pub fn panicking() -> bool {
    match Current::get() {
        Some(current) => current.surely_unwinds(),
        None => std::thread::panicking(),
    }
}

/// `std::panic::catch_unwind`, for fibers. It catches the same payloads, and records at once that
/// the panic is over. Std's function does not: after it, the library finds out by reading the
/// fiber's frames, where another fiber of the worker is suspended in a destructor.
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
/// The payload of `f`'s panic. Pass a [`Cancelled`](cringle_core::cancelled::Cancelled) payload on
/// with [`resume_unwind`]: otherwise the fiber's next wait unwinds it again.
pub fn catch_unwind<F, R>(f: F) -> Result<R>
where
    F: FnOnce() -> R + UnwindSafe,
{
    unwinding::catch(f)
}

/// `std::panic::resume_unwind`, for fibers. It raises the same payloads, and records why the fiber
/// unwinds. A [`Cancelled`](cringle_core::cancelled::Cancelled) payload that it raises poisons no
/// lock, as when a wait raises it. Raised by std's function, the payload poisons like any other.
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
///             println!("cancelled: clean up, then continue to unwind");
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

/// Returns the number of fibers that can run at the same instant: the number of the runtime's
/// workers. Outside of `run`: `std::thread::available_parallelism`.
///
/// ```
/// let workers = cringle::Builder::new().workers(2).run(cringle::fiber::available_parallelism)??;
/// assert_eq!(workers.get(), 2);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// Only outside of `run`, as std's.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    match Worker::here() {
        Some(worker) => {
            Ok(NonZeroUsize::new(worker.shared().workers()).expect("a runtime has a worker"))
        }
        None => std::thread::available_parallelism(),
    }
}
