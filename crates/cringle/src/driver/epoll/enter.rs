//! Trying what was pushed, asking the kernel, sleeping.

use super::aside::Job;
use super::attempt::{self, Tried};
use super::flight::Stage;
use super::poller::{BROKEN, IN, OUT, Told};
use super::waits::Way;
use super::{Epoll, LOOK_EVERY};
use crate::driver::{Op, Wait};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Pauses between tries of an op that events do not help: they double up to the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(250);
const MOST_DOUBLINGS: u8 = 5;
/// Events that may report an op as ready, though its call would wait, before pauses replace them.
const PATIENCE: u8 = 2;

impl Epoll {
    /// What a turn has to do with the driver: whether [`reap`](Self::reap) finds something, and whether
    /// something waits for [`enter`](Self::enter).
    pub(crate) fn attention(&mut self) -> (bool, bool) {
        self.take_results();
        if self.is_look_due() {
            self.look(Some(Duration::ZERO));
        }
        let ended = !self.ended.is_empty();
        (ended, ended || !self.queued.is_empty())
    }

    pub(super) fn is_look_due(&self) -> bool {
        (self.waits.count > 0 || !self.later.is_empty()) && self.looked.elapsed() >= LOOK_EVERY
    }

    /// Nothing of it is anywhere but here.
    pub(crate) fn flush(&mut self) {}

    /// Tries what was pushed, and sleeps until something has come if it is told to.
    pub(crate) fn enter(&mut self, wait: Wait) {
        self.last_file.forget();
        self.counts.entered(self.queued.len() as u32);
        self.counts.in_flight.set(self.flights.len() as u64);
        while let Some(number) = self.queued.pop_front() {
            self.begin(number);
        }
        // Without a sleep, `attention` asks for events.
        let Wait::Until(deadline) = wait else { return };
        // One look, which sleeps: one before it could silence the bell that was to end the sleep.
        if self.ended.is_empty() && self.results.fall_asleep() {
            let now = Instant::now();
            let due = deadline.into_iter().chain(self.next_later()).min();
            self.look(due.map(|at| at.saturating_duration_since(now)));
            self.results.wake_up();
        }
        self.take_results();
    }

    /// Asks the kernel for events, and goes on with what they are about.
    fn look(&mut self, timeout: Option<Duration>) {
        let count = self.poller.wait(timeout);
        for index in 0..count {
            if let Some(told) = self.poller.told(index) {
                self.go_on(&told);
            }
        }
        self.looked = Instant::now();
        self.try_later();
    }

    fn begin(&mut self, number: u32) {
        let flight = self.flights.get_mut(number);
        // Those who wait for the same have come first.
        if let Some((fd, way)) = flight.op.waits_for()
            && self.waits.first(fd, way).is_some()
        {
            return self.settle(number, Tried::Wait(fd, way));
        }
        // SAFETY: I1, by `push`'s contract: it is not over.
        let tried = unsafe { flight.attempt(&mut self.last_file, false) };
        self.settle(number, tried);
    }

    fn settle(&mut self, number: u32, tried: Tried) {
        match tried {
            Tried::Ended(result) => self.end(number, result),
            _ if self.flights.get(number).given_up => {
                let result = self.flights.get(number).total(-libc::ECANCELED);
                self.end(number, result);
            }
            Tried::Wait(fd, way) => self.wait_for(number, fd, way),
            Tried::Aside => self.start_aside(number, false),
            Tried::AsideForLong => self.start_aside(number, true),
        }
    }

    fn wait_for(&mut self, number: u32, fd: RawFd, way: Way) {
        self.waits.append(&mut self.flights, fd, way, number);
        self.flights.get_mut(number).stage = Stage::Waiting(fd, way);
        // Though others wait for it already: if the descriptor was closed under them by unsafe code, they
        // are not to keep this one from the file that has the number now.
        if let Err(errno) = self.arm(fd) {
            self.waits.remove(&mut self.flights, fd, way, number);
            match errno {
                // It cannot be waited for: a device that is always ready, or so it says.
                libc::EPERM => self.start_aside(number, true),
                errno => {
                    let result = self.flights.get(number).total(-errno);
                    self.end(number, result);
                }
            }
        }
    }

    fn arm(&mut self, fd: RawFd) -> Result<(), i32> {
        let interest = self.waits.interest(&self.flights, fd);
        self.poller.arm(fd, interest)
    }

    /// Something has come for a descriptor: in each row the first are tried, until one has to wait.
    pub(super) fn go_on(&mut self, told: &Told) {
        let &Told { fd, events } = told;
        if events & (IN | BROKEN) != 0 {
            self.go_on_in_row(fd, Way::In);
        }
        if events & (OUT | BROKEN) != 0 {
            self.go_on_in_row(fd, Way::Out);
        }
        self.go_on_with_polls(fd);
        if self.waits.has_any(fd)
            && let Err(errno) = self.arm(fd)
        {
            self.give_up_all(fd, errno);
        }
    }

