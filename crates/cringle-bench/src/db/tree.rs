//! The B-tree: what its pages contain, how a key is found, and what an update changes.
//!
//! A page has 4 KiB. A leaf holds rows of 128 bytes: a key, a value, and filler that follows from
//! the key. An inner page holds the first key of each child, and the child's page number. The set
//! of keys is fixed, so no page is ever split. Leaves are the first pages of the file, the root is
//! the last one.
//!
//! An update adds to a value. Additions commute, so the final tree does not depend on the order in
//! which fibers perform them.

use crate::content::{GOLDEN, scramble};
use std::collections::HashMap;

pub(super) const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 64;
const ROW_BYTES: usize = 128;
/// A first key and a page number.
const CHILD_BYTES: usize = 16;
const ROWS: u64 = ((PAGE_BYTES - HEADER_BYTES) / ROW_BYTES) as u64;
const FANOUT: u64 = ((PAGE_BYTES - HEADER_BYTES) / CHILD_BYTES) as u64;

/// The shape of a tree.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// From the leaves to the root, which is alone in its level.
    levels: Vec<Level>,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    start: u64,
    count: u64,
}

impl Tree {
    /// Returns the largest tree of at most `pages` pages, with two levels or more.
    pub(super) fn within(pages: u64, seed: u64) -> Tree {
        let mut leaves = pages.saturating_sub(1).max(1);
        loop {
            let levels = levels(leaves);
            let total: u64 = levels.iter().map(|level| level.count).sum();
            if total <= pages || leaves == 1 {
                return Tree { levels, seed };
            }
            leaves -= total - pages;
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.levels.iter().map(|level| level.count).sum()
    }

    pub(super) fn leaves(&self) -> u64 {
        self.levels[0].count
    }

    pub(super) fn rows(&self) -> u64 {
        self.leaves() * ROWS
    }

    pub(super) fn root(&self) -> u32 {
        (self.pages() - 1) as u32
    }

    /// The number of inner pages between the start of a search and its leaf.
    pub(super) fn inner_levels(&self) -> usize {
        self.levels.len() - 1
    }

    /// Returns the key of a row. Keys are in the order of the rows, with irregular gaps.
    pub(super) fn key(&self, row: u64) -> u64 {
        row << 16 | scramble(self.seed ^ row) & 0xFFFF
    }

    /// Writes the initial content of a page.
    pub(super) fn fill(&self, page: u32, bytes: &mut [u8]) {
        let number = u64::from(page);
        let place = self.levels.iter().position(|level| number < level.start + level.count);
        let height = place.expect("the page is one of the tree");
        let index = number - self.levels[height].start;
        bytes.fill(0);
        put(bytes, 0, number);
        if height == 0 {
            put(bytes, 8, ROWS);
            for (slot, row) in (index * ROWS..(index + 1) * ROWS).enumerate() {
                let key = self.key(row);
                let start = HEADER_BYTES + slot * ROW_BYTES;
                put(bytes, start, key);
                put(bytes, start + 8, initial_value(key));
                for offset in (16..ROW_BYTES).step_by(8) {
                    put(bytes, start + offset, scramble(key ^ offset as u64));
                }
            }
            return;
        }
        let below = self.levels[height - 1];
        let children = index * FANOUT..((index + 1) * FANOUT).min(below.count);
        put(bytes, 8, children.end - children.start);
        let rows_of_child = ROWS * FANOUT.pow(height as u32 - 1);
        for (slot, child) in children.enumerate() {
            let start = HEADER_BYTES + slot * CHILD_BYTES;
            put(bytes, start, self.key(child * rows_of_child));
            put(bytes, start + 8, below.start + child);
        }
    }
}

fn levels(leaves: u64) -> Vec<Level> {
    let mut levels = vec![Level { start: 0, count: leaves }];
    loop {
        let last = levels[levels.len() - 1];
        if last.count == 1 && levels.len() > 1 {
            return levels;
        }
        levels.push(Level { start: last.start + last.count, count: last.count.div_ceil(FANOUT) });
    }
}

/// Returns the page below an inner page that leads to `key`.
#[inline]
pub(super) fn child(bytes: &[u8], key: u64) -> u32 {
    let slot = slots_up_to(bytes, CHILD_BYTES, key).saturating_sub(1);
    get(bytes, HEADER_BYTES + slot * CHILD_BYTES + 8) as u32
}

/// Adds to the value of a row of a leaf. Returns the new value, or `None` if the leaf has no such
/// key.
#[inline]
pub(super) fn add(bytes: &mut [u8], key: u64, amount: u64) -> Option<u64> {
    let slot = slots_up_to(bytes, ROW_BYTES, key).saturating_sub(1);
    let start = HEADER_BYTES + slot * ROW_BYTES;
    if get(bytes, start) != key {
        return None;
    }
    let value = get(bytes, start + 8).wrapping_add(amount);
    put(bytes, start + 8, value);
    Some(value)
}

/// Sets the values of the rows of a leaf that `values` has.
pub(super) fn set_values(bytes: &mut [u8], values: &HashMap<u64, u64>) {
    for slot in 0..get(bytes, 8).min(ROWS) {
        let start = HEADER_BYTES + slot as usize * ROW_BYTES;
        if let Some(value) = values.get(&get(bytes, start)) {
            put(bytes, start + 8, *value);
        }
    }
}

/// Returns the number of entries whose key is at most `key`, by binary search.
#[inline]
fn slots_up_to(bytes: &[u8], stride: usize, key: u64) -> usize {
    let (mut low, mut high) = (0, get(bytes, 8) as usize);
    while low < high {
        let middle = low.midpoint(high);
        if get(bytes, HEADER_BYTES + middle * stride) <= key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the number that a page has in its header.
#[inline]
pub(super) fn number(bytes: &[u8]) -> u64 {
    get(bytes, 0)
}

/// Returns the checksum of a leaf. The checksum of a tree is the sum over its leaves.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let row = |slot: u64| {
        let start = HEADER_BYTES + slot as usize * ROW_BYTES;
        row_checksum(get(bytes, start), get(bytes, start + 8))
    };
    (0..get(bytes, 8).min(ROWS)).map(row).fold(0, u64::wrapping_add)
}

/// Returns what a row contributes to the checksum.
pub(super) fn row_checksum(key: u64, value: u64) -> u64 {
    scramble(scramble(key).wrapping_add(value.wrapping_mul(GOLDEN)))
}

/// The value of a row before the first update.
pub(super) fn initial_value(key: u64) -> u64 {
    scramble(!key)
}

fn get(bytes: &[u8], at: usize) -> u64 {
    crate::content::head(&bytes[at..])
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(tree: &Tree, number: u32) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        tree.fill(number, &mut bytes);
        bytes
    }

