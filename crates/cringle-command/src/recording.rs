//! `--trace FILE`: a trace of this process, and the line that reports how it ended.

use crate::failure::Failure;
use cringle::trace::Trace;
use std::path::{Path, PathBuf};

/// A trace that is being written.
pub struct Recording {
    trace: Trace,
    path: PathBuf,
}

impl Recording {
    /// Starts a trace of all runtimes of this process.
    pub fn start(path: &Path) -> Result<Recording, Failure> {
        Ok(Recording::of(cringle::trace::start(path)?, path))
    }

    /// Takes over a trace that has been started.
    pub fn of(trace: Trace, path: &Path) -> Recording {
        Recording { trace, path: path.into() }
    }

    /// Ends the trace and reports on standard error how many events it has.
    pub fn finish(self) {
        let path = self.path.display();
        let line = match self.trace.finish() {
            Ok(written) if written.events == 0 => {
                format!("nothing is in {path}: this command has run no fibers")
            }
            Ok(written) if written.lost == 0 => {
                format!("{} events in {path}; `cringle trace {path}` sums them up", written.events)
            }
            Ok(written) => format!(
                "{} events in {path}, and {} lost, which found no room",
                written.events, written.lost
            ),
            Err(e) => format!("the trace is incomplete: {e}"),
        };
        crate::complain(&format!("cringle: {line}"));
    }
}
