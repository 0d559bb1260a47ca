//! `--trace FILE`, for every command.

use crate::cli::{Cli, Command};
use cringle_command::failure::Failure;
use cringle_command::recording::{Recording, VARIABLE, environment_file};
use cringle_report::CommandFiles;
use std::path::{Path, PathBuf};

/// The trace of this process, if it writes one.
pub(crate) struct ActiveTrace(Option<Recording>);

/// The trace that `--trace` or the environment requests.
pub(crate) struct TraceRequest {
    /// `--trace`, or the variable.
    option: &'static str,
    path: PathBuf,
    /// The process that writes it.
    writer: TraceWriter,
}

enum TraceWriter {
    /// This process, from now on.
    Command,
    /// A runtime of this process or of a child, which reads the variable.
    Library,
    /// The program of `run`, which gets the variable.
    Program,
    /// Each child process, which gets the variable.
    Children,
}

impl TraceRequest {
    /// Returns the request, or fails if the command cannot be traced.
    pub(crate) fn of(cli: &Cli) -> Result<Option<TraceRequest>, Failure> {
        let writer = match &cli.command {
            Command::Bench(one) if one.works_in_children() => TraceWriter::Children,
            Command::Run(args) if args.children => TraceWriter::Children,
            Command::Run(_) => TraceWriter::Program,
            Command::Bench(_) | Command::Sim(_) | Command::Cp(_) => TraceWriter::Command,
            _ => TraceWriter::Library,
        };
        let Some(path) = &cli.trace else {
            // The probes of `doctor` run fibers, too.
            let is_doctor = matches!(&cli.command, Command::Doctor(_));
            let runs_fibers = is_doctor || !matches!(writer, TraceWriter::Library);
            let writer = match writer {
                TraceWriter::Command => writer,
                _ => TraceWriter::Library,
            };
            let request = |path| TraceRequest { option: VARIABLE, path, writer };
            return Ok(environment_file().filter(|_| runs_fibers).map(request));
        };
        if matches!(writer, TraceWriter::Library) {
            let text = "--trace: this command has no fibers or operations to trace";
            return Err(Failure::usage(text));
        }
        Ok(Some(TraceRequest { option: "--trace", path: path.clone(), writer }))
    }

    /// Adds the file of the trace. For children, its directory and the form of its name count.
    pub(crate) fn add_to(files: CommandFiles, request: &TraceRequest) -> CommandFiles {
        let path = match request.writer {
            TraceWriter::Children if !cringle_command::is_stdout(Some(&request.path)) => {
                name_of_child(&request.path, &std::process::id().to_string())
            }
            _ => request.path.clone(),
        };
        files.result(request.option, Some(path))
    }
}

/// Starts the trace.
pub(crate) fn begin(request: Option<TraceRequest>) -> Result<ActiveTrace, Failure> {
    let Some(TraceRequest { option, path, writer }) = request else {
        return Ok(ActiveTrace(None));
    };
    match writer {
        TraceWriter::Library => return Ok(ActiveTrace(None)),
        TraceWriter::Program | TraceWriter::Children => {
            let path = match writer {
                TraceWriter::Children => name_of_child(&path, "%p"),
                _ => path,
            };
            // The program may change its directory before it starts a fiber.
            let path = std::path::absolute(path)?;
            // SAFETY: the command has started no other thread yet that could read the environment.
            unsafe { std::env::set_var(VARIABLE, path) };
            return Ok(ActiveTrace(None));
        }
        TraceWriter::Command => {}
    }
    // The first runtime would start the trace of the environment, too, but could not report that
    // the file cannot be created.
    match cringle::trace::start(&path) {
        Ok(trace) => Ok(ActiveTrace(Some(Recording::of(trace, &path)))),
        // The parent of this process writes the file. The library reports that.
        Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy && option == VARIABLE => {
            Ok(ActiveTrace(None))
        }
        Err(e) => Err(Failure::failed(format!("{option}: {e}"))),
    }
}

/// Returns the name of the trace of a child process with this number: `a-4711.pftrace` for
/// `a.pftrace`.
fn name_of_child(path: &Path, number: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push("-");
    name.push(number);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

impl ActiveTrace {
    /// Ends the trace and reports on standard error how many events it has. Returns false if it is
    /// incomplete.
    pub(crate) fn end(self) -> bool {
        self.0.is_none_or(Recording::finish)
    }
}
