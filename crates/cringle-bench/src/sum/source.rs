//! Where the bytes come from.

use super::args::Cache;
use super::feed::{Feeder, window};
use crate::notes::Notes;
use crate::target::Target;
use cringle_report::failure::Failure;
use cringle_report::machine::cache;
use std::fs::File;
use std::io;
use std::net::{TcpStream, UdpSocket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Tcp,
    Udp,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Tcp => "tcp",
            Kind::Udp => "udp",
        }
    }
}

pub(super) enum Source {
    File(Target),
    Tcp { bytes: u64, message: u64 },
    Udp { bytes: u64, message: u64 },
}

/// A source that is open, at its beginning.
pub(super) enum Open {
    File(File),
    Tcp(TcpStream, Feeder),
    Udp(UdpSocket, Credits, Feeder),
}

/// When the reader of datagrams is to tell that it has read them.
#[derive(Clone, Copy)]
pub(super) struct Credits {
    window: u64,
    read: u64,
}

impl Credits {
    /// One more was read: whether it is time.
    pub(super) fn are_due(&mut self) -> bool {
        self.read += 1;
        self.read.is_multiple_of(self.window)
    }
}

/// What has the other process begin, and what gives it credit.
pub(super) const GO: &[u8] = &[1];
/// What says that all datagrams were read: until then the sender's socket must stay.
pub(super) const END: &[u8] = &[0];

/// A rest of pages in the cache that no one can get rid of does not count.
const NEGLIGIBLE: f64 = 0.01;

impl Source {
    pub(super) fn open(&self) -> io::Result<Open> {
        Ok(match self {
            Source::File(target) => Open::File(target.files[0].open(false, false)?),
            Source::Tcp { bytes, message } => {
                let (stream, feeder) = Feeder::start(*bytes, *message)?;
                Open::Tcp(stream, feeder)
            }
            Source::Udp { bytes, message } => {
                let (socket, feeder) = Feeder::start_datagrams(*bytes, *message)?;
                Open::Udp(socket, Credits { window: window(*message), read: 0 }, feeder)
            }
        })
    }

    /// Brings the page cache into the state that is asked for.
    pub(super) fn prepare(&self, state: Option<Cache>, notes: &mut Notes) -> Result<(), Failure> {
        let (Source::File(target), Some(state)) = (self, state) else { return Ok(()) };
        let (file, bytes) = (&target.files[0].0, target.file_bytes);
        match state {
            Cache::Warm => {
                cache::warm(file, bytes)?;
                let there = cache::resident(file, bytes)?;
                if there < 1.0 - NEGLIGIBLE {
                    let percent = there * 100.0;
                    notes.add(format!(
                        "only {percent:.0} % of the file stays in the page cache: the warm runs \
                         are not all warm"
                    ));
                }
            }
            Cache::Cold => {
                cache::evict(file)?;
                let left = cache::resident(file, bytes)?;
                if left > NEGLIGIBLE {
                    let percent = left * 100.0;
                    notes.add(format!(
                        "{percent:.0} % of the file could not be dropped from the page cache: the \
                         cold runs are not all cold"
                    ));
                }
            }
        }
        Ok(())
    }
}
