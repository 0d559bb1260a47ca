//! The guards that fibers hold.
//!
//! A guard is not `Send`, so it stays within the family of the fiber that took it; so does this
//! list, which is a thread-local. Any fiber of the family may drop the guard, and finds the entry
//! by its number. The fiber that took it has a flag, which may remain set after its guards are
//! gone: the next suspension clears it.

use super::{Compiled, Site, is_active, is_first, place, report};
use crate::fiber::{FiberRef, RunState};
use crate::label::Origin;
use crate::wait_target::FiberTag;
use crate::worker::{Current, Worker};
use cringle_sys as sys;
use cringle_tls::ThreadLocals;
use std::cell::RefCell;

/// The kinds of guards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Borrow,
    BorrowMut,
    Lock,
}

impl Kind {
    fn key(self) -> &'static str {
        match self {
            Kind::Borrow => "borrow",
            Kind::BorrowMut => "mutable borrow",
            Kind::Lock => "lock",
        }
    }

    /// What the fiber has taken.
    fn taken(self) -> &'static str {
        match self {
            Kind::Borrow => "a borrow of a `detect::RefCell`, taken",
            Kind::BorrowMut => "a mutable borrow of a `detect::RefCell`, taken",
            Kind::Lock => "the lock of a `detect::Mutex`, taken",
        }
    }

    /// What happens to another fiber, and what to do.
    fn advice(self) -> &'static str {
        match self {
            Kind::Borrow => "panics if it borrows mutably; end the borrow before the wait",
            Kind::BorrowMut => "panics if it borrows; end the borrow before the wait",
            Kind::Lock => {
                "blocks the worker for ever if it locks; drop the guard before the wait, or use \
                 `cringle::sync::Mutex`"
            }
        }
    }
}

struct Entry {
    number: u64,
    kind: Kind,
    /// The address of the cell or lock.
    object: usize,
    place: Origin,
    fiber: FiberTag,
    is_reported: bool,
}

/// The most guards of a family that are known.
const MOST_ENTRIES: usize = 1024;

/// The guards of one family, in the order in which they were taken.
struct Held {
    last: u64,
    entries: Vec<Entry>,
}

impl Held {
    /// Adds a guard, and returns its number.
    fn add(&mut self, kind: Kind, object: usize, place: Origin, fiber: FiberTag) -> u64 {
        // Guards that were leaked have entries for ever, which each suspension looks at. So the
        // oldest entries are forgotten, and at worst a report of theirs is missing.
        if self.entries.len() == MOST_ENTRIES {
            self.entries.drain(..MOST_ENTRIES / 2);
        }
        self.last += 1;
        let number = self.last;
        self.entries.push(Entry { number, kind, object, place, fiber, is_reported: false });
        number
    }
}

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Held { last: 0, entries: Vec::new() }) };
}

/// The record of a guard, which is a part of it. It has no size where the detector is not compiled.
pub struct Record {
    /// 0 if no fiber took the guard.
    number: Compiled<u64>,
}

impl Record {
    /// Records that the calling fiber has taken a guard of `object` at `place`.
    #[inline]
    pub fn new(kind: Kind, object: *const (), place: Origin) -> Record {
        let number = if is_active() { enter(kind, object.addr(), place) } else { 0 };
        Record::of(number)
    }

    /// The record of a second guard of the same object.
    #[inline]
    pub fn again(&self, place: Origin) -> Record {
        Record::of(self.number.get().map_or(0, |&number| enter_again(number, place)))
    }

    #[inline(always)]
    fn of(number: u64) -> Record {
        Record { number: Compiled::new(number) }
    }
}

impl Drop for Record {
    #[inline]
    fn drop(&mut self) {
        if let Some(&number) = self.number.get()
            && number != 0
        {
            leave(number);
        }
    }
}

fn enter_again(number: u64, place: Origin) -> u64 {
    let mut found = None;
    for_each(|entry| {
        if entry.number == number {
            found = Some((entry.kind, entry.object));
        }
    });
    found.map_or(0, |(kind, object)| enter(kind, object, place))
}

fn enter(kind: Kind, object: usize, place: Origin) -> u64 {
    let Some(Current { fiber, .. }) = Current::get() else { return 0 };
    let entered = with_held(|held| held.add(kind, object, place, fiber.tag()));
    let number = entered.unwrap_or(0);
    if number != 0 {
        fiber.set_holds_guards(true);
    }
    number
}

fn leave(number: u64) {
    with_held(|held| {
        // The last one that was taken is usually the first to be dropped.
        if let Some(at) = held.entries.iter().rposition(|entry| entry.number == number) {
            held.entries.remove(at);
        }
    });
}

