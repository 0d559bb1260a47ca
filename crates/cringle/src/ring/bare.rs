//! The driver by itself: a ring, its limits and its completions, with no fiber and no runtime.

use crate::driver::uring::{UringOptions, check_seccomp};
use crate::driver::{Completion, Features, Op, Target, Token, Uring, Wait, Waiter};
use crate::sys;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// The library's own ring without fibers: what a batch costs beneath everything else. Made to be
/// measured (`cringle bench batch low`), usable by whoever wants to place completions himself.
///
/// It is used on the thread that made it. Dropping it waits for what is in flight.
pub struct BareRing {
    /// Dropped first: it reads from the bell.
    driver: Uring,
    slots: Box<[Slot]>,
    ended: Vec<usize>,
    _bell: OwnedFd,
}

/// The place of one operation, at an address that stays.
struct Slot {
    completion: Completion,
    waiter: Waiter,
}

impl Slot {
    fn new(index: usize) -> Slot {
        let address = NonZeroUsize::MIN.saturating_add(index);
        // A token is opaque to the driver: here it is the slot's number, and never followed.
        let token: Token =
            NonNull::new(std::ptr::without_provenance_mut(address.get())).expect("not zero");
        Slot { completion: Completion::new(), waiter: Waiter::new(token) }
    }
}

impl BareRing {
    /// A ring with so many entries to submit and so many slots for operations in flight.
    ///
    /// # Errors
    ///
    /// What the system refused, with the remedy.
    pub fn new(entries: u32, slots: u32) -> io::Result<BareRing> {
        check_seccomp()?;
        let bell = sys::eventfd()?;
        let features = Features::all();
        let options =
            UringOptions { entries, in_flight_limit: slots, sqpoll: None, iopoll: false, features };
        Ok(BareRing {
            driver: Uring::new(&options, bell.as_raw_fd())?,
            slots: (0..slots as usize).map(Slot::new).collect(),
            ended: Vec::with_capacity(slots as usize),
            _bell: bell,
        })
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.driver.in_flight() as usize
    }

    /// Queues a read of `len` bytes at `offset`, to be submitted by [`submit`](Self::submit) or
    /// [`wait`](Self::wait).
    ///
    /// # Safety
    ///
    /// The memory is valid and nobody else's, and the descriptor stays open, until the slot has been
    /// handed to `wait`'s closure or the ring has been dropped.
    ///
    /// # Panics
    ///
    /// If the slot is in use or there is none of that number.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the kernel takes no more now: wait for some first.
    pub unsafe fn read(
        &mut self,
        slot: usize,
        fd: BorrowedFd<'_>,
        buf: *mut u8,
        len: u32,
        offset: u64,
    ) -> io::Result<()> {
        let place = &mut self.slots[slot];
        assert!(place.waiter.is_settled(), "slot {slot} is in use");
        place.completion = Completion::new();
        let op = Op::Read { target: Target::fd(fd.as_raw_fd()), buf, len, offset };
        // SAFETY: I1. The slot's address stays until the ring is dropped, which waits; the rest is
        // the caller's promise.
        unsafe { self.driver.push(&op, &place.completion, &place.waiter) }
            .map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    /// Submits what is queued.
    pub fn submit(&mut self) {
        self.driver.enter(Wait::No);
    }

    /// Submits what is queued, waits until at least so many operations have ended (or all have), and
    /// hands each one's slot and result to `take`.
    pub fn wait(&mut self, at_least: usize, mut take: impl FnMut(usize, io::Result<usize>)) {
        let at_least = at_least.min(self.in_flight());
        loop {
            let ended = &mut self.ended;
            self.driver.reap(|token| ended.push(token.addr().get() - 1));
            if self.ended.len() >= at_least {
                break;
            }
            self.driver.enter(Wait::Until(None));
        }
        for slot in self.ended.drain(..) {
            take(slot, sys::result_of(self.slots[slot].completion.result()));
        }
    }
}

impl Drop for BareRing {
    fn drop(&mut self) {
        self.wait(usize::MAX, |_, _| {});
    }
}

impl std::fmt::Debug for BareRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BareRing").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
