//! `--trace FILE`, for every subcommand.

use crate::cli::{Cli, Command};
use cringle_command::failure::Failure;
use cringle_command::recording::Recording;
use cringle_report as report;
use std::path::{Path, PathBuf};

/// What the library looks for when a runtime starts, in children too.
const VARIABLE: &str = "CRINGLE_TRACE";

/// The trace of this command, until it ends.
pub(crate) struct ActiveTrace(Option<Recording>);

pub(crate) fn begin(cli: &Cli) -> Result<ActiveTrace, Failure> {
    let Some(path) = &cli.trace else { return as_the_environment_asks(&cli.command) };
    if report::is_stdout(Some(path)) {
        return Err(Failure::usage("--trace writes a file: give it a name"));
    }
    if let Command::Trace(args) = &cli.command
        && report::file::is_same(path, &args.file)
    {
        return Err(Failure::usage("--trace names the trace that is to be read"));
    }
    match works_in_children(&cli.command) {
        true => {
            hand_on(path);
            Ok(ActiveTrace(None))
        }
        false => {
            let recording = Recording::start(path)?;
            report::outputs::reserve(path);
            Ok(ActiveTrace(Some(recording)))
        }
    }
}

/// The library begins such a trace itself, with the first runtime: whose failure it would be, then, that the
/// file cannot be made.
fn as_the_environment_asks(command: &Command) -> Result<ActiveTrace, Failure> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let runs_fibers = !works_in_children(command) && !matches!(command, Command::Trace(_));
    let Some(path) = path.filter(|_| runs_fibers) else { return Ok(ActiveTrace(None)) };
    let path = match path.to_str() {
        Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
        None => PathBuf::from(path),
    };
    match cringle::trace::start(&path) {
        Ok(trace) => Ok(ActiveTrace(Some(Recording::of(trace, &path)))),
        // One who is traced has started this command: the file is that one's, and the library says so.
        Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => Ok(ActiveTrace(None)),
        Err(e) => Err(Failure::failed(format!("{VARIABLE}: {e}"))),
    }
}

/// Whether what is worth seeing happens in processes of their own.
fn works_in_children(command: &Command) -> bool {
    match command {
        Command::Bench(bench) => bench.works_in_children(),
        // It asks in forks, whose first thread is alone.
        Command::Doctor(_) => true,
        _ => false,
    }
}

/// Each child writes a file with its number in the name: `a.pftrace` becomes `a-4711.pftrace`.
fn hand_on(path: &Path) {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push("-%p");
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    // SAFETY: no other thread has been started.
    unsafe { std::env::set_var(VARIABLE, path.with_file_name(name)) };
}

impl ActiveTrace {
    /// Ends the trace and reports on standard error how many events it has.
    pub(crate) fn end(self) {
        if let Some(recording) = self.0 {
            recording.finish();
        }
    }
}
