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
            Some(("start", name)) if self.loud => eprintln!("{name} …"),
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
        if count(Outcome::Unheard) > 0 {
            write!(f, ", {} without an outcome", count(Outcome::Unheard))?;
            names(f, self.of(Outcome::Unheard))?;
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
