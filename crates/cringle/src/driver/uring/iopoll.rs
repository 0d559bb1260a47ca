//! A ring beside the worker's own, whose completions are looked for at the device
//! (`IORING_SETUP_IOPOLL`): no interrupt, and a processor that is busy while it waits.
//!
//! Only direct reads and writes can be on it; wake-ups, cancels and all other ops stay on the worker's.
//! So while ops are on it the worker never sleeps: it looks at one ring and then at the other. None of
//! them can be given up, as the kernel knows no cancel for them: they end by themselves, and are waited
//! for (**I1**); the worker's own ring answers that it knows none, and is asked again in vain until then.
//! They count against the limit of ops in flight, and the completion queue has room for as many (**I7**).

use super::enter::{ENTER_GETEVENTS, broken_ring};
use super::{Uring, UringOptions, encode};
use crate::driver::completion::{CancelState, Completion};
use crate::driver::iopoll::{device_of, poll_queues};
use crate::driver::{Full, Op, OpSlot, Token, Wait, Waiter};
use crate::sys;
use io_uring::IoUring;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

/// Looks at the device before a worker that would sleep takes another turn.
const LOOKS: u32 = 32;

pub(super) struct PolledRing {
    ring: IoUring,
    /// Ops in its queues and in the kernel.
    in_flight: u32,
    /// By their numbers: whether the devices that were met have queues to be polled.
    devices: Vec<(u64, bool)>,
}

impl PolledRing {
    pub(super) fn make(options: &UringOptions) -> io::Result<PolledRing> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(options.cq_entries().max(options.entries));
        let ring = builder.setup_iopoll().build(options.entries)?;
        Ok(PolledRing { ring, in_flight: 0, devices: Vec::new() })
    }

    /// Submits what is queued and looks at the device, once.
    fn look(&mut self) {
        let queued = self.ring.submission().len();
        let (fd, flags) = (self.ring.as_raw_fd(), ENTER_GETEVENTS);
        // SAFETY: the queued entries hold to `push`'s contract, and there is no argument.
        let result = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, queued, 0, flags, 0, 0) };
        // What was not taken stays queued and is taken by a later look.
        if result < 0 && !matches!(sys::errno(), libc::EINTR | libc::EAGAIN | libc::EBUSY) {
            broken_ring(sys::errno());
        }
    }

    fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Whether ops on this file can be polled for. Opening a file that is on a new device asks `/sys`.
    fn polls(&mut self, fd: RawFd) -> bool {
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
    /// Marks those of the ops that the polled ring can take; whether there are any.
    #[inline]
    pub(crate) fn mark_polled(&mut self, slots: &mut [OpSlot]) -> bool {
        match &mut self.polled {
            None => false,
            Some(polled) => mark(polled, slots),
        }
    }

    /// Queues one op for the device's polled queues.
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
        let polled = self.polled.as_mut().expect("the op was marked by who has it");
        let entry = encode::entry(op).user_data(std::ptr::from_ref(completion) as u64);
        if polled.ring.submission().is_full() {
            polled.look();
        }
        // SAFETY: I1, by the contract.
        unsafe { polled.ring.submission().push(&entry) }.map_err(|_| Full)?;
        completion.start(op, waiter);
        polled.in_flight += 1;
        self.in_flight += 1;
        Ok(())
    }

    /// Queues ops one by one, wherever each belongs, as long as there is room; how many.
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), for each.
    #[cold]
    pub(super) unsafe fn push_each(&mut self, slots: &[OpSlot], waiter: &Waiter) -> usize {
        let full = |slot: &OpSlot| {
            // SAFETY: handed on to the caller.
            unsafe { self.push(&slot.op, &slot.completion, waiter) }.is_err()
        };
        slots.iter().position(full).unwrap_or(slots.len())
    }

    /// Whether ops are under way whose completions nobody announces.
    #[inline(always)]
    pub(super) fn is_polling(&self) -> bool {
        self.polled.as_ref().is_some_and(|polled| polled.in_flight > 0)
    }

    /// Looks at both rings, and again for a while if the worker would sleep.
    #[cold]
    pub(super) fn enter_polling(&mut self, wait: Wait) {
        self.submit();
        let (looks, deadline) = match wait {
            Wait::No => (1, None),
            Wait::Until(deadline) => (LOOKS, deadline),
        };
        for _ in 0..looks {
            let polled = self.polled.as_mut().expect("it is polling");
            polled.look();
            let found = polled.has_completions() || !self.ring.completion().is_empty();
            let queue = self.ring.submission();
            let called = queue.taskrun() || queue.cq_overflow();
            drop(queue);
            if found || called || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return;
            }
        }
    }

    /// Takes the completions of polled ops; the same as [`reap`](Self::reap).
    #[cold]
    pub(super) fn reap_polled(&mut self, mut sink: impl FnMut(Token)) {
        let polled = self.polled.as_mut().expect("it is polling");
        for cqe in polled.ring.completion() {
            // SAFETY: I1. `push_polled` stored the address of a completion that its frame keeps until
            // nothing is owed to it, and this cqe is owed.
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
        let (Op::Read { target, .. } | Op::Write { target, .. }) = &mut slot.op else { continue };
        let Some(fd) = target.as_fd() else { continue };
        let polls = match last {
            Some((same, polls)) if same == fd => polls,
            _ => polled.polls(fd),
        };
        last = Some((fd, polls));
        if polls {
            *target = target.polled();
            any = true;
        }
    }
    any
}
