//! The command line: what can be asked, and the help that teaches it.

use clap::{Args, Parser, Subcommand};
use cringle_bench::Bench;
use cringle_report::Color;
use cringle_report::failure::Failure;
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "cringle", version, about, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "What is it doing? kill -USR1 PID has bench, cp and sim say on standard error which fiber waits for what."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Colours in the table.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,

    /// Write a trace of what the fibers and operations of this command do: Perfetto opens it, `cringle
    /// trace` sums it up. A command that starts others has a file for each, with its number in the name.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Say which driver the runtime uses here, and why.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure: which way of doing I/O wins on this machine, and why.
    #[command(subcommand)]
    Bench(Bench),
    /// Copy files and directories: GNU's cp, on all cores.
    Cp(cringle_cp::Arguments),
    /// Examine this machine: what it gives, what it lacks, who denies it, and what to do.
    Doctor(cringle_doctor::args::DoctorArgs),
    /// Sum up a trace: who waited for what, where the time went; and draw it.
    Trace(cringle_trace::TraceArgs),
    /// Test the library itself: random programs in a simulation with faults, a seed each.
    Sim(SimArgs),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  cringle completions bash > ~/.local/share/bash-completion/completions/cringle"
    )]
    Completions { shell: clap_complete::Shell },
    /// Print the manual page, or write one for every command into a directory.
    #[command(after_help = "Example:\n  cringle man | man -l -")]
    Man {
        #[arg(long, value_name = "DIRECTORY")]
        all: Option<PathBuf>,
    },
}

const SIM_EXAMPLES: &str = "\
Examples:
  cringle sim                                 10,000 seeds
  cringle sim --seeds 100000 --start 500000   others, and more
  cringle sim --seeds 1 --start 4711          one that failed, again
  cringle sim --json - | jq .seeds_per_second

Each seed draws a program (fibers that spawn, read, write, sync, talk, panic, …), which faults may
happen to it and when, and what ends when. The same seed is always the same run. What is checked is
on the page docs/book/src/command/sim.md; docs/book/src/simulation.md shows how to test your own
program like this.

Exit status: 0 all passed, 1 one failed (the seed is told), 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = SIM_EXAMPLES, args_override_self = true)]
pub(crate) struct SimArgs {
    /// How many seeds to try.
    #[arg(long, alias = "repeat", default_value_t = 10_000, value_name = "N")]
    pub(crate) seeds: u64,

    /// The first of them.
    #[arg(long, alias = "seed", default_value_t = 0, value_name = "S")]
    pub(crate) start: u64,

    /// OS threads, each with a simulation of its own [default: one for each core].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// A seed that counts as failed, to see what that looks like.
    #[arg(long, value_name = "S", hide = true)]
    pub(crate) canary: Option<u64>,

    /// Write what came of it as JSON; `-` is standard output, and nothing else on it.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// No progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl SimArgs {
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores)
    }

    /// What clap cannot check alone.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        match self.seeds == 0 || self.threads == Some(0) {
            true => Err(Failure::usage("--seeds and --threads count from 1")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
