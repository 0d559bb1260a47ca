//! The object that a suspended fiber waits for, as a dump describes it.
//!
//! Code that suspends a fiber lends the worker a [`WaitTarget`] from its own frame. A dump asks it
//! for a [`TargetInfo`] on the fiber's own worker, while the fiber is suspended (**I2**, **I3**).

use super::label::{Origin, Origins};
use crate::driver::OpDescription;
use std::ffi::CString;

/// The object that a fiber waits for. Called on the fiber's own worker.
pub(crate) trait WaitTarget {
    fn info(&self) -> TargetInfo;
}

/// The description of a [`WaitTarget`].
#[derive(Clone, Debug)]
pub(crate) enum TargetInfo {
    /// A lock or a semaphore: its address, its holder, and the number of free permits.
    Gate { address: usize, holder: FiberTag, free: usize },
    /// The end of a fiber.
    FiberEnd(Origins),
    /// The remaining fibers of a scope.
    Members(usize),
    /// A plain system call on a thread of the pool.
    Call { about: OpDescription, path: Option<CString> },
    /// An object known only by its address.
    Address(usize),
}

/// A target that is described by its address alone.
pub(crate) struct ByAddress(usize);

impl ByAddress {
    #[inline]
    pub(crate) fn of<T>(object: &T) -> ByAddress {
        ByAddress(std::ptr::from_ref(object) as usize)
    }

    #[cfg(feature = "interpose")]
    pub(crate) fn at(address: usize) -> ByAddress {
        ByAddress(address)
    }
}

impl WaitTarget for ByAddress {
    fn info(&self) -> TargetInfo {
        TargetInfo::Address(self.0)
    }
}

/// A number for the holder of a lock: a fiber, a thread outside of any fiber, or none.
///
/// A fiber is numbered by the address of its block and the low half of its generation. Two fibers
/// get the same number only if they use the same block exactly 65,536 tenants apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FiberTag(u64);

impl FiberTag {
    pub(crate) const NONE: FiberTag = FiberTag(0);
    /// A thread outside of any fiber.
    pub(crate) const THREAD: FiberTag = FiberTag(1);

    /// Addresses of user space have at most 48 bits.
    #[inline]
    pub(super) fn of_block(address: usize, generation: u32) -> FiberTag {
        debug_assert!(address >> 48 == 0, "an address of user space has at most 48 bits");
        FiberTag(((address as u64) << 16) | u64::from(generation as u16))
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn of_number(number: u64) -> FiberTag {
        FiberTag(number)
    }
}

/// The scope that a fiber belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeOrigin {
    pub(crate) opened: Origin,
    /// The worker and id of the fiber that opened it, if a fiber did.
    pub(crate) owner: Option<super::fiber::FiberId>,
}

/// The permits of a reader-writer lock. A writer takes all of them.
pub(crate) const MOST_PERMITS: usize = usize::MAX >> 3;
