//! Lists a directory piece by piece.
//!
//! A position in a directory is valid only for the handle that returned it. Where positions are
//! indexes (ramfs, merged directories of overlayfs, many FUSE servers), a second handle at the same
//! position skips names after others were removed. So one handle lists a directory from its
//! beginning to its end and never seeks, which some directories cannot do anyway.

use crate::sys;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An entry of a directory.
pub(crate) struct Entry {
    pub(crate) name: CString,
    /// The type that the directory gives: `DT_REG` and others.
    pub(crate) kind: u8,
}

/// Appends the next entries of this handle, until at least `limit` bytes are read or the directory
/// ends. Returns whether more may follow. After an error, `entries` has what was read before.
pub(crate) fn next_entries(
    dir: &OwnedFd,
    buffer: &mut [u8],
    limit: usize,
    entries: &mut Vec<Entry>,
) -> io::Result<bool> {
    let mut total = 0;
    while total < limit {
        let filled = sys::read_dir(dir.as_fd(), buffer)?;
        if filled == 0 {
            return Ok(false);
        }
        total += filled;
        parse(&buffer[..filled], entries);
    }
    Ok(true)
}

fn parse(mut records: &[u8], entries: &mut Vec<Entry>) {
    // `linux_dirent64`: u64 inode, i64 position, u16 length of the record, u8 type, name.
    while records.len() > 19 {
        let length = usize::from(u16::from_ne_bytes([records[16], records[17]]));
        let (record, rest) = records.split_at(length);
        if let Ok(name) = CStr::from_bytes_until_nul(&record[19..])
            && !matches!(name.to_bytes(), b"." | b"..")
        {
            entries.push(Entry { name: name.to_owned(), kind: record[18] });
        }
        records = rest;
    }
}

/// The unfinished listings. Each keeps a handle open, so their number is limited.
pub(crate) struct Listings {
    waiting: Arc<AtomicUsize>,
    most: usize,
}

impl Listings {
    pub(crate) fn new(most: usize) -> Listings {
        Listings { waiting: Arc::default(), most }
    }

    /// Puts a listing aside; `None` if too many are unfinished, so that this one must be read to
    /// its end now.
    pub(crate) fn wait_with(&self, handle: &Arc<OwnedFd>) -> Option<Waiting> {
        let one_more = |waiting| (waiting < self.most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Waiting { handle: Arc::clone(handle), counted: Arc::clone(&self.waiting) })
    }
}

/// An unfinished listing, with the handle that knows its position.
pub(crate) struct Waiting {
    handle: Arc<OwnedFd>,
    counted: Arc<AtomicUsize>,
}

impl Waiting {
    /// Returns the handle, to continue the listing.
    pub(crate) fn resume(self) -> Arc<OwnedFd> {
        Arc::clone(&self.handle)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.counted.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fs;

    #[test]
    fn pieces_contain_each_entry_once() {
        let place = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        for number in 0..100 {
            fs::write(place.path().join(format!("{number}")), "").unwrap_or_else(|e| panic!("{e}"));
        }
        let dir = OwnedFd::from(fs::File::open(place.path()).unwrap_or_else(|e| panic!("{e}")));
        let (mut entries, mut pieces, mut buffer) = (Vec::new(), 0, [0; 256]);
        while next_entries(&dir, &mut buffer, 1, &mut entries).unwrap_or_else(|e| panic!("{e}")) {
            pieces += 1;
        }
        assert!(pieces > 10);
        let names: HashSet<_> = entries.iter().map(|entry| entry.name.as_bytes()).collect();
        assert_eq!((entries.len(), names.len()), (100, 100));
    }

    #[test]
    fn unfinished_listings_are_limited() {
        let place = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let dir = fs::File::open(place.path()).unwrap_or_else(|e| panic!("{e}"));
        let (dir, listings) = (Arc::new(OwnedFd::from(dir)), Listings::new(2));
        let (first, second) = (listings.wait_with(&dir), listings.wait_with(&dir));
        assert!(first.is_some() && second.is_some() && listings.wait_with(&dir).is_none());
        drop(first.map(Waiting::resume));
        assert!(listings.wait_with(&dir).is_some());
    }
}
