//! The transactions: which row each updates, and by how much. They follow from the seed and their
//! number, so every rung performs the same ones.

use super::tree::{self, Tree};
use crate::content;

#[derive(Clone, Debug)]
pub(super) struct Workload {
    updates: Vec<Update>,
}

/// A transaction: adds `amount` to the row with this key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Update {
    row: u64,
    pub(super) key: u64,
    pub(super) amount: u64,
}

impl Workload {
    /// Chooses uniformly random rows.
    pub(super) fn new(tree: &Tree, transactions: usize, seed: u64) -> Workload {
        let mut rng = content::random(seed);
        let update = |_| {
            let row = rng.below(tree.rows());
            Update { row, key: tree.key(row), amount: rng.next() }
        };
        Workload { updates: (0..transactions).map(update).collect() }
    }

    pub(super) fn get(&self, index: usize) -> Option<Update> {
        self.updates.get(index).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.updates.len()
    }

    /// Returns the checksum of the tree after all updates, from a copy of its values in memory.
    pub(super) fn final_checksum(&self, tree: &Tree) -> u64 {
        let value = |row| tree::initial_value(tree.key(row));
        let mut values: Vec<u64> = (0..tree.rows()).map(value).collect();
        for update in &self.updates {
            let value = &mut values[update.row as usize];
            *value = value.wrapping_add(update.amount);
        }
        let of_row = |(row, value): (u64, u64)| tree::row_checksum(tree.key(row), value);
        (0..).zip(values).map(of_row).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_agrees_with_updated_pages() {
        let tree = Tree::within(30, 3);
        let workload = Workload::new(&tree, 1000, 9);
        let mut pages: Vec<Vec<u8>> = Vec::new();
        for page in 0..tree.pages() as u32 {
            let mut bytes = vec![0; tree::PAGE_BYTES];
            tree.fill(page, &mut bytes);
            pages.push(bytes);
        }
        for index in 0..workload.len() {
            let update = workload.get(index).unwrap();
            let leaf = tree::child(&pages[tree.root() as usize], update.key);
            let page = &mut pages[leaf as usize];
            assert!(tree::add(page, update.key, update.amount).is_some());
        }
        let leaves = &pages[..tree.leaves() as usize];
        let sum = leaves.iter().map(|leaf| tree::checksum(leaf)).fold(0, u64::wrapping_add);
        assert_eq!(sum, workload.final_checksum(&tree));
        assert_ne!(sum, Workload::new(&tree, 1000, 10).final_checksum(&tree));
    }
}
