//! What the machine's init says, summed up.

use super::steps::Step;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Failed,
    Ignored,
    /// Its binary was ended at the bound, or ended itself, before it said anything of this test.
    Unheard,
}

pub(super) struct Report {
    /// By binary and test.
    outcomes: BTreeMap<(String, String), Outcome>,
    /// What each binary wrote.
    said: BTreeMap<String, Vec<String>>,
    /// What the init says of the machine.
    notes: Vec<String>,
    /// Binaries that did not end by themselves.
    ended: Vec<String>,
    /// Steps that were begun.
    begun: BTreeSet<String>,
    /// What the steps were built of.
    builds: BTreeSet<String>,
    command_status: Option<String>,
    loud: bool,
}

impl Report {
    pub(super) fn new(steps: &[Step]) -> Report {
        let all = steps
            .iter()
            .flat_map(|step| step.tests.iter().map(|test| (step.name.clone(), test.clone())));
        Report {
            outcomes: all.map(|name| (name, Outcome::Unheard)).collect(),
            said: BTreeMap::new(),
            notes: Vec::new(),
            ended: Vec::new(),
            begun: BTreeSet::new(),
            builds: BTreeSet::new(),
            command_status: None,
            loud: std::io::IsTerminal::is_terminal(&std::io::stderr()),
        }
    }

    pub(super) fn hear(&mut self, line: &str) {
        if let Some(words) = line.strip_prefix("@@ ") {
            return self.hear_init(words);
        }
        let Some((name, words)) = line.split_once("| ") else {
            return eprintln!("the machine says: {line}");
        };
        if name == "command" {
            println!("{words}");
            return;
        }
        self.said.entry(name.to_owned()).or_default().push(words.to_owned());
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
            // What libtest says of a success and of a failure.
            "0" | "101" => {}
            "137" => self.ended.push(format!("{name} at the bound of {seconds} s")),
            other => self.ended.push(format!("{name} with status {other}")),
        }
    }

    fn hear_skip(&mut self, words: &str) {
        let Some((name, needs)) = words.split_once(' ') else { return };
        self.outcomes.retain(|(step, _), _| step != name);
        self.notes.push(format!("{name} left out, as there is no {needs}"));
    }

    fn of(&self, outcome: Outcome) -> Vec<String> {
        let found = self.outcomes.iter().filter(|(_, has)| **has == outcome);
        found.map(|((binary, test), _)| format!("{binary}::{test}")).collect()
    }

    pub(super) fn all_passed(&self) -> bool {
        let heard = !self.outcomes.is_empty() && self.ended.is_empty();
        heard && self.of(Outcome::Failed).is_empty() && self.of(Outcome::Unheard).is_empty()
    }

    pub(super) fn command_succeeded(&self) -> bool {
        self.command_status.as_deref() == Some("0")
    }

    /// What the binaries wrote that did not succeed.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        let bad = |name: &str| {
            let mut outcomes = self.outcomes.iter();
            outcomes.any(|((binary, _), outcome)| {
                binary == name && matches!(outcome, Outcome::Failed | Outcome::Unheard)
            })
        };
        let said = self.said.iter().filter(move |(name, _)| bad(name));
        said.map(|(name, lines)| format!("---- {name} ----\n{}", lines.join("\n")))
    }
}

/// What a line of libtest says about a test.
fn outcome(line: &str) -> Option<(&str, Outcome)> {
    let (test, word) = line.strip_prefix("test ")?.split_once(" ... ")?;
    if word.starts_with("test ") {
        // A child that a test runs, and that did not live to say its outcome, began the line.
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

/// One line, as it is put into the docs.
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
        let unheard = self.of(Outcome::Unheard).into_iter();
        let is_begun =
            |name: &String| name.split("::").next().is_some_and(|step| self.begun.contains(step));
        let (unheard, not_run): (Vec<_>, Vec<_>) = unheard.partition(is_begun);
        if !unheard.is_empty() {
            write!(f, ", {} without an outcome", unheard.len())?;
            names(f, unheard)?;
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
        for words in
            self.ended.iter().map(|name| format!("ended: {name}")).chain(self.notes.clone())
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
            words: String::new(),
            needs: None,
            tests: tests.map(str::to_owned).into(),
        };
        Report::new(&[step("one", ["a", "b"]), step("two", ["c", "d"])])
    }

    fn hear(report: &mut Report, lines: &[&str]) {
        lines.iter().for_each(|line| report.hear(line));
    }

    #[test]
    fn what_was_not_heard_is_told_from_what_was_not_run() {
        let mut report = report();
        hear(&mut report, &["@@ start one", "one| test a ... ok", "@@ end one 137 9"]);
        assert_eq!(
            report.to_string(),
            "1 passed, 0 failed, 0 ignored, 1 without an outcome (one::b); \
             1 steps not run, with 2 tests (two); ended: one at the bound of 9 s"
        );
        assert!(!report.all_passed());
    }

    #[test]
    fn a_step_that_is_left_out_is_no_failure() {
        let mut report = report();
        let one = ["one| test a ... ok", "one| test b ... ignored, why", "@@ end one 0 9"];
        hear(&mut report, &one);
        hear(&mut report, &["@@ start two", "@@ skip two /switch"]);
        let line = "1 passed, 0 failed, 1 ignored; two left out, as there is no /switch";
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
