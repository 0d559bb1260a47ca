//! Where results go besides standard output: the flags that every bench has.

use super::page::{self, Page};
use super::{file, html, is_stdout, print, save};
use crate::failure::Failure;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The trace that this process writes: no result may be written to it.
static RESERVED: OnceLock<PathBuf> = OnceLock::new();

/// Refuses this file to all results from now on.
pub fn reserve(path: &Path) {
    let _ = RESERVED.set(path.into());
}

/// Whether a file is the reserved one.
pub fn is_reserved(path: &Path) -> bool {
    RESERVED.get().is_some_and(|reserved| file::is_same(reserved, path))
}

#[derive(Args, Clone, Debug, Default)]
pub struct Outputs {
    /// Write the results as JSON; `-` is standard output, and nothing else on it.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a page for a browser: the machine, the command, tables and plots, all in one file; `-` is
    /// standard output, and nothing else on it.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write what would be on the page as data: `bench all` makes one page of all.
    #[arg(long, hide = true, value_name = "FILE")]
    page: Option<PathBuf>,
}

impl Outputs {
    /// Standard output is for data alone.
    pub fn take_stdout(&self) -> bool {
        is_stdout(self.json.as_deref()) || is_stdout(self.html.as_deref())
    }

    /// Before anything is measured: can it be written?
    pub fn check(&self) -> Result<(), Failure> {
        if self.html.is_some() && self.html == self.json {
            return Err(Failure::usage("--html and --json name the same file"));
        }
        for (flag, path) in [("--html", &self.html), ("--json", &self.json)] {
            if path.as_deref().is_some_and(is_reserved) {
                return Err(Failure::usage(format!("--trace and {flag} name the same file")));
            }
        }
        file::check("--json", self.json.as_deref())?;
        file::check("--html", self.html.as_deref())
    }

    /// Tells a person what is on the page, and the files what they are for.
    pub fn write(&self, value: &Value, page: &Page) -> Result<(), Failure> {
        self.write_as(value, page, || page::text(page))
    }

    /// The same with words of its own. What cannot be written keeps nobody else from what was found.
    pub fn write_as(
        &self,
        value: &Value,
        page: &Page,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let json = self.json.as_deref().map_or(Ok(()), |path| save(path, value));
        let html = self
            .html
            .as_deref()
            .map_or(Ok(()), |path| file::write("--html", path, &html::document(page, value)));
        let parts = self.page.as_deref().map_or(Ok(()), |path| {
            save(path, &serde_json::to_value(page).map_err(std::io::Error::from)?)
        });
        let printed = if self.take_stdout() { Ok(()) } else { print(&text()) };
        json.and(html).and(parts).and(printed)
    }
}
