//! Why the reads of a mapped file all go to the driver.

use std::{fmt, io};

/// The reason why a [`MappedFile`](super::MappedFile) copies nothing from memory. Its reads are
/// correct, and as fast as reads of its [`File`](cringle_std::fs::File).
///
/// ```
/// use cringle::block::{MappedFile, SigbusHandler, Unmapped};
/// use cringle::fs::File;
///
/// let version = MappedFile::new(File::open("/proc/version")?, SigbusHandler::install()?)?;
/// assert_eq!(version.unmapped(), Some(Unmapped::FileSystem));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmapped {
    /// The file belongs to a simulation, which performs each read.
    Simulation,
    /// The architecture is neither x86-64 nor aarch64.
    Architecture,
    /// The file system is not one of a local disk or of memory, or cannot map files: a mapping may
    /// wait for a server, or show old data.
    FileSystem,
    /// The kernel reports which pages are in memory only to the file's owner, to users that may
    /// write it, and with `CAP_FOWNER` (`mincore(2)`).
    Permission,
    /// The file was empty when it was opened.
    Empty,
    /// The kernel refused the mapping with this `errno`.
    Refused(i32),
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmapped::Simulation => f.write_str("a simulation performs each read"),
            Unmapped::Architecture => f.write_str("files are mapped on x86-64 and aarch64 only"),
            Unmapped::FileSystem => {
                f.write_str("its file system is not one of a local disk or of memory")
            }
            Unmapped::Permission => f.write_str(
                "the kernel reports which pages are in memory only to the owner of the file and \
                 to users who may write it: change its owner or mode",
            ),
            Unmapped::Empty => f.write_str("the file was empty: open it again when it has data"),
            Unmapped::Refused(errno) => {
                write!(f, "the kernel refused it: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}
