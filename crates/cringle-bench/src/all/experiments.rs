//! Which commands answer which question, and how much room they need.

use super::AllArgs;
use crate::Bench;
use crate::cp;
use clap::ValueEnum;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::storage;
use cringle_report::units;
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Question::Reads => "reads",
            Question::Cached => "cached",
            Question::Web => "web",
            Question::Sums => "sums",
            Question::Copies => "copies",
        }
    }

    /// What rates are counted in.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Question::Reads | Question::Cached => "IOPS",
            Question::Web => "requests/s",
            Question::Sums => "MiB/s",
            Question::Copies => "files/s",
        }
    }
}

/// One run of one subcommand of `bench`.
pub(super) struct Experiment {
    pub(super) question: Question,
    /// `disk --qd 32,128 …`, without the directory.
    pub(super) words: Vec<String>,
    /// It makes files in the directory.
    pub(super) on_disk: bool,
}

impl Experiment {
    pub(super) fn command(&self) -> String {
        format!("cringle bench {}", self.words.join(" "))
    }

    /// Everything after the program's name, with these flags.
    pub(super) fn arguments(&self, args: &AllArgs, flags: &[&str]) -> Vec<OsString> {
        let words = ["bench"].into_iter().chain(self.words.iter().map(String::as_str));
        let mut all: Vec<OsString> =
            words.chain(flags.iter().copied()).map(OsString::from).collect();
        if self.on_disk {
            all.push("--".into());
            all.push(args.directory.clone().into());
        }
        all
    }

    /// Bytes on disk while it runs.
    fn needs(&self, args: &AllArgs) -> Result<u64, Failure> {
        if !self.on_disk {
            return Ok(0);
        }
        let arguments = self.arguments(args, &[]);
        match Bench::parse(&arguments[1..]).map_err(|e| Failure::usage(e.to_string()))? {
            Bench::Disk(disk) => Ok(disk.size.unwrap_or(0)),
            Bench::Sum(sum) => Ok(sum.sizes().into_iter().max().unwrap_or(0)),
            Bench::Cp(copies) => cp::room(&copies),
            _ => Ok(0),
        }
    }
}

/// The experiments in turn. Copies come last: removing many files slows down who makes files next.
pub(super) fn chosen(args: &AllArgs) -> Vec<Experiment> {
    let sizes = if args.quick { &QUICK } else { &MODEST };
    let all = sizes.iter().filter(|(question, _)| args.asks(*question));
    all.map(|(question, words)| experiment(*question, words, args)).collect()
}

fn experiment(question: Question, words: &str, args: &AllArgs) -> Experiment {
    let mut words: Vec<String> = words.split(' ').map(String::from).collect();
    let on_disk = question != Question::Web && !words.contains(&"--tcp".into());
    words.extend(["--repeat".into(), args.repeat.to_string()]);
    if question != Question::Web {
        words.extend(["--seed".into(), args.seed.to_string()]);
    }
    Experiment { question, words, on_disk }
}

type Words = (Question, &'static str);

const MODEST: [Words; 6] = [
    (Question::Reads, "disk --qd 32,128 --size 1g --ops 20000"),
    (Question::Cached, "disk --profile cached --qd 1,32 --size 256m --ops 100000"),
    (Question::Web, "http --connections 50 --seconds 1"),
    (Question::Sums, "sum --sizes 256m"),
    (Question::Sums, "sum --tcp --sizes 256m"),
    (Question::Copies, "cp --part 10 --regime warm,cold-durable --no-fio"),
];

const QUICK: [Words; 6] = [
    (Question::Reads, "disk --qd 4 --size 1m --ops 64 --warmup 0"),
    (Question::Cached, "disk --profile cached --qd 1,4 --size 1m --ops 64 --warmup 0"),
    (Question::Web, "http --connections 4 --requests 100"),
    (Question::Sums, "sum --sizes 64k --warmup 0"),
    (Question::Sums, "sum --tcp --sizes 64k --warmup 0"),
    (Question::Copies, "cp --part 10000 --regime warm --no-fio"),
];

/// Fails, before anything is made, where one of them would not fit. (Each has removed its data before
/// the next begins.)
pub(super) fn check_room(experiments: &[Experiment], args: &AllArgs) -> Result<(), Failure> {
    let mut most = 0;
    for experiment in experiments {
        most = most.max(experiment.needs(args)?);
    }
    let free = storage::free_bytes(&args.directory)?;
    if free < most {
        return fail(format!(
            "the experiments need {} and {} has {}: --only asks fewer questions, or give another DIR",
            units::size(most.next_multiple_of(1 << 20)),
            args.directory.display(),
            units::size(free)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_one_that_clap_understands_and_has_a_size() {
        for quick in [&[][..], &["--quick"]] {
            let Bench::All(args) = Bench::parse(&[&["all"], quick].concat()).unwrap() else {
                unreachable!("it is bench all")
            };
            let all = chosen(&args);
            assert_eq!(all.len(), 6);
            for one in &all {
                let needs = one.needs(&args).unwrap_or_else(|e| panic!("{}: {e}", one.command()));
                assert_eq!(needs > 0, one.on_disk, "{}", one.command());
            }
        }
    }
}
