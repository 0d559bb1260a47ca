//! The bytes of a log file.
//!
//! ```text
//! header  magic, version: 8 │ salt: 4 │ zeros: 8 │ checksum of these: 4
//! record  length: 4 │ size or distance: 4 │ checksum of the bytes: 4
//!         │ checksum of the salt, the offset and these: 4 │ the bytes │ zeros up to 8
//! ```
//!
//! Integers are little-endian, checksums are CRC-32. A frame is the 16 bytes before a record. Its
//! checksum covers the salt of the log and the offset of the frame. So a frame is recognised
//! without its record, and a frame of another log, or within a record that contains a log, is not
//! taken for one of this log.
//!
//! The first frame of a group has the highest bit of its second number set, and the size of the
//! group in the others. The other frames have their distance from the group's start. So recovery
//! knows which frames were written together, and where a group ends whose first frame is intact.
//! A *filler* is a record of the log's own, with the highest bit of its length set.
//!
//! A group ends where the first frame of the next group fits into the same sector, and the group's
//! last bytes in this sector are not all zeros: otherwise a filler of 16 to 32 bytes is its last
//! record. So a first frame is in one sector, which is written as a whole. If that sector is lost,
//! then so is a part of the group before, whose size is known.
//!
//! Version 1 has neither sizes nor fillers: the first frame of a group has the distance 0. New logs
//! have version 2. A log keeps its version.

use std::ops::Range;

pub(super) const HEADER_BYTES: usize = 24;
pub(super) const FRAME_BYTES: usize = 16;
pub(super) const ALIGNMENT: usize = 8;
/// What a disk writes as a whole.
pub(super) const SECTOR_BYTES: usize = 512;
/// The most bytes that [`Format::seal`] adds to a group.
pub(super) const MOST_FILLER_BYTES: usize = 2 * FRAME_BYTES;

const MAGIC: [u8; 7] = *b"crnglog";
pub(super) const OLDEST_VERSION: u8 = 1;
pub(super) const VERSION: u8 = 2;
const CHECKED: Range<usize> = 0..HEADER_BYTES - 4;
/// Marks a filler in the first number of a frame, and the first frame of a group in the second.
const FLAG: u32 = 1 << 31;

/// What the frames of one log depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    version: u8,
    salt: u32,
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The length of the record.
    pub(super) len: usize,
    /// The offset at which the group begins that the record was written with.
    pub(super) group: u64,
    /// The end of the group, if this is its first frame. Unknown in version 1.
    pub(super) group_end: Option<u64>,
    pub(super) is_filler: bool,
    checksum: u32,
}

impl Frame {
    pub(super) fn is_of(&self, record: &[u8]) -> bool {
        checksum(record) == self.checksum
    }
}

impl Format {
    /// Returns the format of a new log.
    pub(super) fn new(salt: u32) -> Format {
        Format { version: VERSION, salt }
    }

    /// Whether the groups have sizes.
    pub(super) fn has_sizes(self) -> bool {
        self.version > 1
    }

