//! `cringle`: which way of doing I/O wins on this machine, and why.
//!
//! Parses the command line ([`cli`]) and calls the crate of the command; only [`sim`], which tests
//! the library in simulations, is implemented here.

#[cfg(not(target_os = "linux"))]
compile_error!("cringle is for Linux: it needs io_uring");

mod cli;
mod man;
mod sim;
mod trace_flag;

use cli::{Cli, Command};
use cringle_command::startup;
use cringle_report::failure::{FAILED, Failure};
use cringle_report::{self as report, CommandFiles, interrupt};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use trace_flag::TraceRequest;

/// Disables the watchdog unless the environment configures it. Measured loops run for a long time
/// without suspending, and reports about them would be mixed with the command's output. The program
/// of `run` gets the environment as it is.
fn disable_watchdog_by_default() {
    const VARIABLE: &str = "CRINGLE_WATCHDOG";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: `main` calls this before anything starts a thread that could read the
        // environment.
        unsafe { std::env::set_var(VARIABLE, "off") };
    }
}

// SAFETY: glibc and musl call every function in this section once before `main`. This one makes
// system calls and stores to atomics, which need none of std's set-up.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = startup::replace_closed_before_main;

#[global_allocator]
static ALLOCATOR: cringle_bench::CountingAllocator = cringle_bench::CountingAllocator;

fn main() -> ExitCode {
    if let Some((program, arguments)) = called_as_cp(std::env::args_os().collect()) {
        disable_watchdog_by_default();
        return cringle_cp::run(program, arguments);
    }
    let cli = Cli::of_process();
    if !matches!(cli.command, Command::Run(_)) {
        disable_watchdog_by_default();
    }
    report::set_color(cli.color);
    run(&cli).unwrap_or_else(|failure| {
        report::complain(&format!("cringle: {failure}"));
        ExitCode::from(failure.status)
    })
}

fn run(cli: &Cli) -> Result<ExitCode, Failure> {
    let trace = TraceRequest::of(cli)?;
    let files = files(&cli.command);
    let checked = trace.iter().fold(files, TraceRequest::add_to).check();
    checked.map_err(|failure| match &cli.command {
        // Status 1 would be the program's.
        Command::Run(_) if failure.status == FAILED => {
            Failure { status: cringle_launch::OWN_FAILURE, ..failure }
        }
        _ => failure,
    })?;
    let trace = trace_flag::begin(trace)?;
    let result = dispatch(cli);
    let has_trace = trace.end();
    result.map(|code| if has_trace { code } else { ExitCode::from(FAILED) })
}

/// Returns the program name and the arguments of `cringle cp …`, or of a link named `cp`: that
/// command line follows the rules of GNU, not those of clap.
fn called_as_cp(arguments: Vec<OsString>) -> Option<(&'static str, Vec<OsString>)> {
    let mut arguments = arguments.into_iter();
    let name = arguments.next()?;
    if Path::new(&name).file_name() == Some(OsStr::new("cp")) {
        return Some(("cp", arguments.collect()));
    }
    // Of the global options, only `--trace` has a meaning for `cp`.
    let mut trace = None;
    loop {
        match arguments.next()?.to_str()? {
            "cp" => {
                let trace = trace.into_iter().flat_map(|file| ["--trace".into(), file]);
                return Some(("cringle cp", trace.chain(arguments).collect()));
            }
            "-v" | "--verbose" => {}
            "--color" => drop(arguments.next()),
            // `cp` has an option of the same name.
            "--trace" => trace = Some(arguments.next()?),
            other if other.starts_with("--trace=") => {
                trace = other.strip_prefix("--trace=").map(OsString::from);
            }
            other if other.starts_with("--color=") => {}
            _ => return None,
        }
    }
}

/// Returns the files that the command line names, except the trace.
fn files(command: &Command) -> CommandFiles {
    match command {
        Command::Bench(bench) => bench.files(),
        Command::Doctor(args) => args.files(),
        Command::Trace(args) => args.files(),
        Command::Sim(args) => CommandFiles::default().result("--json", args.json.as_deref()),
        Command::Cp(_) | Command::Completions { .. } | Command::Man(_) | Command::Run(_) => {
            CommandFiles::default()
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
        Command::Run(args) => cringle_launch::run(args),
        Command::Trace(args) => cringle_trace::run(args),
        Command::Sim(args) => {
            interrupt::watch()?;
            sim::run(args)
        }
        // `called_as_cp` handles every command line that begins with `cp` or a global option.
        Command::Cp(_) => Err(Failure::usage("`cp` must be the first argument: cringle cp …")),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::definition(), "cringle", &mut script);
            report::print_bytes(&script)
        }
        Command::Man(args) => man::run(args),
    }?;
    Ok(ExitCode::SUCCESS)
}