/// Calls `f` with the guards of the calling family. `None` while its thread-locals end, and in the
/// program's allocator, which the list itself may call.
fn with_held<R>(f: impl FnOnce(&mut Held) -> R) -> Option<R> {
    let result = HELD.try_with(|held| held.try_borrow_mut().ok().map(|mut held| f(&mut held)));
    result.ok().flatten()
}

/// Calls `f` with each entry of the calling family.
fn for_each(f: impl FnMut(&mut Entry)) {
    with_held(|held| held.entries.iter_mut().for_each(f));
}

impl Current {
    /// Reports the guards that the running fiber holds, which is about to be suspended.
    #[cold]
    #[inline(never)]
    pub(crate) fn report_held_guards(self) {
        let tag = self.fiber.tag();
        // No other fiber can reach a cell of this one's.
        let is_alone = self.is_alone_in_family();
        let (mut holds, mut new) = (false, Vec::new());
        for_each(|entry| {
            holds |= entry.fiber == tag;
            if entry.fiber != tag || entry.is_reported {
                return;
            }
            // Locks of std and libc that a program interposes suspend only their fiber.
            if is_alone && (entry.kind != Kind::Lock || sys::is_interposed()) {
                return;
            }
            entry.is_reported = true;
            new.push((entry.kind, entry.place));
        });
        self.fiber.set_holds_guards(holds);
        for (kind, taken) in new {
            if is_first(kind.key(), Site::of(taken)) {
                report(format_args!(
                    "{} holds {} at {taken}, while it {}; another fiber of worker {} {}",
                    self.fiber.origins().in_full(),
                    kind.taken(),
                    self.describe_own_wait(),
                    self.worker.index(),
                    kind.advice(),
                ));
            }
        }
    }

    /// Whether no other fiber has the thread-locals of this one, and thus what is not `Send`, or
    /// none of those runs while this one waits.
    pub(crate) fn is_alone_in_family(self) -> bool {
        let family = self.fiber.family();
        let is_alone = family.members() == 1 || family.holder() == Some(self.fiber);
        is_alone && self.worker.families.mode() == ThreadLocals::Private
    }

    /// The same for the running fiber, which is about to be suspended.
    pub(crate) fn describe_own_wait(self) -> String {
        with_place(self.fiber, self.place_of_caller())
    }

    /// The place at which the running fiber calls the library, if there is room to look it up.
    pub fn place_of_caller(self) -> Option<String> {
        if self.fiber.has_room_for_place() { place::of_caller() } else { None }
    }
}

/// Describes who holds a cell that the calling fiber cannot borrow. `None` if no fiber of its
/// family does.
#[cold]
pub fn describe_borrows(object: *const ()) -> Option<String> {
    let worker = Worker::here()?;
    let mut found = Vec::new();
    for_each(|entry| {
        if entry.object == object.addr() && entry.kind != Kind::Lock {
            found.push((entry.fiber, entry.place));
        }
    });
    let describe = |(tag, place)| match worker.table.tagged(tag) {
        None => format!("at {place}, by a fiber that has ended"),
        Some(fiber) if Current::identity() == Some(fiber) => {
            format!("at {place}, by the same fiber")
        }
        Some(fiber) => {
            let (who, wait) = (fiber.origins().in_full(), describe_wait(fiber));
            format!("at {place}, by {who}, which {wait}")
        }
    };
    let found: Vec<String> = found.into_iter().map(describe).collect();
    (!found.is_empty()).then(|| found.join("; and "))
}

/// What a suspended fiber of this worker does, and where: "waits for a timer at src/main.rs:9:5".
pub fn describe_wait(fiber: FiberRef) -> String {
    let has_room = Current::identity().is_some_and(|running| running.has_room(place::STACK_BYTES));
    let backtrace = || Worker::here()?.foreground.backtrace_of(fiber);
    let backtrace = if has_room { backtrace() } else { None };
    with_place(fiber, backtrace.and_then(|backtrace| place::first(&backtrace)))
}

fn with_place(fiber: FiberRef, place: Option<String>) -> String {
    let wait = match fiber.state() {
        RunState::Waiting(wait) => format!("waits for {}", wait.describe()),
        RunState::Runnable | RunState::Vacant => "yields".to_owned(),
    };
    match place {
        Some(place) => format!("{wait} at {place}"),
        None => wait,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::Location;

    #[test]
    fn leaked_guards_are_forgotten() {
        let mut held = Held { last: 0, entries: Vec::new() };
        let add = |_| held.add(Kind::Lock, 8, Location::caller(), FiberTag::of_number(1));
        let numbers: Vec<u64> = (0..5 * MOST_ENTRIES).map(add).collect();
        assert!(numbers.iter().copied().eq(1..=5 * MOST_ENTRIES as u64));
        assert!(held.entries.len() <= MOST_ENTRIES);
        assert_eq!(held.entries.last().map(|entry| entry.number), numbers.last().copied());
    }
}
