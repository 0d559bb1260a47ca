//! The sources of bytes: a file, or a TCP connection.

use super::args::Cache;
use super::feed::Feeder;
use crate::experiment::Notes;
use crate::target::Target;
use cringle_report::failure::Failure;
use cringle_report::machine::cache::{self, NEGLIGIBLE};
use std::fs::File;
use std::io;
use std::net::TcpStream;

pub(super) enum Source {
    File(Target),
    Tcp { bytes: u64, message: u64 },
}

/// An open source, at its beginning.
pub(super) enum Open {
    File(File),
    Tcp(TcpStream, Feeder),
}

/// The message that lets the sending process begin.
pub(super) const GO: &[u8] = &[1];
impl Source {
    pub(super) fn open(&self) -> io::Result<Open> {
        Ok(match self {
            Source::File(target) => Open::File(target.file.open(false, false)?),
            Source::Tcp { bytes, message } => {
                let (stream, feeder) = Feeder::start(*bytes, *message)?;
                Open::Tcp(stream, feeder)
            }
        })
    }

    /// Fills or empties the page cache.
    pub(super) fn prepare(&self, state: Option<Cache>, notes: &mut Notes) -> Result<(), Failure> {
        let (Source::File(target), Some(state)) = (self, state) else { return Ok(()) };
        let (file, bytes) = (&target.file.0, target.file_bytes);
        match state {
            Cache::Warm => cache::warm(file, bytes)?,
            Cache::Cold => cache::evict(file)?,
        }
        let cached = cache::resident(file, bytes)?;
        let percent = cached * 100.0;
        match state {
            Cache::Warm if cached < 1.0 - NEGLIGIBLE => notes.add(format!(
                "only {percent:.0} % of the file stays in the page cache: the warm runs read \
                 partly from the device"
            )),
            Cache::Cold if cached > NEGLIGIBLE => notes.add(format!(
                "{percent:.0} % of the file could not be dropped from the page cache: the cold \
                 runs read partly from memory"
            )),
            _ => {}
        }
        Ok(())
    }
}
