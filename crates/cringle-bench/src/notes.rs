//! Notes: what a reader of the figures has to know besides.

/// Sentences for the reader, each once.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
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
