//! The errors of syncs and durable writes of which another call has the kernel's report.

use std::error::Error;
use std::fmt;
use std::io;

/// Returns the error of a sync or a durable write after a failed one.
pub(super) fn failed_before(errno: i32) -> io::Error {
    let first = io::Error::from_raw_os_error(errno);
    io::Error::new(first.kind(), FailedBefore(first))
}

/// Returns the error of a sync or a durable write that has succeeded while another one has failed.
pub(super) fn failed_meanwhile(errno: i32) -> io::Error {
    let other = io::Error::from_raw_os_error(errno);
    io::Error::new(other.kind(), FailedMeanwhile(other))
}

/// The error of a call that has succeeded, while another one has failed. The failure may concern
/// this call's bytes, also if it is a lack of space: file systems allocate space as late as by the
/// write-back.
#[derive(Debug)]
struct FailedMeanwhile(io::Error);

impl fmt::Display for FailedMeanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "another caller's sync or durable write of the file, at the same time, failed ({}); \
             the kernel does not report whose bytes were lost, so those of this call may not be \
             durable either",
            self.0
        )
    }
}

impl Error for FailedMeanwhile {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// The error of a sync or a durable write after a failed one, whose error is its source.
#[derive(Debug)]
struct FailedBefore(io::Error);

impl fmt::Display for FailedBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an earlier sync or durable write of the file failed ({}), so what was written before \
             may be lost; open the file again, and write again what no successful sync has covered",
            self.0
        )
    }
}

impl Error for FailedBefore {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn errors_say_whose_failure_they_report() {
        for (error, text) in [
            (failed_before(libc::ENOSPC), "an earlier sync or durable write of the file failed"),
            (failed_meanwhile(libc::ENOSPC), "another caller's sync or durable write of the file"),
        ] {
            assert!(error.to_string().starts_with(text), "{error}");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            let source = error.into_inner().unwrap();
            let first = source.source().unwrap().downcast_ref::<io::Error>().unwrap();
            assert_eq!(first.raw_os_error(), Some(libc::ENOSPC));
        }
    }
}