    fn go_on_in_row(&mut self, fd: RawFd, way: Way) {
        while let Some(number) = self.waits.first(fd, way) {
            let flight = self.flights.get_mut(number);
            // SAFETY: I1, by `push`'s contract: it is not over.
            let tried = unsafe { flight.attempt(&mut self.last_file, true) };
            if let Tried::Wait(..) = tried {
                flight.in_vain = flight.in_vain.saturating_add(1);
                if flight.in_vain <= PATIENCE || !attempt::is_ready(fd, way) {
                    return;
                }
                // The event is for another op: the socket has errors queued, or data while this op receives
                // from its error queue. The kernel would report the same event again at once.
                self.waits.remove(&mut self.flights, fd, way, number);
                self.put_off(number);
                continue;
            }
            self.waits.remove(&mut self.flights, fd, way, number);
            self.settle(number, tried);
        }
    }

    fn go_on_with_polls(&mut self, fd: RawFd) {
        let mut next = self.waits.first(fd, Way::Events);
        while let Some(number) = next {
            next = self.flights.next(number);
            // SAFETY: I1, by `push`'s contract: it is not over.
            let tried = unsafe { self.flights.get_mut(number).attempt(&mut self.last_file, true) };
            if let Tried::Ended(result) = tried {
                self.waits.remove(&mut self.flights, fd, Way::Events, number);
                self.end(number, result);
            }
        }
    }

    /// The kernel does not tell of this descriptor any more: it is closed, by unsafe code.
    #[cold]
    fn give_up_all(&mut self, fd: RawFd, errno: i32) {
        for way in [Way::In, Way::Out, Way::Events] {
            while let Some(number) = self.waits.first(fd, way) {
                self.waits.remove(&mut self.flights, fd, way, number);
                let result = self.flights.get(number).total(-errno);
                self.end(number, result);
            }
        }
    }

    fn start_aside(&mut self, number: u32, for_long: bool) {
        let pool = if for_long { &self.pools.unbounded } else { &self.pools.storage };
        let flight = self.flights.get_mut(number);
        // SAFETY: I1. The flight ends when the result was taken, or the job was.
        let job = unsafe { Job::start(pool, flight.op, number, &self.results) };
        flight.stage = Stage::Aside(job);
    }

    fn take_results(&mut self) {
        if !self.results.has_some() {
            return;
        }
        let mut taken = std::mem::take(&mut self.taken);
        self.results.take(&mut taken);
        for (number, result) in taken.drain(..) {
            let result = self.flights.get(number).total(result);
            self.end(number, result);
        }
        self.taken = taken;
    }

    pub(super) fn put_off(&mut self, number: u32) {
        let flight = self.flights.get_mut(number);
        let doublings = flight.in_vain.min(MOST_DOUBLINGS);
        flight.in_vain = flight.in_vain.saturating_add(1);
        flight.stage = Stage::Later(Instant::now() + FIRST_PAUSE * (1 << doublings));
        self.later.push(number);
    }

    pub(super) fn next_later(&self) -> Option<Instant> {
        self.later.iter().filter_map(|&number| self.flights.get(number).due()).min()
    }

    fn try_later(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let now = self.looked;
        let all = std::mem::take(&mut self.later);
        for number in all {
            match self.flights.get(number).due() {
                Some(due) if due <= now => self.begin(number),
                _ => self.later.push(number),
            }
        }
    }
}

impl Op {
    /// The row to stand in.
    fn waits_for(&self) -> Option<(RawFd, Way)> {
        use crate::driver::op::AT_CURSOR;
        match *self {
            Op::Read { target, offset: AT_CURSOR, .. } => Some((target.number(), Way::In)),
            Op::Write { target, offset: AT_CURSOR, .. } => Some((target.number(), Way::Out)),
            Op::ReadVectored { fd, offset: AT_CURSOR, .. }
            | Op::Recv { fd, .. }
            | Op::RecvMsg { fd, .. }
            | Op::Accept { fd, .. } => Some((fd, Way::In)),
            Op::WriteVectored { fd, offset: AT_CURSOR, .. }
            | Op::Send { fd, .. }
            | Op::SendZc { fd, .. }
            | Op::SendMsg { fd, .. } => Some((fd, Way::Out)),
            _ => None,
        }
    }

    /// The socket that it may have made non-blocking.
    pub(super) fn socket(&self) -> Option<RawFd> {
        match *self {
            Op::Accept { fd, .. } | Op::Connect { fd, .. } => Some(fd),
            _ => None,
        }
    }
}
