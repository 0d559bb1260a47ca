//! Registered files and buffers, and queues, by numbers of 31 bits with a generation.
//!
//! The generations are those of the process: no other engine, and no other kind of value, has the
//! same number, until the numbers of its slot are used up, which are 32,767. A slot is used again
//! only when 1024 are free, the one that is free for the longest time first. So a number that one
//! engine has released is repeated after 1024 × 32,767 registrations, unless others use up the
//! numbers of its slot.
//!
//! A table is shared with each submission that is under way, so it is never changed: a change is
//! made to a copy, which shares the chunks that it leaves as they are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

const INDEX_BITS: u32 = 16;
/// The most values that are registered at once.
const MAX_REGISTERED: usize = 1 << INDEX_BITS;
const MAX_GENERATION: u16 = 0x7fff;
/// The free slots of which one is used again.
const MIN_FREE: usize = 1024;
/// The slots that are copied for a change of one of them.
const CHUNK: usize = 256;

/// The last generation of each slot, in any registry of the process.
static GENERATIONS: [AtomicU16; MAX_REGISTERED] = [const { AtomicU16::new(0) }; MAX_REGISTERED];

/// Returns the next generation of a slot. 0 is none.
fn next_generation(index: u32) -> u32 {
    let next = |last| last % MAX_GENERATION + 1;
    let last = &GENERATIONS[index as usize];
    let before = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    u32::from(next(before.unwrap_or_else(|last| last)))
}

/// Values by numbers ≥ 0.
#[derive(Clone, Debug)]
pub(crate) struct Registry<T> {
    chunks: Vec<Arc<Vec<Slot<T>>>>,
    /// The number of slots in the chunks.
    len: usize,
    /// The free slots, the one that is free for the longest time first.
    free: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { chunks: Vec::new(), len: 0, free: VecDeque::new() }
    }
}

/// Returns the index and the generation in a number.
fn parts_of(number: i32) -> Option<(u32, u32)> {
    let number = u32::try_from(number).ok()?;
    Some((number & (MAX_REGISTERED as u32 - 1), number >> INDEX_BITS))
}

impl<T> Registry<T> {
    /// Returns the value with this number.
    pub(crate) fn get(&self, number: i32) -> Option<&T> {
        let (index, generation) = parts_of(number)?;
        let slot = self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)?;
        slot.value.as_ref().filter(|_| slot.generation == generation)
    }

    /// Returns all values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.filter_map(|slot| slot.value.as_ref())
    }
}

impl<T: Clone> Registry<T> {
    fn slot(&mut self, index: u32) -> &mut Slot<T> {
        &mut Arc::make_mut(&mut self.chunks[index as usize / CHUNK])[index as usize % CHUNK]
    }

    /// Returns the index of a free slot at the end. `None` if there is no room.
    fn grow(&mut self) -> Option<u32> {
        let index = self.len;
        if index == MAX_REGISTERED {
            return None;
        }
        if index.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::default());
        }
        let slot = Slot { generation: 0, value: None };
        Arc::make_mut(&mut self.chunks[index / CHUNK]).push(slot);
        self.len += 1;
        Some(index as u32)
    }

    /// Registers a value and returns its number. `None` if there is no room.
    pub(crate) fn add(&mut self, value: T) -> Option<i32> {
        let grown = if self.free.len() < MIN_FREE { self.grow() } else { None };
        let index = grown.or_else(|| self.free.pop_front())?;
        let generation = next_generation(index);
        *self.slot(index) = Slot { generation, value: Some(value) };
        Some((generation << INDEX_BITS | index) as i32)
    }

    /// Removes the value with this number. Returns whether there was one.
    pub(crate) fn remove(&mut self, number: i32) -> bool {
        let Some((index, _)) = parts_of(number).filter(|_| self.get(number).is_some()) else {
            return false;
        };
        self.slot(index).value = None;
        self.free.push_back(index);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_number_names_nothing_and_is_not_repeated() {
        let mut registry = Registry::default();
        let first = ["a", "b"].map(|value| registry.add(value).unwrap());
        assert_eq!(first.map(|n| registry.get(n).copied()), [Some("a"), Some("b")]);
        assert!(registry.remove(first[0]));
        assert!(!registry.remove(first[0]));
        let second = registry.add("c").unwrap();
        assert_eq!((registry.get(first[0]), registry.get(second)), (None, Some(&"c")));
        assert!([-1, 0, i32::MIN, i32::MAX].iter().all(|&n| registry.get(n).is_none()));
        assert!([-1, 0, i32::MIN, i32::MAX].iter().all(|&n| !registry.remove(n)));
    }

    #[test]
    fn number_of_another_registry_names_nothing() {
        let (mut one, mut other) = (Registry::default(), Registry::default());
        let mut numbers = std::collections::HashSet::new();
        for _ in 0..100 {
            let (mine, theirs) = (one.add(1).unwrap(), other.add(2).unwrap());
            assert_eq!((one.get(theirs), other.get(mine)), (None, None));
            assert!(!one.remove(theirs));
            assert!(numbers.insert(mine) && numbers.insert(theirs));
        }
    }

    #[test]
    fn released_slot_waits_for_its_turn() {
        let mut registry = Registry::default();
        let keeper = registry.add(0).unwrap();
        let mut indexes = Vec::new();
        for _ in 0..3 * MIN_FREE {
            let number = registry.add(1).unwrap();
            assert!(registry.remove(number));
            indexes.push(parts_of(number).unwrap().0);
        }
        assert_eq!(indexes[..MIN_FREE], indexes[MIN_FREE..2 * MIN_FREE]);
        indexes.sort_unstable();
        indexes.dedup();
        assert_eq!((indexes.len(), registry.len), (MIN_FREE, MIN_FREE + 1));
        assert_eq!(registry.get(keeper), Some(&0));
    }

    #[test]
    fn copy_keeps_what_is_removed_from_the_other() {
        let mut registry = Registry::default();
        let numbers = [0; 2 * CHUNK].map(|value| registry.add(value).unwrap());
        let copy = registry.clone();
        assert!(registry.remove(numbers[CHUNK]));
        let later = registry.add(1).unwrap();
        assert_eq!((copy.get(numbers[CHUNK]), copy.get(later)), (Some(&0), None));
        assert_eq!((registry.get(numbers[CHUNK]), registry.get(later)), (None, Some(&1)));
        let shared = |at: usize| Arc::ptr_eq(&copy.chunks[at], &registry.chunks[at]);
        assert_eq!([shared(0), shared(1)], [true, false]);
    }

    #[test]
    fn full_registry_has_room_for_each_removed_value() {
        let mut registry = Registry::default();
        let numbers: Vec<i32> = (0..MAX_REGISTERED).map(|n| registry.add(n).unwrap()).collect();
        assert_eq!(registry.add(0), None);
        for &number in &numbers[CHUNK - 1..=CHUNK] {
            assert!(registry.remove(number));
        }
        let added = [registry.add(7).unwrap(), registry.add(8).unwrap()];
        assert_eq!(registry.add(0), None);
        assert_eq!(added.map(|n| registry.get(n).copied()), [Some(7), Some(8)]);
        assert_eq!(registry.get(numbers[MAX_REGISTERED - 1]), Some(&(MAX_REGISTERED - 1)));
    }
}
