//! The simulated driver where the feature `sim` is off: a type without values, so that no worker
//! has it. Callers need not ask whether the feature is on, and the compiler removes the code that
//! would use this driver.

use super::{Epoll, Op};
use std::ffi::c_char;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Whether a worker may have this driver.
pub(crate) const EXISTS: bool = false;

/// See the module. As a driver it has the methods of [`Epoll`].
pub(crate) enum Sim {}

pub(crate) type Boxed = Sim;

impl Deref for Sim {
    type Target = Epoll;

    fn deref(&self) -> &Epoll {
        match *self {}
    }
}

impl DerefMut for Sim {
    fn deref_mut(&mut self) -> &mut Epoll {
        match *self {}
    }
}

/// Declares methods of a value that does not exist.
macro_rules! never {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(pub(crate) fn $name(&self, $($argument: $type),*) $(-> $result)? {
            $(let _ = $argument;)*
            match *self {}
        })*
    };
}

impl Sim {
    never! {
        fn enter_thread();
        fn wait_for_turn();
        fn hand_over();
        fn leave();
        fn draw_below(limit: usize) -> usize;
        fn draw_move() -> bool;
        fn take_halt() -> Option<HaltReason>;
        fn record_halt(reason: HaltReason, is_stopping: bool, waits: String) -> bool;
        fn now() -> Instant;
        fn now_ns() -> u64;
    }
}

#[derive(Clone, Copy)]
pub(crate) enum HaltReason {}

impl HaltReason {
    never! {
        fn is_failure() -> bool;
    }
}

/// The machine that a run is on: never a simulated one.
#[derive(Clone, Debug, Default)]
pub(crate) struct World;

impl World {
    pub(crate) fn is_simulated(&self) -> bool {
        false
    }

    pub(crate) fn driver(&self, _worker: usize, _bell: &Arc<AtomicBool>) -> Option<Boxed> {
        None
    }

    pub(crate) fn abandon_run(&self) {}
}

#[inline(always)]
pub(crate) fn note_plain(_op: &Op, result: i32) -> i32 {
    result
}

#[inline(always)]
pub(crate) unsafe fn open_plainly(_path: *const c_char, _flags: i32, _mode: u32) -> Option<i32> {
    None
}
