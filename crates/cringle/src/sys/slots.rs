//! Values by small numbers, which are used again.

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    all: Vec<Option<T>>,
    vacant: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { all: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> usize {
        match self.vacant.pop() {
            Some(slot) => {
                self.all[slot] = Some(value);
                slot
            }
            None => {
                self.all.push(Some(value));
                self.all.len() - 1
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        let value = self.all[slot].take();
        debug_assert!(value.is_some(), "a slot was vacated twice");
        self.vacant.push(slot);
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&T> {
        self.all.get(slot)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter().flatten()
    }

    pub(crate) fn taken(&self) -> usize {
        self.all.len() - self.vacant.len()
    }

    /// Whether no slot was ever taken.
    pub(crate) fn are_new(&self) -> bool {
        self.all.is_empty()
    }
}
