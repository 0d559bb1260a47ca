//! Damaged files are errors, or are read as far as they go.

use super::{examine, text_of};
use std::fs;
use std::path::Path;

/// A program that each machine has. It is short, so that many of its variants can be read.
const PROGRAM: &str = "/bin/sh";

/// Examines a file with these bytes. Returns whether it could be read.
fn is_read(place: &Path, bytes: &[u8]) -> bool {
    fs::write(place, bytes).unwrap();
    match examine(place) {
        Ok(report) => text_of(&report).contains("Verdict"),
        Err(failure) => {
            let text = failure.to_string();
            assert!(text.starts_with(&place.display().to_string()), "{text}");
            false
        }
    }
}

#[test]
fn damaged_files_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let place = &directory.path().join("program");
    let whole = fs::read(PROGRAM).unwrap();
    assert!(is_read(place, &whole));
    // The first bytes one by one, then in steps.
    let lengths = (0..256).chain((256..whole.len()).step_by(997));
    let read = lengths.filter(|length| is_read(place, &whole[..*length])).count();
    assert_eq!(read, 0, "the headers of sections are at the end of the file");
    let mut random = 1;
    for _ in 0..500 {
        let mut bytes = whole.clone();
        (0..4).for_each(|_| damage(&mut bytes, &mut random));
        is_read(place, &bytes);
    }
}

/// Flips a bit, or writes an extreme number, mostly into the headers: those of the segments are at
/// the start of the file, those of the sections at the end.
fn damage(bytes: &mut [u8], random: &mut u64) {
    // Knuth's generator.
    *random =
        random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let value = (*random >> 32) as usize;
    let last = bytes.len() - 2048;
    let (start, length) = [(0, 64), (0, 1024), (last, 2048), (0, bytes.len())][value & 3];
    let at = start + (value >> 8) % length;
    if value & 4 == 0 {
        bytes[at] ^= 1 << (value >> 4 & 7);
        return;
    }
    let whole = bytes.len() as u64;
    let number = [0, 1, whole - 8, whole, i64::MAX as u64, u64::MAX - 7, u64::MAX, 1 << 40];
    let at = (at & !7).min(bytes.len() - 8);
    bytes[at..at + 8].copy_from_slice(&number[value >> 4 & 7].to_le_bytes());
}
