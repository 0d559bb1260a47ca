//! Damaged logs, compared with what the documentation of `Log` says about damage.

use super::{HEADER_BYTES, Records, open};
use cringle::block::Log;
use cringle_testing::child;
use fastrand::Rng;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;
const FLAG: u32 = 1 << 31;

/// A record in the bytes of a log, or a filler.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) at: usize,
    /// The end of its bytes, before the padding.
    end: usize,
    pub(crate) group: usize,
    pub(crate) group_end: usize,
    is_filler: bool,
}

/// Returns the units of an intact log of version 2.
pub(crate) fn units(bytes: &[u8]) -> Vec<Unit> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut units, mut at, mut group, mut group_end) = (Vec::new(), HEADER_BYTES, 0, HEADER_BYTES);
    while at < bytes.len() {
        let (len, place) = (number(at), number(at + 4));
        if place & FLAG != 0 {
            assert_eq!(at, group_end, "a group begins where the one before ends");
            (group, group_end) = (at, at + (place & !FLAG) as usize);
        }
        assert!(place & FLAG != 0 || at - place as usize == group, "byte {at}");
        let end = at + 16 + (len & !FLAG) as usize;
        units.push(Unit { at, end, group, group_end, is_filler: len & FLAG != 0 });
        at = end.next_multiple_of(8);
    }
    assert_eq!((at, group_end), (bytes.len(), bytes.len()));
    units
}

/// Returns the number of units in front of the damage, which remain; `None` if the damage is
/// noticed. `is_changed` says whether the damage changes any of these bytes.
fn expected(units: &[Unit], is_changed: impl Fn(Range<usize>) -> bool) -> Option<usize> {
    if is_changed(0..HEADER_BYTES) {
        return None;
    }
    let Some(first) = units.iter().position(|unit| is_changed(unit.at..unit.end)) else {
        return Some(units.len());
    };
    let Unit { at, group, .. } = units[first];
    let is_frame_changed = |unit: &Unit| is_changed(unit.at..unit.at + 16);
    let mut later = units[first..].iter().filter(|unit| unit.group > group).peekable();
    let is_last = later.peek().is_none();
    let is_unknown = at == group && is_frame_changed(&units[first]);
    let is_noticed = !is_last && (!is_unknown || later.any(|unit| !is_frame_changed(unit)));
    (!is_noticed).then_some(first)
}

/// Returns whether a part of the bytes changes when this range is filled.
fn changes<'b>(
    bytes: &'b [u8],
    range: &'b Range<usize>,
    fill: u8,
) -> impl Fn(Range<usize>) -> bool + 'b {
    move |part| {
        let both = part.start.max(range.start)..part.end.min(range.end);
        both.start < both.end && bytes[both].iter().any(|byte| *byte != fill)
    }
}

