//! An op between its push and its completion.

use super::offload::Job;
use super::partial::Remainder;
use super::wait_queues::{Direction, NONE};
use crate::kept::KeptFile;
use crate::nonblocking::Hold;
use crate::{Completion, Op, Target};
use slab::Slab;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

/// An op in flight.
pub(super) struct Flight {
    /// The part of the op that has not been performed, with descriptors in place of registered
    /// files.
    pub(super) op: Op,
    pub(super) completion: *const Completion,
    pub(super) stage: Stage,
    /// The bytes moved so far, of an op that ends when all are moved.
    pub(super) done: u32,
    /// The memory that the rest of the op points to.
    pub(super) rest: Option<Box<Remainder>>,
    pub(super) hold: Option<Hold>,
    /// The op's file, and the number by which the op refers to it: from its first wait to its end,
    /// where the program's closes are announced.
    pub(super) kept: Option<(KeptFile, RawFd)>,
    /// Whether `connect` was called: the next attempt asks for its result.
    pub(super) connecting: bool,
    /// Whether the op was cancelled before its first attempt: it still completes if it need not
    /// wait.
    pub(super) cancelled: bool,
    /// How often an event reported the descriptor as ready, and the op would still have waited.
    pub(super) fruitless_events: u8,
    pub(super) link: Link,
}

/// The neighbours of an op in its wait queue.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) before: u32,
    pub(super) next: u32,
}

/// Where an op in flight stands.
pub(super) enum Stage {
    /// Pushed; the next [`enter`](super::Epoll::enter) attempts it.
    Queued,
    /// In the wait queue of a descriptor.
    Waiting(RawFd, Direction),
    /// Attempted again at this time.
    Backoff(Instant),
    /// A job of the pool.
    Offloaded(Arc<Job>),
    /// It has its result, which waits to be reaped.
    Ended,
}

/// The ops in flight, by number. A number is reused only after its completion was reaped.
#[derive(Default)]
pub(super) struct Flights(Slab<Flight>);

impl Flights {
    pub(super) fn add(&mut self, op: Op, completion: &Completion) -> u32 {
        let flight = Flight {
            op,
            completion,
            stage: Stage::Queued,
            done: 0,
            rest: None,
            hold: None,
            kept: None,
            connecting: false,
            cancelled: false,
            fruitless_events: 0,
            link: Link { before: NONE, next: NONE },
        };
        let number = self.0.insert(flight);
        u32::try_from(number).expect("2³² frames take more memory than any machine has")
    }

    pub(super) fn get(&self, number: u32) -> &Flight {
        &self.0[number as usize]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Flight {
        &mut self.0[number as usize]
    }

    /// The op behind this one in its wait queue.
    pub(super) fn next(&self, number: u32) -> Option<u32> {
        Some(self.get(number).link.next).filter(|&next| next != NONE)
    }

    pub(super) fn remove(&mut self, number: u32) -> Flight {
        self.0.remove(number as usize)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Flight {
    /// Whether the program has closed the op's number: its file has another one.
    pub(super) fn has_moved(&self) -> bool {
        self.kept.is_some_and(|(file, fd)| file.number() != fd)
    }

    /// Has the op refer to its file by the present number.
    pub(super) fn follow(&mut self) {
        let Some((file, fd)) = &mut self.kept else { return };
        let number = file.number();
        if number == *fd {
            return;
        }
        *fd = number;
        match &mut self.op {
            Op::Transfer(transfer) => transfer.file = Target::fd(number),
            Op::Socket(transfer) => transfer.fd = number,
            Op::Accept { fd, .. } | Op::Connect { fd, .. } | Op::Poll { fd, .. } => *fd = number,
            _ => unreachable!("an op that waits for a descriptor"),
        }
    }

    /// The end of its backoff.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Backoff(due) => Some(due),
            Stage::Queued | Stage::Waiting(..) | Stage::Offloaded(_) | Stage::Ended => None,
        }
    }

    /// The op's result if its last call returned this: what was moved before counts, and an error
    /// recurs with the next op.
    pub(super) fn total(&self, result: i32) -> i32 {
        match self.done {
            0 => result,
            done => done as i32 + result.max(0),
        }
    }
}
