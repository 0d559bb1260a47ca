//! Notes: warnings and remarks that a reader of the figures needs.

/// Sentences for the reader, each once.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// Adds a note, unless it was added before.
    pub(crate) fn add(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    pub(crate) fn all(&self) -> &[String] {
        &self.0
    }
}
