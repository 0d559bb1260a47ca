//! Stores the output of each step on the host, so that an interrupted run can be resumed.
//!
//! There is one file for each kernel and step, with the lines of the machine's init after a line
//! that names the build of the tests.

use crate::Result;
use std::fs;
use std::path::PathBuf;

/// The stored results of one kernel.
pub(super) struct Results {
    directory: PathBuf,
    build: String,
    /// The lines of the current step.
    lines: Vec<String>,
}

impl Results {
    pub(super) fn new(directory: PathBuf, build: &str) -> Result<Results> {
        fs::create_dir_all(&directory)?;
        Ok(Results { directory, build: build.to_owned(), lines: Vec::new() })
    }

    /// Returns the lines of a step that an earlier or this run completed.
    pub(super) fn of(&self, step: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(step)).ok()
    }

    /// Removes the result of a step.
    pub(super) fn forget(&self, step: &str) -> Result<()> {
        match fs::remove_file(self.directory.join(step)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Takes a line of the machine's init, and stores the result of a step at its end.
    pub(super) fn hear(&mut self, line: &str) -> Result<()> {
        let words: Vec<_> = line.split(' ').take(3).collect();
        match words[..] {
            ["@@", "start", _] => {
                self.lines = vec![format!("@@ build {}", self.build), line.into()]
            }
            ["@@", "end" | "skip", step] => {
                self.lines.push(line.into());
                let half = self.directory.join("half");
                fs::write(&half, self.lines.join("\n") + "\n")?;
                fs::rename(half, self.directory.join(step))?;
            }
            _ => self.lines.push(line.into()),
        }
        Ok(())
    }
}
