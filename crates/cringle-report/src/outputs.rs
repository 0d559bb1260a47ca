//! `--json` and `--html`: the files that every experiment can write its results to; `--quiet`.

use super::page::{self, Page};
use super::{file, html, is_stdout, print, save};
use crate::failure::Failure;
use clap::Args;
use cringle_command::outputs::CommandFiles;
use serde_json::Value;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default)]
pub struct Outputs {
    /// Write the results as JSON; `-` means standard output, which then has nothing else.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write one HTML file with the machine, the command, tables and plots; `-` means standard
    /// output, which then has nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the parts of the page as data, from which `bench all` makes one page.
    #[arg(long, hide = true, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Show no progress bar.
    #[arg(short, long)]
    pub quiet: bool,
}

impl Outputs {
    /// Whether a file of results goes to standard output, which must have nothing else then.
    pub fn use_stdout(&self) -> bool {
        is_stdout(self.json.as_deref()) || is_stdout(self.html.as_deref())
    }

    /// Returns the files, to be checked before anything is measured.
    pub fn files(&self) -> CommandFiles {
        let page = self.page.as_deref();
        let files = CommandFiles::default().result("--json", self.json.as_deref());
        files.result("--html", self.html.as_deref()).result("--page", page)
    }

    /// Writes the files, and prints the text, or that of the page, unless a file uses standard
    /// output. Writes all outputs even if one fails, and returns the first failure.
    pub fn write(&self, value: &Value, page: &Page, text: Option<String>) -> Result<(), Failure> {
        let json = self.json.as_deref().map_or(Ok(()), |path| save(path, value));
        let html = self
            .html
            .as_deref()
            .map_or(Ok(()), |path| file::write("--html", path, &html::document(page, value)));
        let parts = self.page.as_deref().map_or(Ok(()), |path| {
            save(path, &serde_json::to_value(page).map_err(std::io::Error::from)?)
        });
        let text = || text.unwrap_or_else(|| page::text(page));
        let printed = if self.use_stdout() { Ok(()) } else { print(&text()) };
        json.and(html).and(parts).and(printed)
    }
}
