//! What every experiment is: a command line ([`Experiment`]) that gives a [`Report`], whose tables
//! have a [`Line`] for each subject that is measured.
//!
//! A new experiment is a module with a struct of arguments that implements [`Experiment`], and a
//! variant of [`Bench`](crate::Bench). Its `measure` fills the lines, round by round
//! ([`turns`](crate::rounds::turns)), and returns their figures as sections of a page and as JSON.

use crate::latency::Latencies;
use clap::ValueEnum;
use cringle_report::failure::Failure;
use cringle_report::machine::{Machine, storage::Storage};
use cringle_report::page::{Page, Section};
use cringle_report::plot::{Plot, Row};
use cringle_report::{Outputs, SCHEMA, stats};
use serde_json::{Map, Value, json};
use std::path::Path;

/// A subcommand of `bench`.
pub(crate) trait Experiment {
    /// Checks what clap cannot check.
    fn validate(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Does the work of another process of the experiment, instead of the experiment, if the
    /// command line asks for it.
    fn assist(&self) -> Option<Result<(), Failure>> {
        None
    }

    /// Runs the experiment. The first failure ends it: unusable input, or a wrong result.
    fn measure(&self) -> Result<Report, Failure>;
}

/// What an experiment has found.
pub(crate) struct Report {
    pub(crate) page: Page,
    pub(crate) json: Value,
    /// The text for a terminal, if it is not that of the page.
    pub(crate) text: Option<String>,
    /// The failure of a part of the experiment, which ends the command after the report.
    pub(crate) outcome: Result<(), Failure>,
}

impl Report {
    /// `name` is the command (`disk`), and `fields` are those of the JSON that only this experiment
    /// has.
    pub(crate) fn new(
        name: &str,
        title: impl Into<String>,
        machine: Machine,
        sections: Vec<Section>,
        notes: Notes,
        fields: Value,
    ) -> Report {
        let head = json!({
            "schema": SCHEMA,
            "benchmark": name.replace(" --", "-"),
            "machine": machine,
        });
        let tail = json!({ "notes": notes.0 });
        let fields = [head, fields, tail].into_iter().filter_map(|part| match part {
            Value::Object(fields) => Some(fields),
            _ => None,
        });
        Report {
            json: fields.flatten().collect::<Map<_, _>>().into(),
            page: Page {
                bench: format!("bench {name}"),
                title: title.into(),
                machine,
                sections,
                notes: notes.0,
            },
            text: None,
            outcome: Ok(()),
        }
    }

    /// Writes the report. The failure of a part comes after that of a file.
    pub(crate) fn write(self, outputs: &Outputs) -> Result<(), Failure> {
        let Report { page, json, text, outcome } = self;
        outputs.write(&json, &page, text).and(outcome)
    }
}

/// Returns all sentences of some sections, for the JSON.
pub(crate) fn words(sections: &[Section]) -> Vec<&String> {
    sections.iter().flat_map(|section| &section.sentences).collect()
}

/// Warnings and remarks for the reader of the figures, each once.
#[derive(Default)]
pub(crate) struct Notes(pub(crate) Vec<String>);

impl Notes {
    /// Adds a note, unless it was added before.
    pub(crate) fn add(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    /// Notes that the files at `path` are in memory, if they are, and what that `means`.
    pub(crate) fn if_in_memory(&mut self, storage: &Storage, path: &Path, means: &str) {
        if let Some(memory) = storage.in_memory() {
            self.add(format!("{} is {memory}: {means}", path.display()));
        }
    }
}

/// What has a name on the command line, in tables and in messages.
pub(crate) trait Named {
    fn name(&self) -> String;
}

impl<T: ValueEnum> Named for T {
    fn name(&self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }
}

/// A row of a table: what was measured, and how.
#[derive(Clone)]
pub struct Line<K, S> {
    pub subject: K,
    /// One for each measured round, in order.
    pub(crate) samples: Vec<S>,
    /// The latencies of all samples, if the experiment times operations.
    pub(crate) latencies: Latencies,
}

impl<K, S> Line<K, S> {
    pub(crate) fn new(subject: K) -> Line<K, S> {
        Line { subject, samples: Vec::new(), latencies: Latencies::new() }
    }

    /// Returns a figure of each sample that has it.
    pub(crate) fn values<V: Into<Option<f64>>>(&self, of: impl Fn(&S) -> V) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| of(sample).into()).collect()
    }

    /// Returns the median of a figure, or `None` if no sample has it.
    pub(crate) fn median<V: Into<Option<f64>>>(&self, of: impl Fn(&S) -> V) -> Option<f64> {
        stats::median(self.values(of))
    }

    /// Returns the median of a figure that every sample has.
    pub(crate) fn figure(&self, of: impl Fn(&S) -> f64) -> f64 {
        self.median(of).unwrap_or(f64::NAN)
    }

    /// Returns the lowest and the highest value of a figure that every sample has.
    pub(crate) fn range(&self, of: impl Fn(&S) -> f64) -> (f64, f64) {
        stats::range(self.values(of)).unwrap_or((f64::NAN, f64::NAN))
    }
}

/// The lines of one case, for example of one number of connections.
pub(crate) struct Table<C, K, S> {
    pub(crate) case: C,
    pub(crate) lines: Vec<Line<K, S>>,
}

impl<C, K, S> Table<C, K, S> {
    pub(crate) fn new(case: C, subjects: impl IntoIterator<Item = K>) -> Table<C, K, S> {
        Table { case, lines: subjects.into_iter().map(Line::new).collect() }
    }

    /// Returns every line with its table.
    pub(crate) fn lines_of(tables: &[Self]) -> impl Iterator<Item = (&Self, &Line<K, S>)> {
        tables.iter().flat_map(|table| table.lines.iter().map(move |line| (table, line)))
    }
}

/// Returns two subjects with different values of what must be the same in all samples that have it.
pub(crate) fn disagreement<K, S, V: PartialEq>(
    lines: &[Line<K, S>],
    of: impl Fn(&S) -> Option<V>,
) -> Option<[(&K, V); 2]> {
    let of_line = |line| {
        let Line { subject, samples, .. }: &Line<K, S> = line;
        samples.iter().filter_map(|sample| Some((subject, of(sample)?))).collect::<Vec<_>>()
    };
    let mut all = lines.iter().flat_map(of_line);
    let first = all.next()?;
    let other = all.find(|(_, value)| *value != first.1)?;
    Some([first, other])
}

/// Plots a figure of every round of each line.
pub(crate) fn plot<'l, K: Named + 'l, S: 'l, V: Into<Option<f64>>>(
    title: &str,
    unit: &str,
    lines: impl IntoIterator<Item = &'l Line<K, S>>,
    of: impl Fn(&S) -> V,
) -> Plot {
    let row = |line: &Line<K, S>| Row { label: line.subject.name(), samples: line.values(&of) };
    Plot::rows(title, unit, lines.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_added_once() {
        let mut notes = Notes::default();
        notes.add("x");
        notes.add("x");
        assert_eq!(notes.0, ["x"]);
    }

    #[test]
    fn figures_are_medians_of_the_samples_that_have_them() {
        let mut line = Line::new("subject");
        line.samples = vec![Some(1.0), None, Some(3.0), Some(8.0)];
        assert_eq!(line.median(|sample| *sample), Some(3.0));
        assert_eq!(line.median(|_| None), None);
        assert_eq!(line.figure(|sample| sample.unwrap_or(0.0)), 2.0);
        assert_eq!(line.range(|sample| sample.unwrap_or(0.0)), (0.0, 8.0));
    }
}
