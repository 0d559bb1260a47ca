//! The submitters of `high`, by a program of its own.
//!
//! The program's arguments are `FILE [--cached] --workers N --seed N`. It reads with the shape of
//! `high`, its clock runs from the first submission to the end of the last batch, and it prints
//! one line of JSON: [`Line`].

use super::Via;
use crate::batch::high::batches;
use crate::batch::{BATCH, Measured, RoundConfig};
use crate::experiment::Named;
use crate::meter::Usage;
use cringle_report::failure::Failure;
use cringle_report::interrupt;
use serde::Deserialize;
use std::process::{Command, Output};

/// The program of a language.
pub(in crate::batch) struct Program {
    via: Via,
    /// Never empty.
    words: Vec<String>,
}

/// What the program prints. It may have further fields.
#[derive(Deserialize)]
struct Line {
    /// The reads of 4 KiB.
    ops: u64,
    seconds: f64,
    /// The CPU time of the process while the clock ran, and its context switches.
    user_seconds: f64,
    system_seconds: f64,
    context_switches: u64,
    allocated_bytes: Option<u64>,
}

impl Program {
    /// Parses the command.
    pub(super) fn new(via: Via, command: &str) -> Result<Program, Failure> {
        let words = shell_words::split(command)
            .map_err(|error| Failure::usage(format!("--via-program: {error}")))?;
        if words.is_empty() {
            return Err(Failure::usage("--via-program: no program is given"));
        }
        Ok(Program { via, words })
    }

    /// Runs the program for one round.
    pub(in crate::batch) fn round(&self, config: &RoundConfig<'_>) -> Result<Measured, Failure> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(config.file.name_for_others());
        command.args(config.args.cached.then_some("--cached"));
        command.args(["--workers", &config.args.workers.to_string()]);
        command.args(["--seed", &config.args.seed.to_string()]);
        let output = interrupt::output_of(&mut command)
            .map_err(|error| self.failed(&format!("does not start: {error}")))?;
        let line = self.line(&output)?;
        let expected = (batches(config) * BATCH * config.args.submitters()) as u64;
        if line.ops != expected {
            return Err(self.failed(&format!("performed {} reads, not {expected}", line.ops)));
        }
        if line.seconds.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            return Err(self.failed(&format!("reports a time of {} s", line.seconds)));
        }
        Ok(Measured {
            ops: line.ops,
            usage: Usage {
                seconds: line.seconds,
                user_seconds: line.user_seconds,
                system_seconds: line.system_seconds,
                context_switches: line.context_switches,
            },
            allocations: None,
            allocated_bytes: line.allocated_bytes,
            p999_us: None,
            max_us: None,
        })
    }

    fn line(&self, output: &Output) -> Result<Line, Failure> {
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let reason = errors.lines().rfind(|line| !line.trim().is_empty());
            let reason = reason.unwrap_or("it gives no reason");
            return Err(self.failed(&format!("failed ({}): {reason}", output.status)));
        }
        let start: String = text.chars().take(80).collect();
        serde_json::from_str(&text).map_err(|error| {
            self.failed(&format!("prints no line of JSON with the figures: {error}: {start:?}"))
        })
    }

    fn failed(&self, what: &str) -> Failure {
        let (name, command) = (self.via.name(), shell_words::join(&self.words));
        Failure::failed(format!("--via {name}: `{command}` {what}; {}", self.via.remedy()))
    }
}
