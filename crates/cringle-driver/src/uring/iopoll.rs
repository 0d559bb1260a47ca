//! A second ring of the worker, whose completions are polled for at the device
//! (`IORING_SETUP_IOPOLL`): without interrupts, and with a processor that is busy while it waits.
//!
//! It performs direct reads and writes only; wake-ups, cancels and all other ops stay on the
//! worker's main ring. While ops are on the polled ring the worker does not sleep, but looks at
//! both rings in turn. The kernel cannot cancel polled ops: they end by themselves and are waited
//! for (**I1**). A cancel of one goes to the main ring, which answers that it knows no such op, and
//! is repeated until the op ends. Polled ops count against the limit of ops in flight, and the
//! polled ring's completion queue has room for all of them (**I7**).

use super::enter::{ENTER_GETEVENTS, broken_ring};
use super::restrict::restrict;
use super::{Uring, UringOptions, encode};
use crate::completion::{CancelState, Completion, OpState};
use crate::iopoll::{device_of, poll_queues};
use crate::kept::Own;
use crate::{Full, Op, OpSlot, Token, Wait, Waiter};
use cringle_sys::{self as sys, syscall};
use io_uring::{IoUring, Probe};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// How often a worker that would sleep polls the device before it takes another turn.
const POLLS: u32 = 32;

pub(super) struct PolledRing {
    _own: Own,
    pub(super) ring: IoUring,
    /// Ops in its queues or in the kernel.
    in_flight: u32,
    /// The devices met so far, by number, and whether each has poll queues.
    devices: Vec<(u64, bool)>,
}

impl PolledRing {
    pub(super) fn make(options: &UringOptions) -> io::Result<PolledRing> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(options.cq_entries().max(options.entries));
        builder.setup_iopoll();
        if options.restrict {
            builder.setup_r_disabled();
        }
        let ring = builder.build(options.entries)?;
        if options.restrict {
            let mut probe = Probe::new();
            ring.submitter().register_probe(&mut probe)?;
            restrict(&ring, &probe)?;
        }
        Ok(PolledRing { _own: Own::new(ring.as_raw_fd()), ring, in_flight: 0, devices: Vec::new() })
    }

    /// Submits the queued entries and polls the device once.
    fn poll_device(&mut self) {
        let queued = self.ring.submission().len();
        let (fd, flags) = (self.ring.as_raw_fd(), ENTER_GETEVENTS);
        // SAFETY: I1. The queued entries hold to the contract of `push`, and there is no argument.
        let result = unsafe { syscall!(SYS_io_uring_enter, fd, queued, 0, flags, 0, 0) };
        // Entries that the kernel did not consume stay queued for a later call (I5).
        let errno = (-result).max(0) as i32;
        if !matches!(errno, 0 | libc::EINTR | libc::EAGAIN | libc::EBUSY) {
            broken_ring(errno);
        }
    }

    fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Whether ops on this file can be polled for. Reads `/sys` for a device not met before.
    fn can_poll(&mut self, fd: RawFd) -> bool {
        if sys::status_flags(fd) & libc::O_DIRECT == 0 {
            return false;
        }
        let Ok(device) = device_of(fd) else { return false };
        if let Some((_, polls)) = self.devices.iter().find(|(known, _)| *known == device) {
            return *polls;
        }
        let polls = poll_queues(device).is_some_and(|(_, polls)| polls);
        self.devices.push((device, polls));
        polls
    }
}

impl Uring {
    /// Marks the ops that the polled ring can perform. Returns whether there are any.
    #[inline]
    pub(crate) fn mark_polled(&mut self, slots: &mut [OpSlot]) -> bool {
        match &mut self.polled {
            None => false,
            Some(polled) => mark(polled, slots),
        }
    }

    /// Queues one op on the polled ring.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push).
    #[cold]
    pub(super) unsafe fn push_polled(
        &mut self,
        op: &Op,
        completion: &Completion,
        waiter: &Waiter,
    ) -> Result<(), Full> {
        let polled = self.polled.as_mut().expect("only a driver with a polled ring marks ops");
        let entry = encode::entry(op).user_data(std::ptr::from_ref(completion) as u64);
        if polled.ring.submission().is_full() {
            polled.poll_device();
        }
        // SAFETY: I1, by this function's contract.
        unsafe { polled.ring.submission().push(&entry) }.map_err(|_| Full)?;
        completion.start(op, waiter);
        polled.in_flight += 1;
        self.in_flight += 1;
        Ok(())
    }

    /// Queues ops one by one, each on its ring, while there is room. Returns their number.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    #[cold]
    pub(super) unsafe fn push_each(&mut self, slots: &[OpSlot], waiter: &Waiter) -> usize {
        let full = |slot: &OpSlot| {
            // SAFETY: I1, by this function's contract.
            unsafe { self.push(&slot.op, &slot.completion, waiter) }.is_err()
        };
        slots.iter().position(full).unwrap_or(slots.len())
    }

    /// Whether polled ops are in flight, whose completions no interrupt announces.
    #[inline(always)]
    pub(super) fn is_polling(&self) -> bool {
        self.polled.as_ref().is_some_and(|polled| polled.in_flight > 0)
    }

    /// Looks at both rings, and repeats that for a while if the worker would sleep.
    #[cold]
    pub(super) fn enter_polling(&mut self, wait: Wait) {
        self.submit();
        let (polls, deadline) = match wait {
            Wait::No => (1, None),
            Wait::Until(deadline) => (POLLS, deadline),
        };
        for _ in 0..polls {
            let polled = self.polled.as_mut().expect("it is polling");
            polled.poll_device();
            let found = polled.has_completions() || !self.ring.completion().is_empty();
            let queue = self.ring.submission();
            let is_flagged = queue.taskrun() || queue.cq_overflow();
            drop(queue);
            if found || is_flagged || deadline.is_some_and(|deadline| deadline <= sys::now()) {
                return;
            }
        }
    }

    /// [`reap`](Self::reap) for the polled ring.
    #[cold]
    pub(super) fn reap_polled(&mut self, mut sink: impl FnMut(Token)) {
        let polled = self.polled.as_mut().expect("it is polling");
        for cqe in polled.ring.completion() {
            // SAFETY: I1. `push_polled` stored the address of a completion that by its contract
            // stays in place until nothing is owed to its frame, and this cqe is owed.
            let completion = unsafe { &*(cqe.user_data() as *const Completion) };
            polled.in_flight -= 1;
            self.in_flight -= 1;
            if completion.cancel.get() != CancelState::No {
                self.cancels.withdraw(completion);
            }
            completion.finish(cqe.result());
            if let Some(token) = completion.waiter_ref().settle_one() {
                sink(token);
            }
        }
    }
}

#[cold]
fn mark(polled: &mut PolledRing, slots: &mut [OpSlot]) -> bool {
    let mut last = None;
    let mut any = false;
    for slot in slots {
        let Op::Transfer(transfer) = &mut slot.op else { continue };
        let Some(fd) = transfer.file.as_fd() else { continue };
        if slot.completion.state() != OpState::New {
            continue;
        }
        let polls = match last {
            Some((same, polls)) if same == fd => polls,
            _ => polled.can_poll(fd),
        };
        last = Some((fd, polls));
        if polls {
            transfer.file = transfer.file.polled();
            any = true;
        }
    }
    any
}
