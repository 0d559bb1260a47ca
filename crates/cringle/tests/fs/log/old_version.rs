//! Logs of version 1 of the format.

use super::damage::MemoryLog;
use super::{HEADER_BYTES, Records, open};
use std::io::ErrorKind;

const SALT: u32 = 7;

/// Returns the bytes of a log with these groups, and the offsets of its records by groups.
fn old_log(groups: &[&[&[u8]]]) -> (Vec<u8>, Vec<Vec<usize>>) {
    let mut bytes = [b"crnglog\x01", &SALT.to_le_bytes()[..], &[0; 8]].concat();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let mut offsets = Vec::new();
    for group in groups {
        let (start, mut own) = (bytes.len(), Vec::new());
        for record in *group {
            let at = bytes.len();
            let numbers = [record.len() as u32, (at - start) as u32, crc32fast::hash(record)];
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            let mut sum = crc32fast::Hasher::new_with_initial(SALT);
            sum.update(&(at as u64).to_le_bytes());
            sum.update(&bytes[at..]);
            bytes.extend(sum.finalize().to_le_bytes());
            bytes.extend_from_slice(record);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            own.push(at);
        }
        offsets.push(own);
    }
    (bytes, offsets)
}

const GROUPS: &[&[&[u8]]] = &[&[b"first"], &[b"second", b"", b"third"], &[b"a", b"longer last"]];

#[test]
fn log_of_version_1_keeps_its_version() {
    let (bytes, offsets) = old_log(GROUPS);
    let log = MemoryLog::new();
    log.replace(&bytes);
    let records = offsets.concat().into_iter().zip(GROUPS.concat());
    let mut expected: Records = records.map(|(at, record)| (at as u64, record.to_vec())).collect();
    let (opened, found) = open(&log.path).unwrap();
    assert_eq!(found, expected);
    assert!(log.bytes() == bytes, "it is not changed");
    expected.push((opened.append(b"appended").unwrap(), b"appended".to_vec()));
    drop(opened);
    assert_eq!(open(&log.path).unwrap().1, expected);
    // The same bytes as of a program that knows only version 1.
    let (whole, _) = old_log(&[GROUPS[0], GROUPS[1], GROUPS[2], &[b"appended"]]);
    assert!(log.bytes() == whole);
    for cut in HEADER_BYTES..bytes.len() {
        log.replace(&bytes[..cut]);
        let (_, found) = open(&log.path).unwrap();
        assert!(log.bytes() == bytes[..log.bytes().len()], "only the end is cut, at {cut}");
        assert_eq!(found, expected[..found.len()]);
    }
}

/// An intact frame of a later group shows it, and nothing else does.
#[test]
fn damage_of_version_1_is_noticed_as_before() {
    let (bytes, offsets) = old_log(GROUPS);
    let log = MemoryLog::new();
    let all: Vec<_> = offsets.concat().into_iter().zip(GROUPS.concat()).collect();
    let groups: Vec<_> = offsets.iter().map(|own| own[0]).collect();
    for start in HEADER_BYTES..bytes.len() {
        for end in start + 1..=bytes.len() {
            let mut damaged = bytes.clone();
            damaged[start..end].fill(0);
            log.replace(&damaged);
            let is_intact = |from: usize, to: usize| damaged[from..to] == bytes[from..to];
            let broken =
                all.iter().position(|(at, record)| !is_intact(*at, at + 16 + record.len()));
            let later = broken.is_some_and(|broken| {
                let is_later = |group: usize| group > all[broken].0;
                offsets.iter().zip(&groups).any(|(own, group)| {
                    is_later(*group) && own.iter().any(|at| is_intact(*at, at + 16))
                })
            });
            match open(&log.path) {
                Ok((_, found)) => {
                    assert!(!later, "{start}..{end}");
                    assert_eq!(found.len(), broken.unwrap_or(all.len()), "{start}..{end}");
                }
                Err(e) => assert!(later && e.kind() == ErrorKind::InvalidData, "{start}: {e}"),
            }
        }
    }
}
