//! The ops that wait for each descriptor: three queues for each, first come, first served.
//!
//! The queues are links in the flights themselves, so that a cancelled op can leave from the
//! middle.

use super::flight::{Flights, Link};
use super::poller::{IN, OUT};
use crate::{Op, Way};
use std::os::fd::RawFd;

/// The event that an op waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
    /// The events that a [`Poll`](Op::Poll) names.
    Events,
}

pub(super) const DIRECTIONS: [Direction; 3] = [Direction::In, Direction::Out, Direction::Events];

impl Direction {
    pub(super) fn of(way: Way) -> Direction {
        match way {
            Way::Read => Direction::In,
            Way::Write => Direction::Out,
        }
    }
}

/// The number of no flight.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
}

/// The queues of one descriptor, by [`Direction`].
type Queues = [Queue; 3];

const EMPTY: Queues = [Queue { first: NONE, last: NONE }; 3];

/// The wait queues, indexed by descriptor: the kernel gives out the smallest free number.
#[derive(Default)]
pub(super) struct WaitQueues {
    queues: Vec<Queues>,
    /// The number of flights in all of them.
    pub(super) count: usize,
}

impl WaitQueues {
    pub(super) fn first(&self, fd: RawFd, direction: Direction) -> Option<u32> {
        let queues = self.queues.get(usize::try_from(fd).ok()?)?;
        Some(queues[direction as usize].first).filter(|&first| first != NONE)
    }

    pub(super) fn append(
        &mut self,
        flights: &mut Flights,
        fd: RawFd,
        direction: Direction,
        flight: u32,
    ) {
        let index = fd as usize;
        if index >= self.queues.len() {
            self.queues.resize(index + 1, EMPTY);
        }
        let queue = &mut self.queues[index][direction as usize];
        let before = std::mem::replace(&mut queue.last, flight);
        match before {
            NONE => queue.first = flight,
            before => flights.get_mut(before).link.next = flight,
        }
        flights.get_mut(flight).link = Link { before, next: NONE };
        self.count += 1;
    }

    pub(super) fn remove(
        &mut self,
        flights: &mut Flights,
        fd: RawFd,
        direction: Direction,
        flight: u32,
    ) {
        let Link { before, next } = flights.get_mut(flight).link;
        let queue = &mut self.queues[fd as usize][direction as usize];
        match before {
            NONE => {
                debug_assert_eq!(queue.first, flight, "the flight is in another queue");
                queue.first = next;
            }
            before => flights.get_mut(before).link.next = next,
        }
        match next {
            NONE => {
                debug_assert_eq!(queue.last, flight, "the flight is in another queue");
                queue.last = before;
            }
            next => flights.get_mut(next).link.before = before,
        }
        self.count -= 1;
    }

    /// The events that the ops of a descriptor wait for, together.
    pub(super) fn interest(&self, flights: &Flights, fd: RawFd) -> u32 {
        let of = |direction, events| if self.first(fd, direction).is_some() { events } else { 0 };
        let mut interest = of(Direction::In, IN) | of(Direction::Out, OUT);
        let mut next = self.first(fd, Direction::Events);
        while let Some(number) = next {
            if let Op::Poll { events, .. } = flights.get(number).op {
                interest |= events;
            }
            next = flights.next(number);
        }
        interest
    }

    pub(super) fn has_any(&self, fd: RawFd) -> bool {
        DIRECTIONS.iter().any(|&direction| self.first(fd, direction).is_some())
    }
}
