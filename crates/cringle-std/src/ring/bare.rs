//! The uring driver by itself: a ring, its limits and its completions, without fibers and without a
//! runtime.

use cringle_driver::uring::{UringOptions, check_seccomp};
use cringle_driver::{Completion, Op, Target, Token, Uring, Wait, Waiter};
use cringle_sys::{self as sys, Owned, plainly};
use std::io;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// The library's own ring without fibers: it shows what a batch costs beneath everything else. It
/// is made for measurements (`cringle bench batch low`), and usable by programs that place
/// completions themselves.
///
/// It is used on the thread that created it. Dropping it waits for the operations in flight.
///
/// ```
/// use cringle::ring::BareRing;
/// use std::{fs::File, os::fd::AsFd};
///
/// let file = File::open("/proc/self/exe")?;
/// let mut magic = [0; 4];
/// let mut ring = BareRing::new(8, 1)?;
/// // SAFETY: `magic` and `file` stay borrowed until `wait` has returned slot 0.
/// unsafe { ring.read(0, file.as_fd(), magic.as_mut_ptr(), 4, 0)? };
/// ring.wait(1, |slot, result| assert_eq!((slot, result.unwrap()), (0, 4)));
/// assert_eq!(&magic, b"\x7fELF");
/// # std::io::Result::Ok(())
/// ```
pub struct BareRing {
    /// Dropped before the bell, from which it reads.
    driver: ManuallyDrop<Uring>,
    slots: Box<[Slot]>,
    ended: Vec<usize>,
    _bell: Owned,
}

/// The state of one operation, at a stable address.
struct Slot {
    completion: Completion,
    waiter: Waiter,
}

impl Slot {
    fn new(index: usize) -> Slot {
        let address = NonZeroUsize::MIN.saturating_add(index);
        // A token is opaque to the driver. Here it is the slot's number, never dereferenced.
        let token: Token =
            NonNull::new(std::ptr::without_provenance_mut(address.get())).expect("not zero");
        Slot { completion: Completion::new(), waiter: Waiter::new(token) }
    }
}

impl BareRing {
    /// Creates a ring with a submission queue of `entries` and with `slots` for operations in
    /// flight.
    ///
    /// ```
    /// let ring = cringle::ring::BareRing::new(8, 4)?;
    /// assert_eq!(ring.in_flight(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error, with the remedy.
    pub fn new(entries: u32, slots: u32) -> io::Result<BareRing> {
        plainly(|| BareRing::make(entries, slots))
    }

    fn make(entries: u32, slots: u32) -> io::Result<BareRing> {
        check_seccomp()?;
        let bell = sys::eventfd()?;
        let options = UringOptions::new(entries, slots);
        Ok(BareRing {
            driver: ManuallyDrop::new(Uring::new(&options, bell.as_raw_fd())?),
            slots: (0..slots as usize).map(Slot::new).collect(),
            ended: Vec::with_capacity(slots as usize),
            _bell: bell,
        })
    }

    /// Returns the number of operations in flight.
    ///
    /// ```
    /// let ring = cringle::ring::BareRing::new(8, 4)?;
    /// assert_eq!(ring.in_flight(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn in_flight(&self) -> usize {
        self.driver.in_flight() as usize
    }

    /// Queues a read of `len` bytes at `offset`. [`submit`](Self::submit) or [`wait`](Self::wait)
    /// submits it.
    ///
    /// ```
    /// use cringle::ring::BareRing;
    /// use std::{fs::File, os::fd::AsFd};
    ///
    /// let (file, mut byte) = (File::open("/proc/self/exe")?, [0]);
    /// let mut ring = BareRing::new(8, 1)?;
    /// // SAFETY: `byte` and `file` stay borrowed until `wait` has returned slot 0.
    /// unsafe { ring.read(0, file.as_fd(), byte.as_mut_ptr(), 1, 0)? };
    /// ring.wait(1, |_, result| assert_eq!(result.unwrap(), 1));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Safety
    ///
    /// The memory is valid and not used otherwise, and the descriptor stays open, until `wait` has
    /// passed the slot to its closure, or the ring was dropped.
    ///
    /// # Panics
    ///
    /// If the slot is in use, or if its number is too large.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the kernel accepts no more operations now: wait for some first.
    pub unsafe fn read(
        &mut self,
        slot: usize,
        fd: BorrowedFd<'_>,
        buf: *mut u8,
        len: u32,
        offset: u64,
    ) -> io::Result<()> {
        let entry = &mut self.slots[slot];
        assert!(entry.waiter.is_settled(), "slot {slot} is in use");
        entry.completion = Completion::new();
        let op = Op::read(Target::fd(fd.as_raw_fd()), buf, len, offset);
        // SAFETY: I1. The slot's address is stable until the ring is dropped, which waits for its
        // operations. The rest is this function's contract.
        unsafe { self.driver.push(&op, &entry.completion, &entry.waiter) }
            .map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    /// Submits the queued operations.
    ///
    /// ```
    /// let mut ring = cringle::ring::BareRing::new(8, 1)?;
    /// ring.submit(); // Nothing is queued.
    /// # std::io::Result::Ok(())
    /// ```
    pub fn submit(&mut self) {
        self.driver.enter(Wait::No);
    }

    /// Submits the queued operations, waits until at least `at_least` operations (or all, if fewer
    /// are in flight) have completed, and passes each one's slot and result to `take`.
    ///
    /// ```
    /// let mut ring = cringle::ring::BareRing::new(8, 1)?;
    /// ring.wait(1, |_, _| unreachable!("nothing is in flight"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn wait(&mut self, at_least: usize, mut take: impl FnMut(usize, io::Result<usize>)) {
        let at_least = at_least.min(self.in_flight());
        loop {
            let ended = &mut self.ended;
            self.driver.reap(|token| ended.push(token.addr().get() - 1));
            let missing = at_least.saturating_sub(self.ended.len());
            if missing == 0 {
                break;
            }
            // One call for all of them: a thread that is woken for each costs more than the reads.
            self.driver.enter_for(Wait::Until(None), missing as u32);
        }
        for slot in self.ended.drain(..) {
            take(slot, sys::result_of(self.slots[slot].completion.result()));
        }
    }
}

impl Drop for BareRing {
    fn drop(&mut self) {
        self.wait(usize::MAX, |_, _| {});
        // The crate of the ring closes it by libc.
        // SAFETY: the contract of `drop`: the driver is not used again.
        plainly(|| unsafe { ManuallyDrop::drop(&mut self.driver) });
    }
}

brief_debug!(BareRing, |it| in_flight: it.in_flight());
