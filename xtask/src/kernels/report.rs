//! Sums up the output of the machine's init.

use super::steps::Step;
use crate::counts::Counts;
use crate::suite::Lines;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

/// What the steps have come to on one kernel.
pub(super) struct Report {
    /// What each step has printed; `None` before it starts.
    steps: BTreeMap<String, Option<Lines>>,
    /// What the init reports of the machine.
    notes: Vec<String>,
    /// Binaries that were killed or died.
    ended: Vec<String>,
    /// The builds of the steps.
    builds: BTreeSet<String>,
    command_status: Option<String>,
    /// Whether to print progress.
    loud: bool,
}

impl Report {
    pub(super) fn new(steps: &[Step]) -> Report {
        Report {
            steps: steps.iter().map(|step| (step.name.clone(), None)).collect(),
            notes: Vec::new(),
            ended: Vec::new(),
            builds: BTreeSet::new(),
            command_status: None,
            loud: std::io::IsTerminal::is_terminal(&std::io::stderr()),
        }
    }

    /// Takes a line of the machine's init.
    pub(super) fn hear(&mut self, line: &str) {
        if let Some(words) = line.strip_prefix("@@ ") {
            return self.hear_init(words);
        }
        let Some((name, words)) = line.split_once("| ") else {
            return eprintln!("from the machine: {line}");
        };
        if name == "command" {
            println!("{words}");
        } else if let Some(Some(lines)) = self.steps.get_mut(name) {
            lines.add(format!("{words}\n").as_bytes(), Instant::now());
        }
    }

    fn hear_init(&mut self, words: &str) {
        match words.split_once(' ') {
            Some(("start", name)) => self.hear_start(name),
            Some(("ring", words)) => self.notes.push(words.to_owned()),
            Some(("polled", words)) => self.notes.push(format!("polled queues: {words}")),
            Some(("denied", words)) => self.notes.push(format!("io_uring_disabled={words}")),
            Some(("status", status)) => self.command_status = Some(status.to_owned()),
            Some(("build", build)) => drop(self.builds.insert(build.to_owned())),
            Some(("end", words)) => self.hear_end(words),
            Some(("skip", words)) => self.hear_skip(words),
            _ => {}
        }
    }

    fn hear_start(&mut self, name: &str) {
        if let Some(lines) = self.steps.get_mut(name) {
            // No step is stuck: the init limits its time.
            *lines = Some(Lines::new(Duration::MAX, false));
        }
        if self.loud {
            eprintln!("{name} …");
        }
    }

    fn hear_end(&mut self, words: &str) {
        let mut words = words.split(' ');
        let (Some(name), Some(status), Some(seconds)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        if self.loud {
            eprintln!("{name}: {seconds} s");
        }
        match status {
            // The statuses of libtest for success and for failed tests, which it has printed.
            "0" | "101" => {}
            "137" => self.ended.push(format!("{name} killed after {seconds} s")),
            other => self.ended.push(format!("{name} with status {other}")),
        }
    }

    fn hear_skip(&mut self, words: &str) {
        let Some((name, needs)) = words.split_once(' ') else { return };
        self.steps.remove(name);
        self.notes.push(format!("{name} skipped: this kernel has no {needs}"));
    }

    /// The steps that have started, and of which not all tests have passed.
    fn failed(&self) -> impl Iterator<Item = (&str, &Lines)> {
        let begun = self.steps.iter().filter_map(|(name, lines)| Some((&**name, lines.as_ref()?)));
        begun.filter(|(_, lines)| !have_passed(lines))
    }

    pub(super) fn all_passed(&self) -> bool {
        let passed = |lines: &Option<Lines>| lines.as_ref().is_some_and(have_passed);
        !self.steps.is_empty() && self.ended.is_empty() && self.steps.values().all(passed)
    }

    pub(super) fn command_succeeded(&self) -> bool {
        self.command_status.as_deref() == Some("0")
    }

    /// Returns why each failed step has failed.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        self.failed().map(|(name, lines)| {
            let lost = lines.lost().unwrap_or_default();
            format!("---- {name}: {lost}\n{}\n----", lines.failure())
        })
    }
}

/// Whether there are tests, and none has failed or is without a result.
fn have_passed(lines: &Lines) -> bool {
    let counts = lines.counts();
    lines.lost().is_none() && counts.failed == 0 && counts != Counts::default()
}

/// One line, as the table of results has it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut total = Counts::default();
        self.steps.values().flatten().for_each(|lines| total.add(lines.counts()));
        write!(f, "{total}")?;
        for (name, lines) in self.failed() {
            write!(f, "; FAILED: {name}")?;
            lines.lost().map_or(Ok(()), |lost| write!(f, " ({lost})"))?;
        }
        let not_run = self.steps.iter().filter(|(_, lines)| lines.is_none());
        let not_run: Vec<_> = not_run.map(|(name, _)| name.as_str()).collect();
        if !not_run.is_empty() {
            write!(f, "; not run: {}", not_run.join(", "))?;
        }
        if !self.builds.is_empty() {
            let builds: Vec<_> = self.builds.iter().map(String::as_str).collect();
            write!(f, "; built of {}", builds.join(", "))?;
        }
        let ended = self.ended.iter().map(|name| format!("DIED: {name}"));
        ended.chain(self.notes.clone()).try_for_each(|words| write!(f, "; {words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let step =
            |name: &str| Step { name: name.into(), command_line: String::new(), needs: None };
        Report::new(&[step("one"), step("two")])
    }

    fn hear(report: &mut Report, lines: &[&str]) {
        lines.iter().for_each(|line| report.hear(line));
    }

    const RESULT: &str = "one| test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured";

    #[test]
    fn steps_without_a_result_and_steps_not_run_are_distinguished() {
        let mut report = report();
        let one =
            ["@@ start one", "one| running 2 tests", "one| test a ... ok", "@@ end one 137 9"];
        hear(&mut report, &one);
        assert_eq!(
            report.to_string(),
            "0 passed, 0 failed, 0 skipped; FAILED: one (tests started: 2, results: 0); \
             not run: two; DIED: one killed after 9 s"
        );
        assert!(!report.all_passed());
        let failures: Vec<_> = report.failures().collect();
        assert!(failures[0].contains("test a ... ok"), "{failures:?}");
    }

    #[test]
    fn a_skipped_step_is_no_failure() {
        let mut report = report();
        let one = ["@@ start one", "one| running 2 tests", RESULT, "@@ end one 0 9"];
        hear(&mut report, &one);
        assert!(!report.all_passed());
        hear(&mut report, &["@@ start two", "@@ skip two /switch"]);
        let line = "1 passed, 0 failed, 1 skipped; two skipped: this kernel has no /switch";
        assert_eq!((report.to_string().as_str(), report.all_passed()), (line, true));
    }

    #[test]
    fn a_step_without_tests_has_failed() {
        let mut report = report();
        hear(&mut report, &["@@ start one", "one| running 2 tests", RESULT, "@@ end one 0 9"]);
        let none = "two| test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured";
        hear(&mut report, &["@@ start two", "two| running 0 tests", none, "@@ end two 0 0"]);
        assert!(!report.all_passed());
        assert!(report.to_string().contains("FAILED: two"), "{report}");
    }
}
