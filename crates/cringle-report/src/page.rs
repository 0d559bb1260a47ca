//! A report's content, independent of where it goes: the text for a terminal and the page for a
//! browser are made of the same titles, rows and sentences.

use super::plot::Plot;
use super::table;
use crate::machine::Machine;
use crate::units::figure;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page {
    /// The command: `bench disk`.
    pub bench: String,
    /// The question that the experiment answers, in a few words.
    pub title: String,
    pub machine: Machine,
    pub sections: Vec<Section>,
    pub notes: Vec<String>,
}

/// A table, the sentences that interpret it, and its plots.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    pub sentences: Vec<String>,
    pub plots: Vec<Plot>,
    pub table: Option<Rows>,
}

/// A table's cells, as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rows {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// The number of columns, from the left, that hold text. The others hold numbers.
    pub text_columns: usize,
    /// The row to highlight.
    pub best: Option<usize>,
}

/// A column of a table: its name, and what the cell of an item says.
pub type Column<'c, I> = (&'c str, &'c dyn Fn(&I) -> String);

impl Rows {
    /// Returns a table with a row for each item.
    pub fn of<'i, I: 'i>(
        columns: &[Column<'_, I>],
        items: impl IntoIterator<Item = &'i I>,
    ) -> Rows {
        let header: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
        let row = |item: &I| columns.iter().map(|(_, cell)| cell(item)).collect();
        Rows::new(&header, items.into_iter().map(row))
    }

    pub fn new(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Rows {
        let header = header.iter().map(|name| (*name).into()).collect();
        Rows { header, rows: rows.collect(), text_columns: 1, best: None }
    }
}

/// Formats a measurement for a cell; a dash stands for a missing one.
pub fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), figure)
}

/// Formats a ratio for a cell; a dash stands for a missing one.
pub fn ratio_cell(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}"))
}

/// Formats a page for a terminal.
pub fn text(page: &Page) -> String {
    let mut out = table::machine(&page.machine);
    for section in &page.sections {
        out.push_str(&format!("\n{}\n", section.title));
        if let Some(rows) = &section.table {
            out.push_str(&format!("{}\n", table::rows(rows)));
        }
        section.sentences.iter().for_each(|one| out.push_str(&wrapped(one, "")));
    }
    page.notes.iter().for_each(|note| out.push_str(&wrapped(note, "note: ")));
    out
}

/// Breaks a sentence into lines of at most 80 columns. `prefix` begins the first line, and the
/// others are indented by its width.
pub fn wrapped(sentence: &str, prefix: &str) -> String {
    const WIDTH: usize = 80;
    let indent = prefix.chars().count();
    let (mut out, mut width, mut is_first) = (String::from(prefix), indent, true);
    for word in sentence.split_whitespace() {
        let letters = word.chars().count();
        if is_first {
            is_first = false;
        } else if width + 1 + letters > WIDTH {
            out.push_str(&format!("\n{:indent$}", ""));
            width = indent;
        } else {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += letters;
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn sentences_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(40), "note: ");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        assert!(text.starts_with("note: word"));
        assert!(text.lines().nth(1).unwrap().starts_with("      word"));
    }
}
