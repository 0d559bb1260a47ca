//! `cringle`: which way of doing I/O wins on this machine, and why.
//!
//! This file only dispatches. The command line is in [`cli`], the measurements in [`bench`],
//! what is printed in [`report`]; [`doctor`] examines the machine, [`sim`] tests the library in
//! simulations.

#[cfg(not(target_os = "linux"))]
compile_error!("cringle is for Linux: it stands on io_uring");

mod cli;
mod sim;
mod trace_flag;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command};
use cringle_report::failure::Failure;
use cringle_report::{self as report, interrupt};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Loops that are measured run for long, and a report on standard error would be in the way: even a debug
/// build is watched only if it was asked for.
fn watch_only_if_asked() {
    const VARIABLE: &str = "CRINGLE_WATCHDOG";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: no other thread is there yet that could read the environment.
        unsafe { std::env::set_var(VARIABLE, "off") };
    }
}

#[global_allocator]
static ALLOCATOR: cringle_bench::CountingAllocator = cringle_bench::CountingAllocator;

fn main() -> ExitCode {
    watch_only_if_asked();
    if let Some((program, arguments)) = called_as_cp(std::env::args_os().collect()) {
        return cringle_cp::run(program, arguments);
    }
    let cli = Cli::parse();
    report::set_color(cli.color);
    let traced = match trace_flag::begin(&cli) {
        Ok(traced) => traced,
        Err(failure) => {
            report::complain(&format!("cringle: {failure}"));
            return ExitCode::from(failure.status);
        }
    };
    let done = dispatch(&cli);
    traced.end();
    match done {
        Ok(status) => status,
        Err(failure) => {
            report::complain(&format!("cringle: {failure}"));
            ExitCode::from(failure.status)
        }
    }
}

/// `cringle cp …`, or a link named `cp`: that command line is read in GNU's way, not clap's.
fn called_as_cp(arguments: Vec<OsString>) -> Option<(&'static str, Vec<OsString>)> {
    let mut arguments = arguments.into_iter();
    let name = arguments.next()?;
    if Path::new(&name).file_name() == Some(OsStr::new("cp")) {
        return Some(("cp", arguments.collect()));
    }
    // The other flags of `cringle` itself say nothing to it.
    let mut trace = None;
    loop {
        match arguments.next()?.to_str()? {
            "cp" => {
                let trace = trace.into_iter().flat_map(|file| ["--trace".into(), file]);
                return Some(("cringle cp", trace.chain(arguments).collect()));
            }
            "-v" | "--verbose" => {}
            "--color" => drop(arguments.next()),
            // `cp` has the same option.
            "--trace" => trace = Some(arguments.next()?),
            other if other.starts_with("--trace=") => {
                trace = other.strip_prefix("--trace=").map(OsString::from);
            }
            other if other.starts_with("--color=") => {}
            _ => return None,
        }
    }
}

fn dispatch(cli: &Cli) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Doctor(args) => return cringle_doctor::run(args),
        Command::Bench(which) => {
            interrupt::watch()?;
            which.run(cli.verbose)
        }
        Command::Trace(args) => cringle_trace::run(args),
        Command::Sim(args) => {
            interrupt::watch()?;
            sim::run(args)
        }
        // `called_as_cp` has seen it.
        Command::Cp(_) => Err(Failure::usage("cp comes first: cringle cp …")),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "cringle", &mut script);
            report::print_bytes(&script)
        }
        Command::Man { all: None } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            report::print_bytes(&page)
        }
        Command::Man { all: Some(directory) } => manual_pages(directory),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// `cringle.1`, `cringle-bench.1`, `cringle-bench-disk.1`, …
fn manual_pages(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)?;
    Ok(())
}
