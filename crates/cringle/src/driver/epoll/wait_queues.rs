//! Who waits for which descriptor: three rows for each, first come, first served.
//!
//! The rows are links in the flights themselves, so that one that is cancelled leaves from the middle.

use super::flight::{Flights, Link};
use super::poller::{IN, OUT};
use crate::driver::Op;
use std::os::fd::RawFd;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
    /// What a [`Poll`](Op::Poll) names.
    Events,
}

/// No flight.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
}

/// The rows of one descriptor.
type Queues = [Queue; 3];

const EMPTY: Queues = [Queue { first: NONE, last: NONE }; 3];

/// By descriptor: numbers are small.
#[derive(Default)]
pub(super) struct WaitQueues {
    rows: Vec<Queues>,
    /// Flights in it.
    pub(super) count: usize,
}

impl WaitQueues {
    pub(super) fn first(&self, fd: RawFd, direction: Direction) -> Option<u32> {
        let rows = self.rows.get(usize::try_from(fd).ok()?)?;
        Some(rows[direction as usize].first).filter(|&first| first != NONE)
    }

    pub(super) fn append(
        &mut self,
        flights: &mut Flights,
        fd: RawFd,
        direction: Direction,
        flight: u32,
    ) {
        let index = fd as usize;
        if index >= self.rows.len() {
            self.rows.resize(index + 1, EMPTY);
        }
        let row = &mut self.rows[index][direction as usize];
        let before = std::mem::replace(&mut row.last, flight);
        match before {
            NONE => row.first = flight,
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
        let row = &mut self.rows[fd as usize][direction as usize];
        match before {
            NONE => row.first = next,
            before => flights.get_mut(before).link.next = next,
        }
        match next {
            NONE => row.last = before,
            next => flights.get_mut(next).link.before = before,
        }
        self.count -= 1;
    }

    /// What all who wait for it wait for together.
    pub(super) fn interest(&self, flights: &Flights, fd: RawFd) -> u32 {
        let of = |direction, events| if self.first(fd, direction).is_some() { events } else { 0 };
        let mut interest = of(Direction::In, IN) | of(Direction::Out, OUT);
        let mut next = self.first(fd, Direction::Events).unwrap_or(NONE);
        while next != NONE {
            let flight = flights.get(next);
            if let Op::Poll { events, .. } = flight.op {
                interest |= events;
            }
            next = flight.link.next;
        }
        interest
    }

    pub(super) fn has_any(&self, fd: RawFd) -> bool {
        [Direction::In, Direction::Out, Direction::Events]
            .iter()
            .any(|&direction| self.first(fd, direction).is_some())
    }
}
