//! Which name has which colour and mark: the same in every drawing of a page.

use super::Plot;

/// As many as `style.css` has.
pub(super) const COLORS: usize = 8;

#[derive(Default)]
pub struct Key {
    names: Vec<String>,
}

impl Key {
    /// In the order in which they appear.
    pub fn of<'p>(plots: impl IntoIterator<Item = &'p Plot>) -> Key {
        let mut key = Key::default();
        for name in plots.into_iter().flat_map(Plot::names) {
            if key.number(name).is_none() {
                key.names.push(name.into());
            }
        }
        key
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|one| one == name)
    }

    /// The class of a colour.
    pub fn class(&self, name: &str) -> String {
        format!("c{}", self.number(name).unwrap_or(0) % COLORS)
    }

    /// Who comes again to a colour has another mark.
    pub fn mark(&self, name: &str) -> usize {
        let number = self.number(name).unwrap_or(0);
        number + number / COLORS
    }
}