    #[test]
    fn every_key_is_found_in_its_leaf() {
        for pages in [2, 3, 100, 254, 255, 600, 64_000] {
            let tree = Tree::within(pages, 7);
            assert!(tree.pages() <= pages && tree.pages() + 2 >= pages, "{tree:?}");
            let step = (tree.rows() / 500).max(1) as usize;
            for row in (0..tree.rows()).step_by(step).chain([tree.rows() - 1]) {
                let mut at = tree.root();
                for _ in 0..tree.inner_levels() {
                    at = child(&page(&tree, at), tree.key(row));
                }
                assert_eq!(u64::from(at), row / ROWS, "row {row} of {tree:?}");
                assert!(add(&mut page(&tree, at), tree.key(row), 1).is_some());
                let other = tree.key(row) ^ 1 << 15;
                assert_eq!(add(&mut page(&tree, at), other, 1), None);
            }
        }
    }

    #[test]
    fn an_update_changes_the_checksum_in_any_order() {
        let tree = Tree::within(10, 1);
        let mut bytes = page(&tree, 0);
        let before = checksum(&bytes);
        let key = tree.key(3);
        assert_eq!(add(&mut bytes, key, 5), Some(initial_value(key).wrapping_add(5)));
        let last = add(&mut bytes, key, 9).unwrap();
        let mut other = page(&tree, 0);
        assert!(add(&mut other, key, 9).is_some() && add(&mut other, key, 5).is_some());
        assert_ne!(checksum(&bytes), before);
        assert_eq!(checksum(&bytes), checksum(&other));
        let mut replayed = page(&tree, 0);
        set_values(&mut replayed, &HashMap::from([(key, last), (tree.key(40), 1)]));
        assert_eq!(replayed, bytes);
    }
}
