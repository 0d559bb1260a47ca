//! What all programs come to.

use super::program::{Outcome, Program};
use crate::Result;
use crate::counts::Counts;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) struct Report {
    /// The file that keeps how long each program took.
    times: PathBuf,
    seconds: BTreeMap<String, f64>,
    total: Counts,
    /// Why tests were skipped.
    reasons: Vec<String>,
    failed: Vec<String>,
}

impl Report {
    pub(super) fn open(logs: &Path) -> Report {
        let times = logs.join("seconds.json");
        let text = fs::read_to_string(&times).unwrap_or_default();
        let seconds = serde_json::from_str(&text).unwrap_or_default();
        let (reasons, failed) = (Vec::new(), Vec::new());
        Report { times, seconds, total: Counts::default(), reasons, failed }
    }

    /// Sorts the programs, so that those that took longest the last time start first. Unknown ones
    /// precede all.
    pub(super) fn sort(&self, programs: &mut [Program]) {
        let seconds =
            |program: &Program| self.seconds.get(&program.name).copied().unwrap_or(f64::INFINITY);
        programs.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    }

    /// Prints how a program ended.
    pub(super) fn add(&mut self, program: &Program, outcome: Outcome) {
        let Outcome { counts, reasons, failure, took } = outcome;
        let took = took.as_secs_f64();
        // Programs without a test of a chosen name would hide those that have one.
        if counts != Counts::default() || failure.is_some() {
            let sentence = sentence(&counts);
            println!("{:<32} {sentence} in {took:.1} s", program.name);
        }
        if let Some(failure) = failure {
            println!("---- {}: {failure}\n----", program.name);
            self.failed.push(program.name.clone());
        }
        self.seconds.insert(program.name.clone(), took);
        self.total.add(counts);
        self.reasons.extend(reasons);
    }

    /// Prints the sum of all. Returns whether nothing failed.
    pub(super) fn finish(mut self, took: Duration) -> Result<bool> {
        fs::write(&self.times, serde_json::to_string(&self.seconds)?)?;
        let mut text = String::new();
        self.reasons.sort();
        for same in self.reasons.chunk_by(|a, b| a == b) {
            let _ = writeln!(text, "skipped {}: {}", same.len(), same[0]);
        }
        for name in &self.failed {
            let _ = writeln!(text, "failed: {name}");
        }
        if let Some(why) = nothing(&self.total) {
            let _ = writeln!(text, "{why}");
        }
        // The last line is read by others: see `Counts::of_suite`.
        println!("\n{text}after {} s:\n{}", took.as_secs(), self.total);
        Ok(self.failed.is_empty() && self.total.passed > 0)
    }
}

/// Says why nothing was tested, if so.
fn nothing(total: &Counts) -> Option<&'static str> {
    match total {
        Counts { passed: 0, failed: 0, skipped: 0 } => Some("no test has one of these names"),
        Counts { passed: 0, failed: 0, .. } => Some("all of these tests were skipped"),
        _ => None,
    }
}

fn sentence(counts: &Counts) -> String {
    let Counts { passed, failed, skipped } = counts;
    let mut text = format!("{passed:>5} passed");
    for (number, what) in [(failed, "failed"), (skipped, "skipped")] {
        if *number > 0 {
            let _ = write!(text, ", {number} {what}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(passed: usize, failure: Option<&str>) -> Outcome {
        let counts = Counts { passed, failed: failure.iter().count(), ..Counts::default() };
        Outcome {
            counts,
            failure: failure.map(str::to_owned),
            took: Duration::from_secs(passed as u64),
            ..Outcome::default()
        }
    }

    #[test]
    fn the_longest_program_starts_first_the_next_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut report = Report::open(directory.path());
        report.add(&Program::named("a"), outcome(3, None));
        report.add(&Program::named("b"), outcome(9, None));
        assert!(report.finish(Duration::ZERO).unwrap());
        let mut programs = ["a", "b", "new"].map(Program::named);
        Report::open(directory.path()).sort(&mut programs);
        assert_eq!(programs.map(|program| program.name), ["new", "b", "a"]);
    }

    #[test]
    fn tests_that_were_all_skipped_do_exist() {
        let skipped = Counts { skipped: 1, ..Counts::default() };
        assert_eq!(nothing(&Counts::default()), Some("no test has one of these names"));
        assert_eq!(nothing(&skipped), Some("all of these tests were skipped"));
        assert_eq!(nothing(&Counts { passed: 1, ..skipped }), None);
        assert_eq!(nothing(&Counts { failed: 1, ..skipped }), None);
    }

    #[test]
    fn a_failure_or_no_test_at_all_fails_the_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut report = Report::open(directory.path());
        report.add(&Program::named("a"), outcome(3, None));
        report.add(&Program::named("b"), outcome(9, Some("why")));
        assert_eq!(report.total, Counts { passed: 12, failed: 1, skipped: 0 });
        assert!(!report.finish(Duration::ZERO).unwrap());
        assert!(!Report::open(directory.path()).finish(Duration::ZERO).unwrap());
    }
}