    pub(super) fn header(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..7].copy_from_slice(&MAGIC);
        header[7] = self.version;
        header[8..12].copy_from_slice(&self.salt.to_le_bytes());
        let sum = checksum(&header[CHECKED]);
        header[CHECKED.end..].copy_from_slice(&sum.to_le_bytes());
        header
    }

    pub(super) fn of_header(header: &[u8]) -> Option<Format> {
        let header = header.get(..HEADER_BYTES)?;
        let format = Format { version: header[7], salt: u32_at(header, 8) };
        let is_known = (OLDEST_VERSION..=VERSION).contains(&format.version);
        (is_known && header == format.header()).then_some(format)
    }

    /// Returns the frame of a record at this offset. That of a group's first record is complete
    /// when the group is [sealed](Format::seal).
    pub(super) fn frame(
        self,
        offset: u64,
        back: usize,
        len: usize,
        checksum: u32,
    ) -> [u8; FRAME_BYTES] {
        self.raw_frame(offset, [len as u32, back as u32, checksum])
    }

    fn raw_frame(self, offset: u64, numbers: [u32; 3]) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..12].copy_from_slice(numbers.map(u32::to_le_bytes).as_flattened());
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
        let (mut len, mut back) = (u32_at(bytes, 0), u32_at(bytes, 4));
        let (mut group_end, mut is_filler) = (None, false);
        if self.has_sizes() {
            is_filler = len & FLAG != 0;
            len &= !FLAG;
            if back & FLAG != 0 {
                group_end = Some(offset + u64::from(back & !FLAG));
                back = 0;
            }
        }
        let (len, group) = (len as usize, offset.checked_sub(back.into())?);
        Some(Frame { len, group, group_end, is_filler, checksum: u32_at(bytes, 8) })
    }

    /// Completes the bytes of a group at this offset, before they are written.
    pub(super) fn seal(self, at: u64, group: &mut Vec<u8>) {
        if self.has_sizes() {
            self.fill(at, at + group.len() as u64, group);
            let size = group.len() as u64;
            self.set_size(at, group.first_chunk_mut().expect("a group has a frame"), size);
        }
    }

    /// Adds a filler to the last bytes of a group, which ends at `end`, if it needs one. With it
    /// the group ends at the first offset where a group may end.
    pub(super) fn fill(self, group: u64, end: u64, bytes: &mut Vec<u8>) {
        let within = |end: u64| (end % SECTOR_BYTES as u64) as usize;
        let fits = |end| (1..=SECTOR_BYTES - FRAME_BYTES).contains(&within(end));
        let in_sector = &bytes[bytes.len().saturating_sub(within(end))..];
        if fits(end) && in_sector.iter().any(|byte| *byte != 0) {
            return;
        }
        let mut record = Vec::new();
        while !fits(end + (FRAME_BYTES + record.len()) as u64) {
            record.extend_from_slice(&[0xff; ALIGNMENT]);
        }
        let numbers = [FLAG | record.len() as u32, (end - group) as u32, checksum(&record)];
        bytes.extend_from_slice(&self.raw_frame(end, numbers));
        bytes.extend_from_slice(&record);
    }

    /// Writes the size of a group into its first frame.
    pub(super) fn set_size(self, group: u64, frame: &mut [u8; FRAME_BYTES], size: u64) {
        let numbers = [u32_at(frame, 0), FLAG | size as u32, u32_at(frame, 8)];
        *frame = self.raw_frame(group, numbers);
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
    let salt = u32_at(&padded, 8);
    let mut versions = OLDEST_VERSION..=VERSION;
    versions.any(|version| Format { version, salt }.header().starts_with(&bytes[..begun]))
}

/// Returns the version of the log that begins with these bytes; `None` if it is no log.
pub(super) fn version_of(header: &[u8]) -> Option<u8> {
    header.strip_prefix(&MAGIC)?.first().copied()
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
        assert_eq!((found.len, found.group, found.group_end), (5, 4000, None));
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
    fn frames_of_version_1_have_no_flags() {
        let old = Format { version: 1, salt: 7 };
        let mut group = old.frame(24, 0, 0, 0).to_vec();
        let before = group.clone();
        old.seal(24, &mut group);
        assert_eq!(group, before);
        let found = old.read_frame(24, &group).unwrap();
        assert_eq!((found.group, found.group_end, found.is_filler), (24, None, false));
        assert_eq!(old.read_frame(24, &old.raw_frame(24, [0, FLAG | 16, 0])), None);
        let header = old.header();
        assert_eq!(Format::of_header(&header), Some(old));
        assert!(header[7] == 1 && is_unfinished_header(&header[..9]));
    }

    /// Every end, and every number of zeros before it.
    #[test]
    fn sealed_group_ends_with_a_mark_in_the_sector_of_the_next() {
        let format = Format::new(7);
        for words in 0..3 * SECTOR_BYTES / ALIGNMENT {
            for zeros in [false, true] {
                let at = HEADER_BYTES as u64;
                let record = vec![u8::from(!zeros); words * ALIGNMENT];
                let mut group = format.frame(at, 0, record.len(), checksum(&record)).to_vec();
                group.extend_from_slice(&record);
                let unsealed = group.len();
                format.seal(at, &mut group);
                assert!(group.len() <= unsealed + MOST_FILLER_BYTES);
                let end = HEADER_BYTES + group.len();
                let within = end % SECTOR_BYTES;
                assert!((ALIGNMENT..=SECTOR_BYTES - FRAME_BYTES).contains(&within), "{words}");
                let tail = &group[group.len().saturating_sub(within)..];
                assert!(tail.iter().any(|byte| *byte != 0), "{words}");
                let first = format.read_frame(at, &group).unwrap();
                assert_eq!((first.group, first.group_end), (at, Some(end as u64)));
                if let Some(bytes) = group.get(unsealed..).filter(|bytes| !bytes.is_empty()) {
                    let filler = format.read_frame(at + unsealed as u64, bytes).unwrap();
                    assert!(filler.is_filler && filler.is_of(&bytes[FRAME_BYTES..]));
                    assert_eq!((filler.group, filler.group_end), (at, None));
                }
            }
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
