//! Locks, channels and other ways to synchronise: `std::sync`, for fibers and threads.
//!
//! `use cringle::sync` ports a program from `use std::sync`. Everything here works between fibers
//! of any workers and threads, in either direction, inside and outside of [`run`]. Only the calling
//! fiber waits, and it may hold a [`MutexGuard`] or a [`Permit`] across any wait. The differences
//! from std:
//!
//! - Waiters are served in the order of their arrival: a released lock goes to the first waiter.
//! - A lock is poisoned by the fiber that panics, not by another one that unwinds on the same
//!   thread.
//! - `Condvar::wait_timeout_ms` and `ONCE_INIT`, which std has deprecated, are left out.
//! - There is more: [`Semaphore`], [`WaitGroup`], [`mpmc`], [`oneshot`], [`watch`].
//!
//! # Cancellation
//!
//! A cancelled fiber unwinds in these waits, since std's signatures cannot return the error. That
//! poisons no lock. Each wait has a variant with the suffix `_cancellable`, which returns an
//! [`io::Result`] of what the plain call returns. A result wins over a later cancel: a value or a
//! lock that was handed over is returned, and none is lost. Where panics abort, only the
//! `_cancellable` variants are interrupted.
//!
//! ```
//! use cringle::{Cancelled, fiber, sync::mpsc};
//!
//! let (sender, receiver) = mpsc::channel::<u8>();
//! let waits = cringle::run(|| fiber::spawn(move || receiver.recv_cancellable().unwrap_err()));
//! // `run` has returned, so the fiber was cancelled.
//! assert!(waits.join().unwrap().get_ref().unwrap().is::<Cancelled>());
//! assert!(sender.send(1).is_err());
//! ```
//!
//! [`io::Result`]: std::io::Result
//! [`run`]: https://docs.rs/cringle/latest/cringle/fn.run.html

/// Declares a `const fn`. In the loom models it is a plain `fn`: loom's primitives have no `const`
/// constructors.
macro_rules! constructor {
    ($(#[$attribute:meta])* $visibility:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visibility const fn $($rest)*
        #[cfg(loom)]
        $(#[$attribute])*
        $visibility fn $($rest)*
    };
}

mod barrier;
mod caller;
mod channel;
mod channel_macros;
mod condvar;
mod endpoint;
pub(crate) mod fair_lock;
pub(crate) mod feed;
mod gate;
mod lazy_lock;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod mpmc;
pub mod mpsc;
mod mutex;
mod once;
mod once_lock;
pub mod oneshot;
mod poison;
pub(crate) mod range_lock;
pub(crate) mod reentrant;
mod rwlock;
mod semaphore;
pub(crate) mod shared_run;
mod unsent;
mod wait_group;
mod wait_queue;
pub mod watch;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lazy_lock::LazyLock;
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceState};
pub use once_lock::OnceLock;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use std::sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult, Weak, atomic};
pub use unsent::Unsent;
pub use wait_group::WaitGroup;
