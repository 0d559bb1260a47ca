//! What each step said, kept on the host as it comes: a run that was broken off can be gone on with.
//!
//! One file for each kernel and step, with the lines of the machine's init as they are, and before them
//! of what the tests were built.

use crate::Result;
use std::fs;
use std::path::PathBuf;

pub(super) struct Results {
    place: PathBuf,
    build: String,
    /// Of the step that is under way.
    lines: Vec<String>,
}

impl Results {
    pub(super) fn new(place: PathBuf, build: &str) -> Result<Results> {
        fs::create_dir_all(&place)?;
        Ok(Results { place, build: build.to_owned(), lines: Vec::new() })
    }

    /// The lines of a step that came to its end, whenever that was.
    pub(super) fn of(&self, step: &str) -> Option<String> {
        fs::read_to_string(self.place.join(step)).ok()
    }

    pub(super) fn forget(&self, step: &str) -> Result<()> {
        match fs::remove_file(self.place.join(step)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn hear(&mut self, line: &str) -> Result<()> {
        let words: Vec<_> = line.split(' ').take(3).collect();
        match words[..] {
            ["@@", "start", _] => {
                self.lines = vec![format!("@@ build {}", self.build), line.into()]
            }
            ["@@", "end" | "skip", step] => {
                self.lines.push(line.into());
                let half = self.place.join("half");
                fs::write(&half, self.lines.join("\n") + "\n")?;
                fs::rename(half, self.place.join(step))?;
            }
            _ => self.lines.push(line.into()),
        }
        Ok(())
    }
}