/// A log in memory, so that syncs take no time.
pub(crate) struct MemoryLog {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl MemoryLog {
    pub(crate) fn new() -> MemoryLog {
        // SAFETY: the name is a C string, and the new descriptor has no other owner.
        let file = unsafe {
            let fd = libc::memfd_create(c"log".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        let path = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
        MemoryLog { file, path }
    }

    /// Appends groups of records of these lengths.
    fn append(&self, groups: &[&[usize]], byte: u8) {
        let (log, _) = open(&self.path).unwrap();
        for group in groups {
            let enqueue = |len: &usize| log.enqueue(&vec![byte; *len]).unwrap();
            log.wait_durable(group.iter().map(enqueue).last().unwrap()).unwrap();
        }
    }

    /// Cuts bytes off the end, as a crash can, and opens the log.
    fn tear(&self, bytes: u64) {
        let len = self.file.metadata().unwrap().len();
        self.file.set_len(len - bytes).unwrap();
        open(&self.path).unwrap();
    }

    pub(crate) fn replace(&self, bytes: &[u8]) {
        self.file.set_len(bytes.len() as u64).unwrap();
        self.file.write_all_at(bytes, 0).unwrap();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.file.metadata().unwrap().len() as usize];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Damages ranges of the log, each by itself, and compares what is found. Returns the number
    /// of ranges.
    fn check(&self, fill: u8, ranges: impl IntoIterator<Item = Range<usize>>) -> usize {
        let (bytes, records) = (self.bytes(), open(&self.path).unwrap().1);
        assert!(bytes == self.bytes(), "an intact log is not changed");
        let (units, mut damaged, mut count) = (units(&bytes), bytes.clone(), 0);
        for range in ranges {
            let expected = expected(&units, changes(&bytes, &range, fill));
            damaged[range.clone()].fill(fill);
            self.replace(&damaged);
            let context = format!("{range:?} of {} filled with {fill:#x}", bytes.len());
            match (open(&self.path), expected) {
                (Ok((log, found)), Some(kept)) => {
                    let end = units.get(kept).map_or(bytes.len(), |unit| unit.at);
                    let is_kept = |(offset, _): &&(u64, Vec<u8>)| (*offset as usize) < end;
                    let before: Records = records.iter().filter(is_kept).cloned().collect();
                    assert_eq!(found, before, "{context}");
                    assert_eq!(log.cut_bytes(), (bytes.len() - end) as u64, "{context}");
                    if count % 8 == 0 {
                        self.continue_after(log, found);
                    }
                }
                (Err(e), None) => {
                    assert_eq!(e.kind(), ErrorKind::InvalidData, "{context}");
                    assert!(self.bytes() == damaged, "{context}: the file is left alone");
                    if count % 8 == 0 {
                        self.truncate_as_advised(&e.to_string(), &records);
                    }
                }
                (opened, _) => panic!("{context}: {expected:?} units, but {:?}", opened.map(drop)),
            }
            damaged[range.clone()].copy_from_slice(&bytes[range]);
            count += 1;
        }
        self.replace(&bytes);
        count
    }

    /// The text of the error says what can be kept.
    fn truncate_as_advised(&self, error: &str, records: &Records) {
        let Some((_, rest)) = error.split_once("truncate it to ") else { return };
        let len: u64 = rest.split_once(' ').unwrap().0.parse().unwrap();
        self.file.set_len(len).unwrap();
        let (log, found) = open(&self.path).unwrap();
        let is_before = |(offset, _): &&(u64, Vec<u8>)| *offset < len;
        assert!(found.iter().eq(records.iter().filter(is_before)), "{error}");
        self.continue_after(log, found);
    }

    /// What was cut does not return, and the file is a whole log.
    fn continue_after(&self, log: Log, mut found: Records) {
        found.push((log.append(b"next").unwrap(), b"next".to_vec()));
        drop(log);
        units(&self.bytes());
        assert_eq!(open(&self.path).unwrap().1, found);
    }

    /// All ranges whose ends are multiples of `step`; without `CRINGLE_FULL=1` each third of them.
    fn check_all(&self, step: usize) -> usize {
        let len = self.bytes().len();
        let ends = (0..len).step_by(step).chain([len]);
        let from =
            |start| ends.clone().map(move |end| start..end).filter(|range| !range.is_empty());
        self.check(0, ends.clone().flat_map(from).step_by(child::scaled(3, 1)))
    }

    /// Loses sectors, one after the other. Only that of the last group is not noticed.
    fn check_sectors(&self) {
        let bytes = self.bytes();
        let units = units(&bytes);
        let last_group = units.last().unwrap().group;
        for fill in [0, 0xa5] {
            for start in (0..bytes.len()).step_by(SECTOR) {
                for end in (start + SECTOR..bytes.len() + SECTOR).step_by(SECTOR) {
                    let range = start..end.min(bytes.len());
                    let is_changed = changes(&bytes, &range, fill);
                    let is_lost = |unit: &Unit| is_changed(unit.at..unit.end);
                    let is_noticed = expected(&units, &is_changed).is_none();
                    let must_be =
                        units.iter().any(|unit| unit.group != last_group && is_lost(unit));
                    assert!(is_noticed || !must_be, "{range:?} filled with {fill:#x}");
                    self.check(fill, [range.clone()]);
                }
            }
        }
    }
}

#[test]
fn damage_is_noticed_as_documented() {
    let small = MemoryLog::new();
    small.append(&[&[5], &[9, 0, 3], &[20]], 7);
    let cut = MemoryLog::new();
    cut.append(&[&[30], &[12, 90]], 7);
    cut.tear(60);
    assert_eq!(open(&cut.path).unwrap().1.len(), 2);
    cut.append(&[&[20], &[1], &[20]], 8);
    let mut count = small.check_all(1) + cut.check_all(1);
    // Groups end with a sector or near its end, and with zeros.
    let sectors = MemoryLog::new();
    sectors.append(&[&[456], &[480 - 16], &[3]], 7);
    sectors.append(&[&[480], &[460], &[3, 4]], 0);
    assert!(units(&sectors.bytes()).iter().filter(|unit| unit.is_filler).count() >= 3);
    let many = MemoryLog::new();
    many.append(&[&[20][..]; 30], 7);
    count += sectors.check_all(8) + many.check_all(8);
    assert!(count > child::scaled(13_000, 40_000), "{count}");
}

/// What remains of the torn group says that it ends there.
#[test]
fn lost_sector_behind_a_cut_is_noticed() {
    let log = MemoryLog::new();
    log.append(&[&[350], &[120, 900]], 7);
    log.tear(600);
    assert_eq!(open(&log.path).unwrap().1.len(), 2);
    log.append(&[&[20][..]; 8], 8);
    let mut bytes = log.bytes();
    bytes[512..].fill(0);
    log.replace(&bytes);
    let error = open(&log.path).unwrap_err();
    assert!(error.to_string().contains("the record at byte 392 is not intact"), "{error}");
}

#[test]
fn lost_sectors_are_noticed_unless_of_the_last_group() {
    for seed in 0..child::scaled(10, 30) as u64 {
        let (mut rng, log) = (Rng::with_seed(seed), MemoryLog::new());
        let steps = 3 + rng.u64(..30);
        for _ in 0..steps {
            let lens: Vec<_> = (0..=rng.u64(..4))
                .map(|_| match rng.u64(..4) {
                    0 => rng.usize(..900),
                    _ => rng.usize(..40),
                })
                .collect();
            log.append(&[&lens], rng.u8(..3));
            if rng.u64(..4) == 0 {
                let group = units(&log.bytes()).last().map(|unit| unit.group_end - unit.group);
                log.tear(rng.u64(..group.unwrap() as u64 + 1));
            }
        }
        log.append(&[&[10], &[10, 10]], 9);
        log.check_sectors();
        let len = log.bytes().len() as u64;
        let ranges = (0..200).map(|_| {
            let start = rng.u64(..len);
            start as usize..(start + 1 + rng.u64(..len - start)) as usize
        });
        log.check(0, ranges);
    }
}

/// A crash in recovery leaves the cut, and of what is written then any part.
#[test]
fn recovery_that_was_cut_off_is_repeated() {
    let log = MemoryLog::new();
    // The second group keeps a record that ends with a sector, so recovery adds a filler.
    log.append(&[&[100], &[340, 400, 30]], 7);
    let torn_at = units(&log.bytes())[2].at;
    assert_eq!(torn_at % SECTOR, 504);
    let whole = log.bytes();
    for torn_len in (torn_at..whole.len()).step_by(7) {
        log.replace(&whole[..torn_len]);
        let (opened, records) = open(&log.path).unwrap();
        let (end, kept) = (opened.end() as usize, records.len());
        drop(opened);
        let after = log.bytes();
        assert_eq!(after.len(), end);
        // The cut is durable, and a part of the filler; the first frame is the old or the new one.
        let cut = torn_at.max(end - 16 * usize::from(units(&after).last().unwrap().is_filler));
        for first in [&whole, &after] {
            for filler_len in cut..=end {
                for lost in [0, 8, 16] {
                    let mut partly = after[..filler_len].to_vec();
                    let lost_from = filler_len.saturating_sub(lost).max(cut);
                    partly[lost_from..].fill(0);
                    let group = units(&after)[1].at;
                    partly[group..group + 16].copy_from_slice(&first[group..group + 16]);
                    log.replace(&partly);
                    let (opened, found) = open(&log.path).unwrap();
                    assert_eq!(found.len(), kept, "{torn_len} {filler_len} {lost}");
                    log.continue_after(opened, found);
                }
            }
        }
    }
}

#[test]
fn no_record_is_at_the_end_of_a_cut_log() {
    let log = MemoryLog::new();
    log.append(&[&[100], &[340, 400]], 7);
    log.file.set_len(600).unwrap();
    let (cut, found) = open(&log.path).unwrap();
    assert!(units(&log.bytes()).last().unwrap().is_filler);
    let wait = |offset| cut.wait_durable(offset).map_err(|error| error.kind());
    assert_eq!(wait(cut.end()), Err(ErrorKind::InvalidInput));
    assert_eq!(wait(found[1].0), Ok(()));
    let filler = units(&log.bytes()).last().unwrap().at as u64;
    assert_eq!(cut.read(filler).unwrap_err().kind(), ErrorKind::InvalidData);
    assert!(cut.check().is_ok() && cut.cut_bytes() == 600 - filler);
    assert_eq!(cut.append(b"next").unwrap(), filler + 16);
}
