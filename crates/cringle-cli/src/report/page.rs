//! What a bench has to tell, before it is known to whom: the text report and the page for a browser are
//! made of the same titles, rows and sentences.

use super::plot::Plot;
use super::{table, words};
use crate::machine::Machine;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Page {
    /// `bench disk`.
    pub(crate) bench: String,
    /// What it asks, in a few words.
    pub(crate) title: String,
    pub(crate) machine: Machine,
    pub(crate) sections: Vec<Section>,
    pub(crate) notes: Vec<String>,
}

/// A table with what it says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) sentences: Vec<String>,
    pub(crate) plots: Vec<Plot>,
    /// Those that not everybody looks at.
    pub(crate) more_plots: Option<(String, Vec<Plot>)>,
    pub(crate) table: Option<Rows>,
}

/// A table's cells, as text reports have them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rows {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// So many columns from the left are words.
    pub(crate) words: usize,
    /// The row to point out.
    pub(crate) best: Option<usize>,
}

impl Rows {
    pub(crate) fn new(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Rows {
        let header = header.iter().map(|name| (*name).into()).collect();
        Rows { header, rows: rows.collect(), words: 1, best: None }
    }
}

impl Section {
    pub(crate) fn all_plots(&self) -> impl Iterator<Item = &Plot> {
        let more = self.more_plots.iter().flat_map(|(_, plots)| plots);
        self.plots.iter().chain(more).filter(|plot| !plot.is_empty())
    }
}

/// For a terminal.
pub(crate) fn text(page: &Page) -> String {
    let mut out = table::machine(&page.machine);
    for section in &page.sections {
        out.push_str(&format!("\n{}\n", section.title));
        if let Some(rows) = &section.table {
            out.push_str(&format!("{}\n", table::rows(rows)));
        }
        section.sentences.iter().for_each(|one| out.push_str(&words::wrapped(one, "")));
    }
    page.notes.iter().for_each(|note| out.push_str(&words::wrapped(note, "note: ")));
    out
}
