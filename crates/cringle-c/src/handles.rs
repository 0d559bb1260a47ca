//! The engines of the process, by numbers with a generation.
//!
//! A number is never used again, so a stale one is refused. After `fork` the child has none of the
//! library's threads: it starts with an empty table, and recognises the parent's numbers by their
//! epoch.

use crate::engine::Engine;
use crate::error::Error;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The most engines that are open at once.
const MAX_ENGINES: usize = 1 << 16;

struct Slot {
    generation: u32,
    engine: Option<Arc<Engine>>,
}

type Table = RwLock<Vec<Slot>>;

/// The table, or null before the first `cringle_open` of the process. It is never freed.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Differs from that of each ancestor: the number of forks between the first process and this one,
/// or more, modulo 2¹⁶.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// In a child, forgets the parent's table: a thread that the child lacks may hold its lock.
extern "C" fn forget_in_child() {
    TABLE.store(ptr::null_mut(), Ordering::Release);
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

fn epoch() -> u16 {
    EPOCH.load(Ordering::Acquire) as u16
}

fn table() -> Option<&'static Table> {
    // SAFETY: null, or leaked by `table_or_new`.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

fn table_or_new() -> &'static Table {
    // No `Once`: a child of a fork at that time would wait for its end. Two threads may both
    // install the function; then a fork counts two epochs.
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHED.load(Ordering::Acquire) {
        // SAFETY: the function only stores to atomics. If the call fails, there is no memory for a
        // handler, and a child would use the parent's numbers, as if it had not forked.
        unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) };
        IS_WATCHED.store(true, Ordering::Release);
    }
    if let Some(table) = table() {
        return table;
    }
    let new = Box::into_raw(Box::new(Table::default()));
    let exchanged =
        TABLE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    if exchanged.is_err() {
        // SAFETY: another thread was first, so no other code has seen this one.
        drop(unsafe { Box::from_raw(new) });
    }
    table().expect("a table is never removed, except in a child")
}

/// The parts of a number: the generation, the epoch and the index.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parts {
    generation: u32,
    epoch: u16,
    index: u16,
}

impl Parts {
    fn of(number: u64) -> Parts {
        let [generation, epoch, index] = [number >> 32, number >> 16, number];
        Parts { generation: generation as u32, epoch: epoch as u16, index: index as u16 }
    }

    fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.epoch) << 16 | u64::from(self.index)
    }
}

/// Adds an engine and returns its number.
pub(crate) fn add(engine: Arc<Engine>) -> Result<u64, Error> {
    let mut slots = table_or_new().write().unwrap_or_else(PoisonError::into_inner);
    let free = slots.iter().position(|slot| slot.engine.is_none() && slot.generation < u32::MAX);
    let index = match free {
        Some(index) => index,
        None if slots.len() < MAX_ENGINES => {
            slots.push(Slot { generation: 0, engine: None });
            slots.len() - 1
        }
        None => return Err(Error::new(libc::EMFILE, "65536 engines are open: close some")),
    };
    let slot = &mut slots[index];
    slot.generation += 1;
    slot.engine = Some(engine);
    Ok(Parts { generation: slot.generation, epoch: epoch(), index: index as u16 }.number())
}

/// Returns the engine with this number.
pub(crate) fn get(number: u64) -> Result<Arc<Engine>, Error> {
    let parts = Parts::of(number);
    let Some(table) = table().filter(|_| parts.epoch == epoch()) else {
        return Err(unknown(parts));
    };
    let slots = table.read().unwrap_or_else(PoisonError::into_inner);
    let slot = slots.get(parts.index as usize).filter(|slot| slot.generation == parts.generation);
    slot.and_then(|slot| slot.engine.clone()).ok_or_else(|| unknown(parts))
}

/// Removes the engine with this number. Fails if another caller has removed it.
pub(crate) fn remove(number: u64) -> Result<(), Error> {
    let parts = Parts::of(number);
    let Some(table) = table().filter(|_| parts.epoch == epoch()) else {
        return Err(unknown(parts));
    };
    let mut slots = table.write().unwrap_or_else(PoisonError::into_inner);
    let slot = slots.get_mut(parts.index as usize);
    let removed =
        slot.filter(|slot| slot.generation == parts.generation).and_then(|slot| slot.engine.take());
    removed.map(drop).ok_or_else(|| unknown(parts))
}

#[cold]
fn unknown(parts: Parts) -> Error {
    if parts.generation != 0 && parts.epoch < epoch() {
        let text = "the engine was opened before `fork`, and its threads are in the parent: open \
                    another one in the child";
        return Error::new(libc::ESRCH, text);
    }
    let text = "no such engine: it is closed, or the number is not from cringle_open";
    Error::new(libc::EBADF, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_number_are_kept() {
        let parts = Parts { generation: 0x1234_5678, epoch: 0x9abc, index: 0xdef0 };
        assert_eq!(parts.number(), 0x1234_5678_9abc_def0);
        assert!(Parts::of(parts.number()) == parts);
    }
}
