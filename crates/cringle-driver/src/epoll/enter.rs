//! The worker's calls: attempts at pushed ops, polls for events, sleep.

use super::flight::Stage;
use super::nowait::{self, Outcome};
use super::offload::Job;
use super::poller::{BROKEN, Event, IN, OUT};
use super::wait_queues::{DIRECTIONS, Direction};
use super::{Epoll, POLL_INTERVAL};
use crate::kept::KeptFile;
use crate::op::AT_CURSOR;
use crate::{Op, SocketTransfer, Transfer, Wait};
use cringle_sys as sys;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The backoff of an op for which events are useless: its pauses double, up to a limit.
const FIRST_PAUSE: Duration = Duration::from_micros(250);
const MOST_DOUBLINGS: u8 = 5;
/// The number of fruitless events after which pauses replace events.
const FRUITLESS_LIMIT: u8 = 2;

impl Epoll {
    /// Whether [`reap`](Self::reap) finds a completion, and whether the worker should
    /// [`enter`](Self::enter).
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
            && sys::now().saturating_duration_since(self.last_poll) >= POLL_INTERVAL
    }

    /// Does nothing: no queued op concerns another worker.
    pub(crate) fn flush(&mut self) {}

    /// Attempts the pushed ops, and sleeps until a result or an event arrives if `wait` says so.
    pub(crate) fn enter(&mut self, wait: Wait) {
        self.last_file.forget();
        self.counts.entered(self.queued.len() as u32);
        self.counts.in_flight.set(self.flights.len() as u64);
        while let Some(number) = self.queued.pop_front() {
            self.begin(number);
        }
        // Without a sleep, `attention` polls for events.
        let Wait::Until(deadline) = wait else { return };
        // Only one poll, the one that sleeps: a poll before it could consume the wake-up that is to
        // end the sleep.
        if self.ended.is_empty() && self.results.fall_asleep() {
            let now = sys::now();
            let due = deadline.into_iter().chain(self.next_retry()).min();
            self.poll_events(due.map(|at| at.saturating_duration_since(now)));
            self.results.wake_up();
        }
        self.take_results();
    }

    /// Asks the kernel for events, and attempts the ops that wait for them.
    fn poll_events(&mut self, timeout: Option<Duration>) {
        let count = self.poller.wait(timeout);
        for index in 0..count {
            if let Some(event) = self.poller.event(index) {
                self.on_event(&event);
            }
        }
        self.last_poll = sys::now();
        self.retry_due();
    }

    /// Attempts an op for the first time, after a pause, or on another number of its file.
    pub(super) fn begin(&mut self, number: u32) {
        let flight = self.flights.get_mut(number);
        flight.follow();
        // First come, first served: ops that wait for the same descriptor are ahead.
        if let Some((fd, direction)) = flight.op.wait_queue()
            && self.wait_queues.first(fd, direction).is_some()
        {
            return self.apply(number, Outcome::Wait(fd, direction));
        }
        match self.attempt(number, false) {
            Some(outcome) => self.apply(number, outcome),
            None => self.begin(number),
        }
    }

    /// Attempts an op. `None`, without an attempt, if the program has closed the op's number.
    fn attempt(&mut self, number: u32, is_event: bool) -> Option<Outcome> {
        let flight = self.flights.get_mut(number);
        let kept = flight.kept;
        // SAFETY: I1, by the contract of `push`: the op has not ended.
        let mut attempt = || unsafe { flight.attempt(&mut self.last_file, is_event) };
        match kept {
            Some((file, fd)) => file.with_number(fd, attempt),
            None => Some(attempt()),
        }
    }

    /// Moves an op to the stage that the outcome of its attempt says.
    fn apply(&mut self, number: u32, outcome: Outcome) {
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

    /// Appends an op to a wait queue, and arms the descriptor.
    pub(super) fn wait_for(&mut self, number: u32, fd: RawFd, direction: Direction) {
        self.wait_queues.append(&mut self.flights, fd, direction, number);
        let flight = self.flights.get_mut(number);
        flight.stage = Stage::Waiting(fd, direction);
        if self.has_closing {
            flight.kept.get_or_insert_with(|| (KeptFile::of_op(fd, &self.results), fd));
        }
        // Arm it even if other ops wait for it already. If unsafe code has closed the descriptor
        // under them, they must not keep this op from the file that has the number now.
        if let Err(errno) = self.arm(fd) {
            self.wait_queues.remove(&mut self.flights, fd, direction, number);
            match errno {
                _ if self.flights.get(number).has_moved() => self.begin(number),
                // A file without readiness, such as a device that claims to be always ready.
                libc::EPERM => self.offload(number, true),
                errno => {
                    let result = self.flights.get(number).total(-errno);
                    self.end(number, result);
                }
            }
        }
    }

    /// Arms a descriptor for the events that its ops wait for.
    pub(super) fn arm(&mut self, fd: RawFd) -> Result<(), i32> {
        let interest = self.wait_queues.interest(&self.flights, fd);
        self.poller.arm(fd, interest)
    }

    /// Attempts the ops that wait for a descriptor: in each queue the first ones, until one must
    /// wait.
    pub(super) fn on_event(&mut self, event: &Event) {
        let &Event { fd, events } = event;
        if events & (IN | BROKEN) != 0 {
            self.retry_queue(fd, Direction::In);
        }
        if events & (OUT | BROKEN) != 0 {
            self.retry_queue(fd, Direction::Out);
        }
        self.retry_polls(fd);
        self.arm_again(fd);
    }

    /// Attempts the ops of one queue, until one must wait.
    fn retry_queue(&mut self, fd: RawFd, direction: Direction) {
        while let Some(number) = self.wait_queues.first(fd, direction) {
            let Some(outcome) = self.attempt(number, true) else {
                self.move_all(fd);
                continue;
            };
            if let Outcome::Wait(..) = outcome {
                let flight = self.flights.get_mut(number);
                flight.fruitless_events = flight.fruitless_events.saturating_add(1);
                if flight.fruitless_events <= FRUITLESS_LIMIT || !nowait::is_ready(fd, direction) {
                    return;
                }
                // The event concerns another op: the socket has an error queued, or data while this
                // op reads from the error queue. The kernel would report the same event again at
                // once.
                self.wait_queues.remove(&mut self.flights, fd, direction, number);
                self.back_off(number);
                continue;
            }
            self.wait_queues.remove(&mut self.flights, fd, direction, number);
            self.apply(number, outcome);
        }
    }

    /// Attempts every poll of a descriptor: one event can end several.
    fn retry_polls(&mut self, fd: RawFd) {
        let mut next = self.wait_queues.first(fd, Direction::Events);
        while let Some(number) = next {
            next = self.flights.next(number);
            let Some(outcome) = self.attempt(number, true) else {
                self.move_all(fd);
                next = self.wait_queues.first(fd, Direction::Events);
                continue;
            };
            if let Outcome::Done(result) = outcome {
                self.wait_queues.remove(&mut self.flights, fd, Direction::Events, number);
                self.end(number, result);
            }
        }
    }

    /// Arms a descriptor again for the ops that still wait for it.
    pub(super) fn arm_again(&mut self, fd: RawFd) {
        if self.wait_queues.has_any(fd)
            && let Err(errno) = self.arm(fd)
        {
            self.move_all(fd);
            self.fail_all(fd, errno);
        }
    }

    /// Moves the ops of a number that the program has closed: their file has another number.
    #[cold]
    fn move_all(&mut self, fd: RawFd) {
        for direction in DIRECTIONS {
            let mut next = self.wait_queues.first(fd, direction);
            while let Some(number) = next {
                next = self.flights.next(number);
                if self.flights.get(number).has_moved() {
                    self.wait_queues.remove(&mut self.flights, fd, direction, number);
                    self.begin(number);
                }
            }
        }
    }

    /// Fails all ops on a descriptor that can no longer be armed: unsafe code has closed it.
    #[cold]
    fn fail_all(&mut self, fd: RawFd, errno: i32) {
        for direction in DIRECTIONS {
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
        // SAFETY: I1, by the contract of `push`: the flight ends, and its frame is released, only
        // after the job's result was taken or the job was withdrawn.
        let job = unsafe { Job::start(pool, flight.op, number, &self.results) };
        flight.stage = Stage::Offloaded(job);
    }

    /// Ends the ops whose jobs have ended.
    pub(super) fn take_results(&mut self) {
        if !self.results.has_any() {
            return;
        }
        let mut taken = std::mem::take(&mut self.taken);
        let mut closed = self.results.take(&mut taken);
        for (number, result) in taken.drain(..) {
            let result = self.flights.get(number).total(result);
            self.end(number, result);
        }
        self.taken = taken;
        closed.dedup();
        for fd in closed {
            self.move_all(fd);
            self.arm_again(fd);
        }
    }

    /// Schedules another attempt after a pause.
    pub(super) fn back_off(&mut self, number: u32) {
        let flight = self.flights.get_mut(number);
        let doublings = flight.fruitless_events.min(MOST_DOUBLINGS);
        flight.fruitless_events = flight.fruitless_events.saturating_add(1);
        flight.stage = Stage::Backoff(sys::now() + FIRST_PAUSE * (1 << doublings));
        self.backing_off.push(number);
    }

    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.backing_off.iter().filter_map(|&number| self.flights.get(number).due()).min()
    }

    /// Attempts the ops whose pause is over.
    pub(super) fn retry_due(&mut self) {
        if self.backing_off.is_empty() {
            return;
        }
        let now = self.last_poll;
        let is_due = |number: &u32| self.flights.get(*number).due().is_some_and(|due| due <= now);
        let all = std::mem::take(&mut self.backing_off);
        let (due, later): (Vec<u32>, Vec<u32>) = all.into_iter().partition(is_due);
        self.backing_off = later;
        due.into_iter().for_each(|number| self.begin(number));
    }
}

impl Op {
    /// The wait queue in which ops on this file are served in order. An op without one is attempted
    /// at once, whichever ops wait for its file.
    fn wait_queue(&self) -> Option<(RawFd, Direction)> {
        match *self {
            Op::Transfer(Transfer { way, file, offset: AT_CURSOR, .. }) => {
                Some((file.number(), Direction::of(way)))
            }
            Op::Socket(SocketTransfer { way, fd, .. }) => Some((fd, Direction::of(way))),
            Op::Accept { fd, .. } => Some((fd, Direction::In)),
            Op::Nop
            | Op::Transfer(_)
            | Op::File(_)
            | Op::Path(_)
            | Op::Poll { .. }
            | Op::Connect { .. }
            | Op::FutexWait { .. }
            | Op::Syscall(_)
            | Op::Raw(_) => None,
        }
    }

    /// The socket that the op may hold non-blocking.
    pub(super) fn socket(&self) -> Option<RawFd> {
        match *self {
            Op::Accept { fd, .. } | Op::Connect { fd, .. } => Some(fd),
            _ => None,
        }
    }
}
