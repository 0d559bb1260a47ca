//! The bytes of a log file.
//!
//! ```text
//! header  magic, version: 8 │ salt: 4 │ zeros: 8 │ checksum of these: 4
//! record  length: 4 │ distance from the group's start: 4 │ checksum of the bytes: 4
//!         │ checksum of the salt, the offset and these: 4 │ the bytes │ zeros up to 8
//! ```
//!
//! Integers are little-endian, checksums are CRC-32. A frame, the 16 bytes before a record, is
//! recognised by itself: the salt and the offset keep apart what another log, or a record that
//! contains a log, has at the same place. The distance shows which frames were written together,
//! so that recovery can tell a torn group from damage.

use std::ops::Range;

pub(super) const HEADER_BYTES: usize = 24;
pub(super) const FRAME_BYTES: usize = 16;
pub(super) const ALIGNMENT: usize = 8;

const MAGIC: [u8; 8] = *b"crnglog\x01";
pub(super) const VERSION: u8 = MAGIC[7];
const CHECKED: Range<usize> = 0..HEADER_BYTES - 4;

/// What the frames of one log depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    salt: u32,
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The length of the record.
    pub(super) len: usize,
    /// The offset at which the group begins that the record was written with.
    pub(super) group: u64,
    checksum: u32,
}

impl Frame {
    pub(super) fn is_of(&self, record: &[u8]) -> bool {
        checksum(record) == self.checksum
    }
}

impl Format {
    pub(super) fn new(salt: u32) -> Format {
        Format { salt }
    }

    pub(super) fn header(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.salt.to_le_bytes());
        let sum = checksum(&header[CHECKED]);
        header[CHECKED.end..].copy_from_slice(&sum.to_le_bytes());
        header
    }

    pub(super) fn of_header(header: &[u8]) -> Option<Format> {
        let salt = Format::new(u32_at(header.get(..HEADER_BYTES)?, 8));
        (header == salt.header()).then_some(salt)
    }

    /// Returns the frame of a record at this offset.
    pub(super) fn frame(
        self,
        offset: u64,
        back: usize,
        len: usize,
        checksum: u32,
    ) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
        frame[4..8].copy_from_slice(&(back as u32).to_le_bytes());
        frame[8..12].copy_from_slice(&checksum.to_le_bytes());
        let sum = self.checksum(offset, &frame[..12]);
        frame[12..].copy_from_slice(&sum.to_le_bytes());
        frame
    }

    /// Returns the frame at this offset, if it is intact.
    pub(super) fn read_frame(self, offset: u64, bytes: &[u8]) -> Option<Frame> {
        let bytes = bytes.get(..FRAME_BYTES)?;
        // Most of what a search for frames meets is empty.
        if bytes == [0; FRAME_BYTES] || u32_at(bytes, 12) != self.checksum(offset, &bytes[..12]) {
            return None;
        }
        let group = offset.checked_sub(u32_at(bytes, 4).into())?;
        Some(Frame { len: u32_at(bytes, 0) as usize, group, checksum: u32_at(bytes, 8) })
    }

    fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.salt);
        hasher.update(&offset.to_le_bytes());
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// Whether these bytes, the whole file, may be what a crash has left of its creation: at most as
/// many as a header has, of which the first are the begin of one, and the others zeros.
pub(super) fn is_unfinished_header(bytes: &[u8]) -> bool {
    let begun = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut padded = [0; HEADER_BYTES];
    if bytes.len() > HEADER_BYTES {
        return false;
    }
    padded[..begun].copy_from_slice(&bytes[..begun]);
    Format::new(u32_at(&padded, 8)).header().starts_with(&bytes[..begun])
}

/// Returns the version of the log that begins with these bytes; `None` if it is no log.
pub(super) fn version_of(header: &[u8]) -> Option<u8> {
    header.strip_prefix(&MAGIC[..7])?.first().copied()
}

/// Returns the space that a record takes in the file.
pub(super) fn space_of(record_len: usize) -> usize {
    (FRAME_BYTES + record_len).next_multiple_of(ALIGNMENT)
}

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn frame_is_read_only_where_it_was_written() {
        let (format, offset) = (Format::new(7), 4096);
        let frame = format.frame(offset, 96, 5, checksum(b"bytes"));
        let found = format.read_frame(offset, &frame).unwrap();
        assert_eq!((found.len, found.group), (5, 4000));
        assert!(found.is_of(b"bytes") && !found.is_of(b"bytez"));
        assert_eq!(format.read_frame(offset + 8, &frame), None);
        assert_eq!(Format::new(8).read_frame(offset, &frame), None);
        for bit in 0..FRAME_BYTES * 8 {
            let mut damaged = frame;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(format.read_frame(offset, &damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn header_is_recognised_and_its_beginnings_are_unfinished() {
        let header = Format::new(9).header();
        assert_eq!(Format::of_header(&header), Some(Format::new(9)));
        for cut in 0..HEADER_BYTES {
            assert_eq!(Format::of_header(&header[..cut]), None);
            assert!(is_unfinished_header(&header[..cut]));
            let mut zeroed = header;
            zeroed[cut..].fill(0);
            assert!(is_unfinished_header(&zeroed), "{cut}");
        }
        assert!(is_unfinished_header(&[0; HEADER_BYTES]));
        assert!(!is_unfinished_header(b"a text"));
        // Another program's file.
        assert!(!is_unfinished_header(&[[0; 8], 7_u64.to_le_bytes()].concat()));
        assert!(!is_unfinished_header(&[0; HEADER_BYTES + 1]));
        for foreign in [&b"crnglog\x01 and a text"[..], b"crnglog\x01saltand", b"crx", b"c\0x"] {
            assert!(!is_unfinished_header(foreign), "{foreign:?}");
        }
        for byte in 8..HEADER_BYTES {
            let mut damaged = header;
            damaged[byte] ^= 1;
            assert!(!is_unfinished_header(&damaged), "{byte}");
        }
    }
}
