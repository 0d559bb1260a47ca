//! Trying what was pushed, asking the kernel, sleeping.

use super::flight::Stage;
use super::nowait::{self, Outcome};
use super::offload::Job;
use super::poller::{BROKEN, Event, IN, OUT};
use super::wait_queues::Direction;
use super::{Epoll, POLL_INTERVAL};
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
        if self.is_poll_due() {
            self.poll_events(Some(Duration::ZERO));
        }
        let ended = !self.ended.is_empty();
        (ended, ended || !self.queued.is_empty())
    }

    pub(super) fn is_poll_due(&self) -> bool {
        (self.wait_queues.count > 0 || !self.backing_off.is_empty())
            && self.last_poll.elapsed() >= POLL_INTERVAL
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
        // One look, which sleeps: one before it could silence the wake_fd that was to end the sleep.
        if self.ended.is_empty() && self.results.fall_asleep() {
            let now = Instant::now();
            let due = deadline.into_iter().chain(self.next_retry()).min();
            self.poll_events(due.map(|at| at.saturating_duration_since(now)));
            self.results.wake_up();
        }
        self.take_results();
    }

    /// Asks the kernel for events, and goes on with what they are about.
    fn poll_events(&mut self, timeout: Option<Duration>) {
        let count = self.poller.wait(timeout);
        for index in 0..count {
            if let Some(told) = self.poller.event(index) {
                self.on_event(&told);
            }
        }
        self.last_poll = Instant::now();
        self.retry_due();
    }

    fn begin(&mut self, number: u32) {
        let flight = self.flights.get_mut(number);
        // Those who wait for the same have come first.
        if let Some((fd, direction)) = flight.op.waits_for()
            && self.wait_queues.first(fd, direction).is_some()
        {
            return self.settle(number, Outcome::Wait(fd, direction));
        }
        // SAFETY: I1, by `push`'s contract: it is not over.
        let outcome = unsafe { flight.attempt(&mut self.last_file, false) };
        self.settle(number, outcome);
    }

    fn settle(&mut self, number: u32, outcome: Outcome) {
        match outcome {
            Outcome::Done(result) => self.end(number, result),
            _ if self.flights.get(number).cancelled => {
                let result = self.flights.get(number).total(-libc::ECANCELED);
                self.end(number, result);
            }
            Outcome::Wait(fd, direction) => self.wait_for(number, fd, direction),
            Outcome::Offload => self.offload(number, false),
            Outcome::OffloadUnbounded => self.offload(number, true),
        }
    }

    fn wait_for(&mut self, number: u32, fd: RawFd, direction: Direction) {
        self.wait_queues.append(&mut self.flights, fd, direction, number);
        self.flights.get_mut(number).stage = Stage::Waiting(fd, direction);
        // Though others wait for it already: if the descriptor was closed under them by unsafe code, they
        // are not to keep this one from the file that has the number now.
        if let Err(errno) = self.arm(fd) {
            self.wait_queues.remove(&mut self.flights, fd, direction, number);
            match errno {
                // It cannot be waited for: a device that is always ready, or so it says.
                libc::EPERM => self.offload(number, true),
                errno => {
                    let result = self.flights.get(number).total(-errno);
                    self.end(number, result);
                }
            }
        }
    }

    fn arm(&mut self, fd: RawFd) -> Result<(), i32> {
        let interest = self.wait_queues.interest(&self.flights, fd);
        self.poller.arm(fd, interest)
    }

    /// Something has come for a descriptor: in each row the first are outcome, until one has to wait.
    pub(super) fn on_event(&mut self, told: &Event) {
        let &Event { fd, events } = told;
        if events & (IN | BROKEN) != 0 {
            self.retry_queue(fd, Direction::In);
        }
        if events & (OUT | BROKEN) != 0 {
            self.retry_queue(fd, Direction::Out);
        }
        self.retry_polls(fd);
        if self.wait_queues.has_any(fd)
            && let Err(errno) = self.arm(fd)
        {
            self.fail_all(fd, errno);
        }
    }

    fn retry_queue(&mut self, fd: RawFd, direction: Direction) {
        while let Some(number) = self.wait_queues.first(fd, direction) {
            let flight = self.flights.get_mut(number);
            // SAFETY: I1, by `push`'s contract: it is not over.
            let outcome = unsafe { flight.attempt(&mut self.last_file, true) };
            if let Outcome::Wait(..) = outcome {
                flight.fruitless_events = flight.fruitless_events.saturating_add(1);
                if flight.fruitless_events <= PATIENCE || !nowait::is_ready(fd, direction) {
                    return;
                }
                // The event is for another op: the socket has errors queued, or data while this op receives
                // from its error queue. The kernel would report the same event again at once.
                self.wait_queues.remove(&mut self.flights, fd, direction, number);
                self.back_off(number);
                continue;
            }
            self.wait_queues.remove(&mut self.flights, fd, direction, number);
            self.settle(number, outcome);
        }
    }

    fn retry_polls(&mut self, fd: RawFd) {
        let mut next = self.wait_queues.first(fd, Direction::Events);
        while let Some(number) = next {
            next = self.flights.next(number);
            // SAFETY: I1, by `push`'s contract: it is not over.
            let outcome =
                unsafe { self.flights.get_mut(number).attempt(&mut self.last_file, true) };
            if let Outcome::Done(result) = outcome {
                self.wait_queues.remove(&mut self.flights, fd, Direction::Events, number);
                self.end(number, result);
            }
        }
    }

    /// The kernel does not tell of this descriptor any more: it is closed, by unsafe code.
    #[cold]
    fn fail_all(&mut self, fd: RawFd, errno: i32) {
        for direction in [Direction::In, Direction::Out, Direction::Events] {
            while let Some(number) = self.wait_queues.first(fd, direction) {
                self.wait_queues.remove(&mut self.flights, fd, direction, number);
                let result = self.flights.get(number).total(-errno);
                self.end(number, result);
            }
        }
    }

    fn offload(&mut self, number: u32, for_long: bool) {
        let pool = if for_long { &self.pools.unbounded } else { &self.pools.storage };
        let flight = self.flights.get_mut(number);
        // SAFETY: I1. The flight ends when the result was taken, or the job was.
        let job = unsafe { Job::start(pool, flight.op, number, &self.results) };
        flight.stage = Stage::Offloaded(job);
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

    pub(super) fn back_off(&mut self, number: u32) {
        let flight = self.flights.get_mut(number);
        let doublings = flight.fruitless_events.min(MOST_DOUBLINGS);
        flight.fruitless_events = flight.fruitless_events.saturating_add(1);
        flight.stage = Stage::Backoff(Instant::now() + FIRST_PAUSE * (1 << doublings));
        self.backing_off.push(number);
    }

    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.backing_off.iter().filter_map(|&number| self.flights.get(number).due()).min()
    }

    fn retry_due(&mut self) {
        if self.backing_off.is_empty() {
            return;
        }
        let now = self.last_poll;
        let all = std::mem::take(&mut self.backing_off);
        for number in all {
            match self.flights.get(number).due() {
                Some(due) if due <= now => self.begin(number),
                _ => self.backing_off.push(number),
            }
        }
    }
}

impl Op {
    /// The row to stand in.
    fn waits_for(&self) -> Option<(RawFd, Direction)> {
        use crate::driver::op::AT_CURSOR;
        match *self {
            Op::Read { target, offset: AT_CURSOR, .. } => Some((target.number(), Direction::In)),
            Op::Write { target, offset: AT_CURSOR, .. } => Some((target.number(), Direction::Out)),
            Op::ReadVectored { fd, offset: AT_CURSOR, .. }
            | Op::Recv { fd, .. }
            | Op::RecvMsg { fd, .. }
            | Op::Accept { fd, .. } => Some((fd, Direction::In)),
            Op::WriteVectored { fd, offset: AT_CURSOR, .. }
            | Op::Send { fd, .. }
            | Op::SendZc { fd, .. }
            | Op::SendMsg { fd, .. } => Some((fd, Direction::Out)),
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
