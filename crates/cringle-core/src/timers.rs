//! A worker's timers: an indexed 4-ary heap, in which each timer knows its position.
//!
//! Setting a timer that is later than its parent, as most deadlines are, costs one comparison.
//! Taking one back costs O(log n). Neither makes a system call, nor an allocation once the heap has
//! had that size. The kernel learns only the nearest time, as the limit of the worker's wait.

use super::fiber::FiberRef;
use super::region::Region;
use super::worker::Review;
use std::ptr::NonNull;
use std::time::Instant;

/// Children of a node. Few cache lines hold their keys.
const BRANCHES: usize = 4;

/// The effect of a timer that fires.
#[derive(Clone, Copy)]
pub(crate) enum Alarm {
    /// Ends the fiber's wait.
    Wake(FiberRef),
    /// Cancels a region of the fiber. The region lies in a frame that takes the timer back before
    /// it goes.
    Expire(FiberRef, NonNull<Region>),
    /// Asks the kernel to end the ops that the fiber waits for.
    GiveUp(FiberRef),
    /// Looks up when to do that. The review lies in a frame that takes the timer back before it
    /// goes.
    Review(FiberRef, NonNull<Review<'static>>),
    /// Reports cancelled fibers that still wait.
    ReportStubborn,
    /// Retries to start postponed fibers.
    RetryStarts,
}

impl Alarm {
    /// Whether it is the worker's own. Its name is of no use once it has fired.
    fn is_workers(self) -> bool {
        matches!(self, Alarm::ReportStubborn | Alarm::RetryStarts)
    }
}

/// The name of a timer until it is taken back, fired or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerId(u32);

/// See the module.
#[derive(Default)]
pub(super) struct Timers {
    /// The nearest first; no node is later than its children.
    heap: Vec<Node>,
    slots: Vec<TimerSlot>,
    vacant: Vec<u32>,
    next_number: u64,
}

#[derive(Clone, Copy)]
struct Node {
    at: Instant,
    /// Of timers for the same time, the one that was set first fires first.
    number: u64,
    id: u32,
}

struct TimerSlot {
    /// The timer's position in the heap, or [`FIRED`].
    index: u32,
    alarm: Alarm,
}

const FIRED: u32 = u32::MAX;

impl Node {
    fn is_before(&self, other: &Node) -> bool {
        (self.at, self.number) < (other.at, other.number)
    }
}

impl Timers {
    /// Sets a timer. The caller [removes](Self::remove) that of a fiber when its wait has ended,
    /// fired or not.
    #[inline]
    pub(super) fn insert(&mut self, at: Instant, alarm: Alarm) -> TimerId {
        let index = self.heap.len();
        let slot = TimerSlot { index: index as u32, alarm };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                let id = u32::try_from(self.slots.len()).ok().filter(|&id| id != FIRED);
                self.slots.push(slot);
                id.expect("fewer than 2³² timers on a worker")
            }
        };
        let node = Node { at, number: self.next_number, id };
        self.next_number += 1;
        self.heap.push(node);
        let parent = index.wrapping_sub(1) / BRANCHES;
        if index > 0 && node.is_before(&self.heap[parent]) {
            self.rise(index, node);
        }
        TimerId(id)
    }

    /// Takes a timer back.
    #[inline]
    pub(super) fn remove(&mut self, id: TimerId) {
        let index = self.slots[id.0 as usize].index;
        if index != FIRED {
            self.take_out(index as usize);
        }
        self.vacant.push(id.0);
    }

    /// The time of a timer that was not taken back. `None` if it has fired.
    pub(super) fn time_of(&self, id: TimerId) -> Option<Instant> {
        let index = self.slots[id.0 as usize].index;
        (index != FIRED).then(|| self.heap[index as usize].at)
    }

    /// Whether every timer of a fiber has been taken back.
    pub(super) fn are_taken_back(&self) -> bool {
        self.vacant.len() + self.heap.len() == self.slots.len()
            && self.pending().all(|(_, alarm)| alarm.is_workers())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|node| node.at)
    }

    /// All timers that have not fired.
    pub(super) fn pending(&self) -> impl Iterator<Item = (Instant, Alarm)> {
        self.heap.iter().map(|node| (node.at, self.slots[node.id as usize].alarm))
    }

    /// Takes the earliest timer that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Alarm> {
        let first = *self.heap.first()?;
        if first.at > now {
            return None;
        }
        self.take_out(0);
        let slot = &mut self.slots[first.id as usize];
        slot.index = FIRED;
        if slot.alarm.is_workers() {
            self.vacant.push(first.id);
        }
        Some(slot.alarm)
    }

    fn take_out(&mut self, index: usize) {
        let Some(last) = self.heap.pop() else { return };
        if index < self.heap.len() {
            // The last node fills the gap, and may belong higher or lower.
            if index > 0 && last.is_before(&self.heap[(index - 1) / BRANCHES]) {
                self.rise(index, last);
            } else {
                self.sink(index, last);
            }
        }
    }

    /// Places a node at this position or above it.
    fn rise(&mut self, mut index: usize, node: Node) {
        while index > 0 {
            let parent = (index - 1) / BRANCHES;
            if !node.is_before(&self.heap[parent]) {
                break;
            }
            self.put(index, self.heap[parent]);
            index = parent;
        }
        self.put(index, node);
    }

    /// Places a node at this position or below it.
    fn sink(&mut self, mut index: usize, node: Node) {
        loop {
            let first = index * BRANCHES + 1;
            let children = first..(first + BRANCHES).min(self.heap.len());
            let least =
                children.min_by_key(|&child| (self.heap[child].at, self.heap[child].number));
            match least {
                Some(least) if self.heap[least].is_before(&node) => {
                    self.put(index, self.heap[least]);
                    index = least;
                }
                _ => break,
            }
        }
        self.put(index, node);
    }

    #[inline]
    fn put(&mut self, index: usize, node: Node) {
        self.heap[index] = node;
        self.slots[node.id as usize].index = index as u32;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fiber::Fiber;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    proptest! {
        /// After any sequence of steps the same timers fire as in a sorted map.
        #[test]
        fn timers_fire_in_order(steps in prop::collection::vec((0u8..4, 0u64..50), 1..300)) {
            let block = Fiber::new(0, 0);
            let alarm = Alarm::Wake(FiberRef::new(NonNull::from(&block)));
            let start = Instant::now();
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            let mut fired = Vec::new();
            for (number, (step, value)) in steps.into_iter().enumerate() {
                let at = start + Duration::from_millis(value);
                match step {
                    0 | 1 => drop(model.insert((at, number), timers.insert(at, alarm))),
                    2 => {
                        let nth = value as usize % model.len().max(1);
                        if let Some(&key) = model.keys().nth(nth) {
                            timers.remove(model.remove(&key).unwrap());
                        }
                    }
                    _ => {
                        while timers.pop_due(at).is_some() {
                            let ((due, _), id) = model.pop_first().unwrap();
                            prop_assert!(due <= at);
                            fired.push(id);
                        }
                    }
                }
                prop_assert_eq!(timers.next(), model.keys().next().map(|&(at, _)| at));
                if number % 7 == 0 {
                    fired.drain(..).for_each(|id| timers.remove(id));
                }
            }
            prop_assert_eq!(timers.heap.len(), model.len());
            prop_assert!(timers.slots.len() <= model.len() + timers.vacant.len() + fired.len());
        }
    }
}
