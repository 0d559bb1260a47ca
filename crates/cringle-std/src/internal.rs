//! What the crates of the library above this one use of it, beside what a user may.

pub use crate::fiber::backoff::Backoff;
pub use crate::fiber::op::{
    on_descriptor, outcome, perform, perform_on_pool, perform_to_the_end, perform_within,
    was_dropped,
};
pub use crate::fiber::park::sleep_till_cancellable;
pub use crate::fiber::unblock::{call_by, call_detached, unblock_or_here};
pub use crate::fs::fifo::wait_for_writer as wait_for_fifo_writer;
pub use crate::fs::own_ops::Route;
pub use crate::process::{busy::repeat_while_busy, wait::wait_for_end};
pub use crate::signal::{handler::Listener, handler::Purpose, watcher::Watcher};
pub use crate::sync::fair_lock::{FairLock, FairLockGuard};
pub use crate::sync::shared_run::{RunEnd, SharedRun};

use crate::fs::File;
use crate::signal::SIGNALS;
use cringle_driver::{Op, Target};
use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;

/// Declares a trait with methods that a type has for this crate alone.
macro_rules! internal {
    (
        $(#[$doc:meta])* $trait:ident for $type:ident:
        $(fn $name:ident($($argument:ident: $of:ty),*) -> $result:ty;)*
        $(unsafe fn $unsafe:ident($op:ident: $op_type:ty) -> $op_result:ty;)*
    ) => {
        $(#[$doc])*
        #[doc(hidden)]
        pub trait $trait {
            $(#[doc = concat!("See `", stringify!($type), "::", stringify!($name), "`.")]
            fn $name(&self, $($argument: $of),*) -> $result;)*
            $(#[doc = concat!("See `", stringify!($type), "::", stringify!($unsafe), "`.")]
            ///
            /// # Safety
            ///
            /// The contract is there.
            unsafe fn $unsafe(&self, $op: $op_type) -> $op_result;)*
        }

        impl $trait for $type {
            $(#[inline]
            fn $name(&self, $($argument: $of),*) -> $result {
                $type::$name(self, $($argument),*)
            })*
            $(unsafe fn $unsafe(&self, $op: $op_type) -> $op_result {
                // SAFETY: by the contract.
                unsafe { $type::$unsafe(self, $op) }
            })*
        }
    };
}

internal! {
    /// What batches, mapped files, logs and interposed calls need of a [`File`].
    InternalFile for File:
    fn fd() -> RawFd;
    fn target() -> Target;
    fn route(op: &Op) -> Route;
    fn performs_itself(op: &Op) -> bool;
    fn bounces() -> bool;
    fn writes_durably() -> bool;
    fn is_off_ring() -> bool;
    fn is_on_local_storage() -> bool;
    fn is_batchable_to_read() -> bool;
    fn is_batchable_to_write() -> bool;
    fn wait_for(how: i32) -> io::Result<()>;
    fn unlock_plainly() -> ();
    unsafe fn perform_itself(op: &Op) -> i32;
    unsafe fn perform_at_offset(op: Op) -> io::Result<usize>;
    unsafe fn perform_at_cursor(op: Op) -> io::Result<usize>;
}

/// Returns the name of a signal in `signal(7)`.
pub fn signal_name(number: c_int) -> Option<&'static str> {
    SIGNALS.iter().find(|row| row.1 == number).map(|row| row.2)
}

/// See `File::borrow_number`.
///
/// # Errors
///
/// As there.
pub fn borrow_number(fd: RawFd) -> io::Result<ManuallyDrop<File>> {
    File::borrow_number(fd)
}
