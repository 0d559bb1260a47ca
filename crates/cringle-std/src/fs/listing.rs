//! Reads the entries of a directory, one buffer at a time (`getdents64`), so that memory does not
//! grow with the directory. A thread of the pool makes the call, because the ring has no op for it.

use super::perform::perform;
use cringle_driver::Op;
use cringle_driver::syscall::{Entries, Syscall};
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

/// The buffer's size: room for several hundred entries.
const BUFFER_BYTES: usize = 32 * 1024;

/// The offsets of the fields of `linux_dirent64`.
const RECORD_LEN: usize = 16;
const KIND: usize = 18;
const NAME: usize = 19;

/// The position in a directory that is being read.
pub(super) struct Listing {
    entries: Entries,
    at: usize,
    filled: usize,
}

/// One entry, as the kernel returns it.
pub(super) struct Record<'a> {
    pub(super) inode: u64,
    /// The file type (`DT_DIR`, …); `DT_UNKNOWN` if the file system does not store it in the
    /// directory.
    pub(super) kind: u8,
    pub(super) name: &'a CStr,
}

impl Listing {
    pub(super) fn new() -> Listing {
        let bytes = vec![0; BUFFER_BYTES].into_boxed_slice();
        Listing { entries: Entries { bytes, is_end: false }, at: 0, filled: 0 }
    }

    /// Returns the next entry other than `.` and `..`. After an error it returns `None`.
    pub(super) fn next(&mut self, directory: RawFd) -> Option<io::Result<Record<'_>>> {
        let start = loop {
            if self.at == self.filled {
                match self.fill(directory) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(e) => return Some(Err(e)),
                }
            }
            let (start, bytes) = (self.at, &self.entries.bytes);
            let len = [bytes[start + RECORD_LEN], bytes[start + RECORD_LEN + 1]];
            self.at += usize::from(u16::from_ne_bytes(len));
            if !matches!(name_in(&bytes[start..self.at]).to_bytes(), b"." | b"..") {
                break start;
            }
        };
        let record = &self.entries.bytes[start..self.at];
        let inode = u64::from_ne_bytes(record[..8].try_into().expect("eight bytes"));
        Some(Ok(Record { inode, kind: record[KIND], name: name_in(record) }))
    }

    /// Reads the next entries into the buffer. Returns `false` at the end of the directory.
    fn fill(&mut self, fd: RawFd) -> io::Result<bool> {
        if self.entries.is_end {
            return Ok(false);
        }
        let out = &raw mut self.entries;
        // SAFETY: I1. The entries are borrowed exclusively until the call returns, in which this
        // frame waits.
        let filled = unsafe { perform(Op::Syscall(Syscall::ReadDir { fd, out })) };
        (self.at, self.filled) = (0, *filled.as_ref().unwrap_or(&0));
        self.entries.is_end |= self.filled == 0;
        match filled {
            // The directory was removed, so it has no more entries.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            filled => filled.map(|count| count > 0),
        }
    }
}

fn name_in(record: &[u8]) -> &CStr {
    CStr::from_bytes_until_nul(&record[NAME..]).expect("the kernel terminates each name with a NUL")
}
