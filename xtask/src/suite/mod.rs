//! `cargo xtask test`: builds all tests with one call of cargo, and runs their programs side by
//! side.
//!
//! cargo runs one program after the other. Many tests of this repository wait for something, so
//! cores would idle. Besides, cargo waits for ever for a test that hangs.

mod build;
mod output;
mod program;
mod report;

use crate::Result;
pub(crate) use output::Lines;
use program::Program;
use report::Report;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask test                                all tests
  cargo xtask test deadline cancel                the tests whose names contain one of these
  cargo xtask test --only cringle:fs,cringle:net  two programs; --list prints the names
  cargo xtask test --only cringle-std             the programs of one package
  cargo xtask test --only library                 those of each package of the library
  cargo xtask test --only library:lib             its unit tests
  CRINGLE_DRIVER=epoll cargo xtask test --only cringle:net

A program is named PACKAGE:TARGET: `lib` and `bin` are the unit tests of a package, and `doc` alone
is the examples in the documentation of all packages. All programs are built in any case, so that no
call builds anything again. The output of each program is in target/suite.

The last line is the number of tests. Status: 0 if none failed; 1 if one failed or took too long, or
if none passed; 2 if the tests cannot be built.")]
pub(crate) struct Args {
    /// Run only the tests whose names contain one of these
    names: Vec<String>,

    /// Run only these programs, or all of these packages
    #[arg(long, value_name = "PROGRAMS", value_delimiter = ',')]
    only: Vec<String>,

    /// Print the programs, and run none
    #[arg(long)]
    list: bool,

    /// The number of programs that run at the same time [default: one more than the cores]
    #[arg(long, value_name = "N")]
    programs: Option<usize>,

    /// The number of tests that one program runs at the same time [default: twice the cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// How long a test may take; then its program shows where its threads stand, and is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
}

/// How the programs run.
struct Settings {
    names: Vec<String>,
    threads: usize,
    limit: Duration,
    /// Where the output of each program goes.
    logs: PathBuf,
}

/// Builds the tests and runs the chosen programs. Returns whether all tests passed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let started = Instant::now();
    let mut programs = choose(build::programs()?, &args.only)?;
    if args.list {
        programs.iter().for_each(|program| println!("{}", program.name));
        return Ok(true);
    }
    println!("built after {} s", started.elapsed().as_secs());
    let logs = crate::target_directory().join("suite");
    std::fs::create_dir_all(&logs)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        names: args.names.clone(),
        threads: args.threads.unwrap_or(2 * cores),
        limit: Duration::from_secs(args.limit),
        logs,
    };
    let mut report = Report::open(&settings.logs);
    report.sort(&mut programs);
    let at_once = args.programs.unwrap_or(cores + 1).max(1);
    run_side_by_side(&programs, at_once, &settings, &mut report);
    report.finish(started.elapsed())
}

fn choose(programs: Vec<Program>, only: &[String]) -> Result<Vec<Program>> {
    for name in only {
        if !programs.iter().any(|program| program.is(name)) {
            let text = format!("no program or package is named '{name}'; --list prints the names");
            return Err(text.into());
        }
    }
    let is_chosen = |program: &Program| only.is_empty() || only.iter().any(|name| program.is(name));
    Ok(programs.into_iter().filter(is_chosen).collect())
}

fn run_side_by_side(
    programs: &[Program],
    at_once: usize,
    settings: &Settings,
    report: &mut Report,
) {
    let left = Mutex::new(programs.iter());
    let report = Mutex::new(report);
    thread::scope(|s| {
        for _ in 0..at_once {
            s.spawn(|| {
                loop {
                    let Some(program) = left.lock().unwrap().next() else { return };
                    let outcome = program.run(settings);
                    report.lock().unwrap().add(program, outcome);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_programs_are_chosen() {
        let programs = || ["a:lib", "a:fs", "doc"].map(Program::named).into_iter().collect();
        let names = |only: &[&str]| -> Result<Vec<String>> {
            let only: Vec<_> = only.iter().map(|&name| name.to_owned()).collect();
            Ok(choose(programs(), &only)?.into_iter().map(|program| program.name).collect())
        };
        assert_eq!(names(&[]).unwrap(), ["a:lib", "a:fs", "doc"]);
        assert_eq!(names(&["doc", "a:fs"]).unwrap(), ["a:fs", "doc"]);
        assert_eq!(names(&["a"]).unwrap(), ["a:lib", "a:fs"]);
        let message = names(&["a:fs", "fs"]).unwrap_err().to_string();
        assert_eq!(message, "no program or package is named 'fs'; --list prints the names");
    }
}
