//! Ops whose descriptor the program closes continue on a duplicate: see [`closing`].

use super::Epoll;
use super::closing::{self, Closed, Pin};
use super::flight::Flight;
use super::wait_queues::Direction;
use crate::sys::Owned;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Whether an op is attempted on its descriptor.
pub(super) enum Pinned {
    /// On this one, which names its file until the pin is dropped.
    Stays(#[allow(dead_code, reason = "it is held for its drop")] Option<Pin>),
    /// Perhaps on a duplicate: the number has this later generation.
    Moves(u32),
}

impl Flight {
    pub(super) fn pin(&self) -> Pinned {
        let Some(watch) = &self.watch else { return Pinned::Stays(None) };
        match watch.pin() {
            Ok(pin) => Pinned::Stays(Some(pin)),
            Err(generation) => Pinned::Moves(generation),
        }
    }
}

impl Epoll {
    /// Moves the ops whose descriptors are being closed to the duplicates.
    #[cold]
    pub(super) fn take_moved(&mut self) {
        closing::await_posts();
        self.take_results();
    }

    /// Moves the ops of a descriptor, one of which has found a later generation. If that op stays,
    /// another descriptor was closed, and it continues in the later generation.
    #[cold]
    pub(super) fn follow(&mut self, number: u32, fd: RawFd, generation: u32) {
        self.take_moved();
        let watch = self.flights.get_mut(number).watch.as_mut();
        if let Some(watch) = watch.filter(|watch| watch.is_of(fd, generation)) {
            watch.renew(generation);
        }
    }

    /// Attempts an op whose pause is over, perhaps on a duplicate of its descriptor.
    #[cold]
    pub(super) fn begin_moved(&mut self, number: u32, generation: u32) {
        let watch = self.flights.get(number).watch.as_ref();
        let fd = watch.expect("it has found the generation").fd();
        self.backing_off.push(number);
        self.follow(number, fd, generation);
        if self.take_backing_off(number) {
            self.begin(number);
        }
    }

    /// Removes an op from the ops that pause. Returns whether the op paused.
    pub(super) fn take_backing_off(&mut self, number: u32) -> bool {
        let place = self.backing_off.iter().position(|&other| other == number);
        place.map(|place| self.backing_off.remove(place)).is_some()
    }

    #[cold]
    pub(super) fn take_closed(&mut self, all: Vec<Closed>) {
        // An op that has not moved would fail when its closed number is armed.
        for closed in &all {
            if let Closed::Moved { fd, generation, file } = closed {
                self.move_all(*fd, *generation, file.as_ref());
            }
        }
        for closed in all {
            if let Closed::Replaced { fd } = closed {
                self.arm_again(fd);
            }
        }
    }

    /// Moves the ops that wait for a descriptor since this generation or before.
    fn move_all(&mut self, fd: RawFd, generation: u32, file: Option<&Arc<Owned>>) {
        for direction in [Direction::In, Direction::Out, Direction::Events] {
            let mut next = self.wait_queues.first(fd, direction);
            while let Some(number) = next {
                next = self.flights.next(number);
                if self.waits_since(number, fd, generation) {
                    self.wait_queues.remove(&mut self.flights, fd, direction, number);
                    if let Some(moved) = self.move_one(number, file) {
                        self.wait_for(number, moved, direction);
                    }
                }
            }
        }
        for number in std::mem::take(&mut self.backing_off) {
            if !self.waits_since(number, fd, generation) || self.move_one(number, file).is_some() {
                self.backing_off.push(number);
            }
        }
    }

    fn waits_since(&self, number: u32, fd: RawFd, generation: u32) -> bool {
        let watch = &self.flights.get(number).watch;
        watch.as_ref().is_some_and(|watch| watch.is_of(fd, generation))
    }

    /// Returns the number of the duplicate. The op fails if there is none.
    fn move_one(&mut self, number: u32, file: Option<&Arc<Owned>>) -> Option<RawFd> {
        let flight = self.flights.get_mut(number);
        match file {
            Some(file) => Some(flight.move_to(file)),
            None => {
                let result = flight.total(-libc::EBADF);
                self.end(number, result);
                None
            }
        }
    }
}
