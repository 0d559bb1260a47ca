//! The trace of `--trace FILE`, and the line that reports its result.

use crate::failure::Failure;
use cringle::trace::Trace;
use std::path::{Path, PathBuf};

/// The environment variable by which a runtime starts a trace, also in child processes.
pub const VARIABLE: &str = "CRINGLE_TRACE";

/// Returns the file that the environment names for the trace of this process.
pub fn environment_file() -> Option<PathBuf> {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
    Some(match path.to_str() {
        Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
        None => PathBuf::from(path),
    })
}

/// A trace in progress.
pub struct Recording {
    trace: Trace,
    path: PathBuf,
}

impl Recording {
    /// Starts a trace of all runtimes of this process.
    pub fn start(path: &Path) -> Result<Recording, Failure> {
        Ok(Recording::of(cringle::trace::start(path)?, path))
    }

    /// Takes over a trace that was started elsewhere.
    pub fn of(trace: Trace, path: &Path) -> Recording {
        Recording { trace, path: path.into() }
    }

    /// Ends the trace and prints its number of events to standard error. Returns false if the file
    /// is incomplete.
    pub fn finish(self) -> bool {
        let path = self.path.display();
        let finished = self.trace.finish();
        let is_complete = finished.is_ok();
        let line = match finished {
            Ok(written) if written.events == 0 => {
                format!("{path} has no events: this command ran no fibers")
            }
            Ok(written) if written.lost == 0 => {
                format!("{} events in {path}; `cringle trace {path}` summarises it", written.events)
            }
            Ok(written) => format!(
                "{} events in {path}; {} more were lost because a buffer was full",
                written.events, written.lost
            ),
            Err(e) => format!("the trace is incomplete: {e}"),
        };
        crate::complain(&format!("cringle: {line}"));
        is_complete
    }
}
