//! The questions, the commands that answer them, and the space that the commands need.

use super::AllArgs;
use crate::Bench;
use crate::cp;
use crate::target::require_space;
use clap::ValueEnum;
use cringle_report::failure::Failure;
use serde::Serialize;
use std::ffi::OsString;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Question {
    Reads,
    Cached,
    Web,
    Sums,
    Copies,
}

impl Question {
    /// Returns the unit of the rates.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Question::Reads | Question::Cached => "IOPS",
            Question::Web => "requests/s",
            Question::Sums => "MiB/s",
            Question::Copies => "files/s",
        }
    }
}

/// A call of a subcommand of `bench`.
pub(super) struct Call {
    pub(super) question: Question,
    /// `disk --qd 32,128 …`, without the directory.
    line: Vec<String>,
    /// Whether it creates files in the directory.
    on_disk: bool,
}

impl Call {
    pub(super) fn command(&self) -> String {
        format!("cringle bench {}", self.line.join(" "))
    }

    /// Returns the arguments of the program, with additional flags.
    pub(super) fn arguments(&self, args: &AllArgs, flags: &[&str]) -> Vec<OsString> {
        let line = ["bench"].into_iter().chain(self.line.iter().map(String::as_str));
        let mut all: Vec<OsString> =
            line.chain(flags.iter().copied()).map(OsString::from).collect();
        if self.on_disk {
            all.push("--".into());
            all.push(args.directory.clone().into());
        }
        all
    }

    /// Returns the disk space that the experiment needs, in bytes.
    fn space_needed(&self, args: &AllArgs) -> Result<u64, Failure> {
        if !self.on_disk {
            return Ok(0);
        }
        let arguments = self.arguments(args, &[]);
        match Bench::parse(&arguments[1..]).map_err(|e| Failure::usage(e.to_string()))? {
            Bench::Disk(disk) => Ok(disk.size.unwrap_or(0)),
            Bench::Sum(sum) => Ok(sum.sizes().into_iter().max().unwrap_or(0)),
            Bench::Cp(copies) => cp::space_needed(&copies),
            _ => Ok(0),
        }
    }
}

/// Returns the chosen experiments, in order. Copies come last, because removing many files slows
/// down programs that create files afterwards.
pub(super) fn chosen(args: &AllArgs) -> Vec<Call> {
    let lines = if args.quick { &QUICK } else { &MODEST };
    let chosen = lines.iter().filter(|(question, _)| args.asks(*question));
    chosen.map(|(question, line)| experiment(*question, line, args)).collect()
}

fn experiment(question: Question, line: &str, args: &AllArgs) -> Call {
    let mut line: Vec<String> = line.split(' ').map(String::from).collect();
    let on_disk = question != Question::Web && !line.contains(&"--tcp".into());
    line.extend(["--repeat".into(), args.repeat.to_string()]);
    if question != Question::Web {
        line.extend(["--seed".into(), args.seed.to_string()]);
    }
    Call { question, line, on_disk }
}

type Line = (Question, &'static str);

const MODEST: [Line; 6] = [
    (Question::Reads, "disk --qd 32,128 --size 1g --ops 20000"),
    (Question::Cached, "disk --profile cached --qd 1,32 --size 256m --ops 100000"),
    (Question::Web, "http --connections 50 --seconds 1"),
    (Question::Sums, "sum --sizes 256m"),
    (Question::Sums, "sum --tcp --sizes 256m"),
    (Question::Copies, "cp --part 10 --regime warm,cold-durable"),
];

const QUICK: [Line; 6] = [
    (Question::Reads, "disk --qd 4 --size 1m --ops 64 --warmup 0"),
    (Question::Cached, "disk --profile cached --qd 1,4 --size 1m --ops 64 --warmup 0"),
    (Question::Web, "http --connections 4 --requests 100"),
    (Question::Sums, "sum --sizes 64k --warmup 0"),
    (Question::Sums, "sum --tcp --sizes 64k --warmup 0"),
    (Question::Copies, "cp --part 10000 --regime warm"),
];

/// Fails if the file system has too little space for the largest experiment. (Each removes its data
/// before the next one begins.)
pub(super) fn check_space(calls: &[Call], args: &AllArgs) -> Result<(), Failure> {
    let mut most = 0;
    for call in calls {
        most = most.max(call.space_needed(args)?);
    }
    let remedy = "choose fewer questions with --only, or another DIR";
    require_space(&args.directory, most.next_multiple_of(1 << 20), "the experiments need", remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_line_is_valid() {
        for quick in [&[][..], &["--quick"]] {
            let Bench::All(args) = Bench::parse(&[&["all"], quick].concat()).unwrap() else {
                unreachable!("it is bench all")
            };
            let all = chosen(&args);
            assert_eq!(all.len(), 6);
            for one in &all {
                let needed = one.space_needed(&args);
                let needed = needed.unwrap_or_else(|e| panic!("{}: {e}", one.command()));
                assert_eq!(needed > 0, one.on_disk, "{}", one.command());
            }
        }
    }
}
