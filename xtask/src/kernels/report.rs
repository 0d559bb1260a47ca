//! Sums up the output of the machine's init.

use super::steps::Step;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Failed,
    Ignored,
    /// The binary was killed or died before it reported this test.
    Unreported,
}

/// The outcomes of all tests on one kernel.
pub(super) struct Report {
    /// The outcomes by binary and test.
    outcomes: BTreeMap<(String, String), Outcome>,
    /// The output of each binary.
    output: BTreeMap<String, Vec<String>>,
    /// What the init reports of the machine.
    notes: Vec<String>,
    /// Binaries that were killed or died.
    ended: Vec<String>,
    /// Steps that have started.
    begun: BTreeSet<String>,
    /// The builds of the steps.
    builds: BTreeSet<String>,
    command_status: Option<String>,
    /// Whether to print progress.
    loud: bool,
}

impl Report {
    pub(super) fn new(steps: &[Step]) -> Report {
        let all = steps
            .iter()
            .flat_map(|step| step.tests.iter().map(|test| (step.name.clone(), test.clone())));
        Report {
            outcomes: all.map(|name| (name, Outcome::Unreported)).collect(),
            output: BTreeMap::new(),
            notes: Vec::new(),
            ended: Vec::new(),
            begun: BTreeSet::new(),
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
            return;
        }
        self.output.entry(name.to_owned()).or_default().push(words.to_owned());
        if let Some((test, outcome)) = outcome(words) {
            self.outcomes.insert((name.to_owned(), test.to_owned()), outcome);
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
        self.begun.insert(name.to_owned());
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
            // The statuses of libtest for success and for failed tests, which are in the outcomes.
            "0" | "101" => {}
            "137" => self.ended.push(format!("{name} killed after {seconds} s")),
            other => self.ended.push(format!("{name} with status {other}")),
        }
    }

    fn hear_skip(&mut self, words: &str) {
        let Some((name, needs)) = words.split_once(' ') else { return };
        self.outcomes.retain(|(step, _), _| step != name);
        self.notes.push(format!("{name} skipped: this kernel has no {needs}"));
    }

    /// Returns the tests with this outcome.
    fn of(&self, outcome: Outcome) -> Vec<String> {
        let found = self.outcomes.iter().filter(|(_, has)| **has == outcome);
        found.map(|((binary, test), _)| format!("{binary}::{test}")).collect()
    }

    pub(super) fn all_passed(&self) -> bool {
        let heard = !self.outcomes.is_empty() && self.ended.is_empty();
        heard && self.of(Outcome::Failed).is_empty() && self.of(Outcome::Unreported).is_empty()
    }

    pub(super) fn command_succeeded(&self) -> bool {
        self.command_status.as_deref() == Some("0")
    }

    /// Returns the output of each binary with a failed or unreported test.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        let bad = |name: &str| {
            let mut outcomes = self.outcomes.iter();
            outcomes.any(|((binary, _), outcome)| {
                binary == name && matches!(outcome, Outcome::Failed | Outcome::Unreported)
            })
        };
        let output = self.output.iter().filter(move |(name, _)| bad(name));
        output.map(|(name, lines)| format!("---- {name} ----\n{}", lines.join("\n")))
    }
}

/// Parses a line of libtest that reports a test.
fn outcome(line: &str) -> Option<(&str, Outcome)> {
    let (test, word) = line.strip_prefix("test ")?.split_once(" ... ")?;
    if word.starts_with("test ") {
        // A child process of a test printed the start of the line and died before the outcome.
        return outcome(word);
    }
    let test = test.strip_suffix(" - should panic").unwrap_or(test);
    let outcome = match word.split([' ', ',']).next()? {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        "ignored" => Outcome::Ignored,
        _ => return None,
    };
    Some((test, outcome))
}

/// One line, as the table of results has it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |outcome| self.of(outcome).len();
        write!(f, "{} passed, {} failed", count(Outcome::Passed), count(Outcome::Failed))?;
        let names = |f: &mut fmt::Formatter<'_>, names: Vec<String>| match names.as_slice() {
            [] => Ok(()),
            names => write!(f, " ({})", names.join(", ")),
        };
        names(f, self.of(Outcome::Failed))?;
        write!(f, ", {} ignored", count(Outcome::Ignored))?;
        let unreported = self.of(Outcome::Unreported).into_iter();
        let is_begun =
            |name: &String| name.split("::").next().is_some_and(|step| self.begun.contains(step));
        let (unreported, not_run): (Vec<_>, Vec<_>) = unreported.partition(is_begun);
        if !unreported.is_empty() {
            write!(f, ", {} without an outcome", unreported.len())?;
            names(f, unreported)?;
        }
        if !not_run.is_empty() {
            let steps = not_run.iter().filter_map(|name| name.split("::").next());
            let steps: BTreeSet<_> = steps.collect();
            write!(f, "; {} steps not run, with {} tests", steps.len(), not_run.len())?;
            names(f, steps.into_iter().map(str::to_owned).collect())?;
        }
        if !self.builds.is_empty() {
            let builds: Vec<_> = self.builds.iter().map(String::as_str).collect();
            write!(f, "; built of {}", builds.join(", "))?;
        }
        for words in self.ended.iter().map(|name| format!("DIED: {name}")).chain(self.notes.clone())
        {
            write!(f, "; {words}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let step = |name: &str, tests: [&str; 2]| Step {
            name: name.into(),
            command_line: String::new(),
            needs: None,
            tests: tests.map(str::to_owned).into(),
        };
        Report::new(&[step("one", ["a", "b"]), step("two", ["c", "d"])])
    }

    fn hear(report: &mut Report, lines: &[&str]) {
        lines.iter().for_each(|line| report.hear(line));
    }

    #[test]
    fn unreported_tests_and_steps_not_run_are_distinguished() {
        let mut report = report();
        hear(&mut report, &["@@ start one", "one| test a ... ok", "@@ end one 137 9"]);
        assert_eq!(
            report.to_string(),
            "1 passed, 0 failed, 0 ignored, 1 without an outcome (one::b); \
             1 steps not run, with 2 tests (two); DIED: one killed after 9 s"
        );
        assert!(!report.all_passed());
    }

    #[test]
    fn a_skipped_step_is_no_failure() {
        let mut report = report();
        let one = ["one| test a ... ok", "one| test b ... ignored, why", "@@ end one 0 9"];
        hear(&mut report, &one);
        hear(&mut report, &["@@ start two", "@@ skip two /switch"]);
        let line = "1 passed, 0 failed, 1 ignored; two skipped: this kernel has no /switch";
        assert_eq!((report.to_string().as_str(), report.all_passed()), (line, true));
        report.hear("two| test c ... FAILED");
        assert!(!report.all_passed());
    }

    #[test]
    fn a_child_may_begin_the_line_of_an_outcome() {
        assert_eq!(outcome("test b ... ok"), Some(("b", Outcome::Passed)));
        assert_eq!(outcome("test a ... test b ... FAILED"), Some(("b", Outcome::Failed)));
        assert_eq!(outcome("test a - should panic ... ok"), Some(("a", Outcome::Passed)));
        assert_eq!(outcome("test a has been running for over 60 seconds"), None);
    }
}
