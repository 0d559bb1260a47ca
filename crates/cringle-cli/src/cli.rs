//! The command line of `cringle`.

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use cringle_bench::Bench;
use cringle_command::stdout;
use cringle_report::failure::{FAILED, Failure};
use cringle_report::{Color, MAX_HELP_WIDTH, PIPE_WIDTH};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process;

#[derive(Parser)]
#[command(name = "cringle", version, about, propagate_version = true, max_term_width = MAX_HELP_WIDTH)]
#[command(
    after_help = "After `kill -USR1 PID`, bench, cp and sim print on standard error which fiber \
            waits for what."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Use colours in tables.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = GLOBAL
    )]
    pub(crate) color: Color,

    /// Write a trace of fibers and operations, for Perfetto and `cringle trace`. A command that
    /// starts processes writes a file for each, with the process number in its name.
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) trace: Option<PathBuf>,

    /// Print which driver the measured runtimes use, whose thread-locals fibers use, and why.
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: bool,
}

/// The commands without fibers and operations of their own. (The probes of `doctor` do nothing that
/// a trace would explain.)
const UNTRACED: [&str; 4] = ["doctor", "trace", "completions", "man"];

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";

impl Cli {
    /// Returns the definition of the command line. Help is as wide as the terminal (at most
    /// [`MAX_HELP_WIDTH`] columns), and [`PIPE_WIDTH`] columns wide if standard output is not a
    /// terminal.
    pub(crate) fn definition() -> clap::Command {
        // A command with nothing to trace does not offer it; `trace_flag` refuses it there.
        let hidden = Arg::new("trace").long("trace").value_name("FILE").global(true).hide(true);
        let hidden = hidden.value_parser(clap::value_parser!(PathBuf));
        let command = UNTRACED.iter().fold(Cli::command(), |command, name| {
            command.mut_subcommand(name, |one| one.arg(hidden.clone()))
        });
        if std::io::stdout().is_terminal() { command } else { command.term_width(PIPE_WIDTH) }
    }

    /// Parses the command line of this process. Prints help or an error and exits if it has no
    /// command.
    pub(crate) fn of_process() -> Cli {
        let mut definition = Cli::definition();
        let matches = definition.try_get_matches_from_mut(std::env::args_os());
        let matches = matches.unwrap_or_else(|error| end(&error));
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| end(&error.format(&mut definition)))
    }
}

