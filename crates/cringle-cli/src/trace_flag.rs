//! `--trace FILE`, for every command.

use crate::cli::{Cli, Command};
use cringle_command::failure::Failure;
use cringle_command::recording::Recording;
use cringle_report as report;
use std::path::{Path, PathBuf};

/// The environment variable by which a runtime starts a trace, also in child processes.
const VARIABLE: &str = "CRINGLE_TRACE";

/// The trace of this process, if it writes one.
pub(crate) struct ActiveTrace(Option<Recording>);

/// Starts the trace that `--trace` or the environment requests.
pub(crate) fn begin(cli: &Cli) -> Result<ActiveTrace, Failure> {
    let Some(path) = &cli.trace else { return begin_by_environment(&cli.command) };
    if report::is_stdout(Some(path)) {
        return Err(Failure::usage("--trace cannot write to standard output: name a file"));
    }
    if !is_traced(&cli.command) {
        let text = "--trace: this command has no fibers or operations to trace";
        return Err(Failure::usage(text));
    }
    if works_in_children(&cli.command) {
        trace_children(path);
        return Ok(ActiveTrace(None));
    }
    let recording = Recording::start(path)?;
    report::outputs::reserve(path);
    Ok(ActiveTrace(Some(recording)))
}

/// Starts the trace that the environment requests. The first runtime would start it, too, but could
/// not report that the file cannot be created.
fn begin_by_environment(command: &Command) -> Result<ActiveTrace, Failure> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let runs_fibers = !works_in_children(command) && is_traced(command);
    let Some(path) = path.filter(|_| runs_fibers) else { return Ok(ActiveTrace(None)) };
    let path = match path.to_str() {
        Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
        None => PathBuf::from(path),
    };
    match cringle::trace::start(&path) {
        Ok(trace) => Ok(ActiveTrace(Some(Recording::of(trace, &path)))),
        // The parent of this process writes the file. The library reports that.
        Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => Ok(ActiveTrace(None)),
        Err(e) => Err(Failure::failed(format!("{VARIABLE}: {e}"))),
    }
}

/// Whether the command has something to trace.
fn is_traced(command: &Command) -> bool {
    !matches!(
        command,
        Command::Doctor(_) | Command::Trace(_) | Command::Completions { .. } | Command::Man { .. }
    )
}

/// Whether child processes do the work that a trace should show.
fn works_in_children(command: &Command) -> bool {
    matches!(command, Command::Bench(bench) if bench.works_in_children())
}

/// Lets each child process write a trace with its number in the name: `a-4711.pftrace` for
/// `a.pftrace`.
fn trace_children(path: &Path) {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push("-%p");
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    // SAFETY: the command has started no other thread yet that could read the environment.
    unsafe { std::env::set_var(VARIABLE, path.with_file_name(name)) };
}

impl ActiveTrace {
    /// Ends the trace and reports on standard error how many events it has. Returns false if it is
    /// incomplete.
    pub(crate) fn end(self) -> bool {
        self.0.is_none_or(Recording::finish)
    }
}
