//! Locks, channels and other ways to wait for each other: `std::sync`, for fibers and threads.
//!
//! `use cringle::sync` ports a program from `use std::sync`. Everything here works between fibers of
//! any workers and OS threads, in either direction, inside and outside of [`run`](crate::run). Only
//! the calling fiber waits, and what it holds (a [`MutexGuard`], a [`Permit`]) it may hold over any
//! wait. What differs from std:
//!
//! - everybody is served in the order of coming: a lock is handed to who has waited longest;
//! - a lock is poisoned by the fiber that panics, not by another one that unwinds on the same thread;
//! - `Condvar::wait_timeout_ms` and `ONCE_INIT`, which std has deprecated, are left out;
//! - more: [`Semaphore`], [`WaitGroup`], [`mpmc`], [`oneshot`], [`watch`].
//!
//! # Cancellation
//!
//! A cancelled fiber is unwound in these waits, since std's signatures have no room for the error;
//! that poisons no lock. Each wait has a twin `…_cancellable`, which returns [`io::Result`] of what
//! the plain call returns. A result that is already in wins: a value or a lock that was handed over
//! is returned, and none is lost. Where panics abort only the twins are interrupted.
//!
//! ```
//! use cringle::{Cancelled, fiber, sync::mpsc};
//!
//! let (sender, receiver) = mpsc::channel::<u8>();
//! let waits = cringle::run(|| fiber::spawn(move || receiver.recv_cancellable().unwrap_err()));
//! // `run` has returned: what was left of it was cancelled.
//! assert!(waits.join().unwrap().get_ref().unwrap().is::<Cancelled>());
//! assert!(sender.send(1).is_err());
//! ```
//!
//! [`io::Result`]: std::io::Result

/// A `const fn`; but in the models none, since loom's primitives cannot be made by one.
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
mod condvar;
mod endpoint;
pub(crate) mod fair_lock;
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
pub(crate) mod reentrant;
mod rwlock;
mod semaphore;
mod unsent;
#[cfg(doctest)]
pub mod variance;
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