/// Prints help, the version or an error of usage, and exits. (clap's own `exit` ignores that
/// standard output cannot be written.)
fn end(message: &clap::Error) -> ! {
    let flush = || if message.use_stderr() { Ok(()) } else { stdout::write(&[]) };
    // The first call fails if standard output is closed.
    match flush().and_then(|()| message.print()).and_then(|()| flush()) {
        Err(error) if !message.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            let why = stdout::describe(&error);
            let is_version = message.kind() == clap::error::ErrorKind::DisplayVersion;
            let what = if is_version { "version" } else { "help" };
            cringle_command::complain(&format!("cringle: cannot write the {what}: {why}"));
            process::exit(FAILED.into())
        }
        _ => process::exit(message.exit_code()),
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure which way of doing I/O wins on this machine, and why.
    #[command(subcommand)]
    Bench(Bench),
    /// Copy files and directories like GNU cp, on all cores.
    Cp(cringle_cp::Arguments),
    /// Examine what this machine offers to io_uring programs, what it denies, and why.
    Doctor(cringle_doctor::args::DoctorArgs),
    /// Run a program as it is, with its threads as fibers.
    Run(cringle_launch::args::RunArgs),
    /// Summarise or draw a trace: which fiber waited for what, and where the time went.
    Trace(cringle_trace::TraceArgs),
    /// Test the library itself with random programs in a simulation with faults.
    Sim(SimArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  cringle completions bash > \
                ~/.local/share/bash-completion/completions/cringle")]
    Completions { shell: clap_complete::Shell },
    /// Print a manual page, or write the pages of all commands into a directory.
    #[command(after_help = "Examples:\n  cringle man cp | man -l -\n  \
                cringle man --all ~/.local/share/man/man1\n  man cringle-bench-disk")]
    Man(ManArgs),
}

#[derive(Args)]
pub(crate) struct ManArgs {
    /// Command whose page is printed: cp, bench-disk.
    #[arg(value_name = "COMMAND", conflicts_with = "all")]
    pub(crate) name: Option<String>,

    /// Write the pages of all commands into this directory, and create it if necessary: cringle.1,
    /// cringle-cp.1, cringle-bench-disk.1 and so on.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) all: Option<PathBuf>,
}

const SIM_EXAMPLES: &str = "\
Examples:
  cringle sim
      Try 10,000 seeds
  cringle sim --seeds 100000 --start 500000
      Try more and other seeds
  cringle sim --seeds 1 --start 4711
      Repeat a seed that failed
  cringle sim --workers 2
      Give each run two workers
  CRINGLE_BALANCE=fixed cringle sim --workers 2
      Let started fibers stay on their workers
  cringle sim --json - | jq .seeds_per_second
      Print the rate

Each seed determines a program (fibers that spawn, read, write, sync, communicate, panic, …), its \
faults, and the order of all events and workers. The same seed always gives the same run. The page \
docs/book/src/command/sim.md lists what is checked; docs/book/src/simulation.md shows how to test \
your own program in the simulation.

Exit status: 0 all seeds passed, 1 a seed failed (it is printed), 2 wrong usage, 130 interrupted.";

/// The most workers of a simulation.
const MAX_SIM_WORKERS: usize = 64;

#[derive(Args)]
#[command(after_help = SIM_EXAMPLES, args_override_self = true)]
pub(crate) struct SimArgs {
    /// Number of seeds to try.
    #[arg(long, alias = "repeat", default_value_t = 10_000, value_name = "N")]
    pub(crate) seeds: u64,

    /// First seed.
    #[arg(long, alias = "seed", default_value_t = 0, value_name = "S")]
    pub(crate) start: u64,

    /// Workers of each simulation [default: 1 to 3, drawn by the seed].
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,

    /// OS threads, each with simulations of its own [default: one for each core].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// Seed that counts as failed, to show what a failure looks like.
    #[arg(long, value_name = "S", hide = true)]
    pub(crate) canary: Option<u64>,

    /// Write the results as JSON; `-` means standard output, which then has nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Show no progress bar.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl SimArgs {
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores)
    }

    /// Checks what clap cannot check.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        if self.seeds == 0 || self.threads == Some(0) {
            return Err(Failure::usage("--seeds and --threads must be at least 1"));
        }
        if self.workers.is_some_and(|workers| !(1..=MAX_SIM_WORKERS).contains(&workers)) {
            return Err(Failure::usage(format!("--workers must be 1 to {MAX_SIM_WORKERS}")));
        }
        Ok(())
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

    /// Calls `check` with the full name and the help of each command, at the width of a pipe.
    fn for_each_help(check: &mut impl FnMut(&str, &str)) {
        let mut command = Cli::command();
        command.build();
        for_each_subcommand(&command, "cringle", check);
    }

    fn for_each_subcommand(
        command: &clap::Command,
        name: &str,
        check: &mut impl FnMut(&str, &str),
    ) {
        let mut sized = command.clone().term_width(PIPE_WIDTH);
        check(name, &sized.render_help().to_string());
        check(name, &sized.render_long_help().to_string());
        for subcommand in command.get_subcommands() {
            for_each_subcommand(subcommand, &format!("{name} {}", subcommand.get_name()), check);
        }
    }

    /// Returns whether `second` continues the paragraph of `first`, which has room for the first
    /// word of `second`. clap fills lines, so a line break of the source separates them.
    fn are_broken_by_hand(first: &str, second: &str) -> bool {
        let indent = |line: &str| line.len() - line.trim_start().len();
        // Indentations between these belong to examples and lists, which are not filled.
        let is_prose = indent(first) == 0 || indent(first) >= 10;
        let word = second.split_whitespace().next().unwrap_or_default();
        // An item of a list begins with `-`, `[` (`[default: …]`), or a name and a colon.
        let is_item = word.starts_with(['-', '[']) || word.ends_with(':') || first.ends_with(':');
        let has_room = first.chars().count() + 1 + word.chars().count() <= PIPE_WIDTH;
        let are_lines = !first.is_empty() && !word.is_empty() && indent(first) == indent(second);
        are_lines && is_prose && !is_item && has_room
    }

    #[test]
    fn help_fits_a_pipe() {
        for_each_help(&mut |name, help| {
            for line in help.lines() {
                assert!(line.chars().count() <= PIPE_WIDTH, "{name}: {line}");
            }
        });
    }

    #[test]
    fn lines_of_help_are_not_broken_by_hand() {
        let mut names = Vec::new();
        for_each_help(&mut |name, help| {
            names.push(name.to_owned());
            let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
            for pair in lines.windows(2) {
                let [first, second] = pair else { unreachable!("pairs") };
                assert!(!are_broken_by_hand(first, second), "{name}: {first}\n{second}");
            }
        });
        for name in ["cringle cp", "cringle doctor", "cringle trace", "cringle bench disk"] {
            assert!(names.iter().any(|checked| checked == name), "{name} is not checked");
        }
    }

    #[test]
    fn a_line_broken_by_hand_is_found() {
        let text = "The report covers the kernel\nand the ring.";
        let mut command = clap::Command::new("cringle").after_help(text).term_width(PIPE_WIDTH);
        let help = command.render_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        assert!(lines.windows(2).any(|pair| are_broken_by_hand(pair[0], pair[1])), "{help}");
    }
}
