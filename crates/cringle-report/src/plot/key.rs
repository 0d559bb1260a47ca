//! The colour and the mark of each name, the same in every drawing of a page.

use super::Plot;

/// The number of colours in `style.css`.
pub(super) const COLORS: usize = 8;

#[derive(Default)]
pub struct Key {
    names: Vec<String>,
}

impl Key {
    /// Numbers the names of all plots in the order in which they appear.
    pub fn of<'p>(plots: impl IntoIterator<Item = &'p Plot>) -> Key {
        let mut key = Key::default();
        for name in plots.into_iter().flat_map(Plot::names) {
            if key.number(name).is_none() {
                key.names.push(name.into());
            }
        }
        key
    }

    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|one| one == name)
    }

    /// Returns the CSS class of a name's colour.
    pub(super) fn class(&self, name: &str) -> String {
        format!("c{}", self.number(name).unwrap_or(0) % COLORS)
    }

    /// Returns the number of a name's mark. Names that share a colour have different marks.
    pub(super) fn mark(&self, name: &str) -> usize {
        let number = self.number(name).unwrap_or(0);
        number + number / COLORS
    }
}
