//! An op between its push and its completion.

use super::offload::Job;
use super::partial::Remainder;
use super::wait_queues::{Direction, NONE};
use crate::driver::nonblocking::Hold;
use crate::driver::{Completion, Op};
use slab::Slab;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Flight {
    /// What is left of it: descriptors for registered files, and the part that has not been moved.
    pub(super) op: Op,
    pub(super) completion: *const Completion,
    pub(super) stage: Stage,
    /// Bytes moved so far, of an op that goes on until all are.
    pub(super) done: u32,
    pub(super) rest: Option<Box<Remainder>>,
    pub(super) hold: Option<Hold>,
    /// It was begun to connect: how that went is to be asked.
    pub(super) connecting: bool,
    /// It was given up before it was outcome: it may be done if that does not wait.
    pub(super) cancelled: bool,
    /// Times it was told that it could go on, and could not.
    pub(super) fruitless_events: u8,
    pub(super) link: Link,
}

/// Its neighbours among those who wait for the same.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) before: u32,
    pub(super) next: u32,
}

pub(super) enum Stage {
    /// Pushed; the next [`enter`](super::Epoll::enter) tries it.
    Queued,
    Waiting(RawFd, Direction),
    /// It is outcome again then.
    Backoff(Instant),
    /// With the pool.
    Offloaded(Arc<Job>),
    /// Its result is in the row of those to be reaped.
    Ended,
}

/// All of them. A number is given to another one only when its completion was reaped.
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
            connecting: false,
            cancelled: false,
            fruitless_events: 0,
            link: Link { before: NONE, next: NONE },
        };
        // More would take more memory than there is: each lies in a frame of its own.
        u32::try_from(self.0.insert(flight)).expect("less than 2³² operations")
    }

    pub(super) fn get(&self, number: u32) -> &Flight {
        &self.0[number as usize]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Flight {
        &mut self.0[number as usize]
    }

    /// Who stands behind it.
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
    /// When it is outcome again.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Backoff(due) => Some(due),
            _ => None,
        }
    }
}
