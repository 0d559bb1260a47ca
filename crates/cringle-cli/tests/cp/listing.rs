//! Directories whose positions belong to one open handle, that cannot seek, or whose files are
//! removed while they are listed; and the bound on unfinished listings.

use crate::common::*;
use crate::support::*;
use cringle_testing::fuse::{Faulty, Rules};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A name so long that one piece of a listing has a few hundred of them.
fn long(name: &str) -> String {
    format!("{name:_<60}")
}

/// Makes a directory of several pieces below another, with subdirectories in its first piece, which
/// have more pieces.
fn make_wide(faulty: &Faulty, top: &str) {
    faulty.mkdir(top);
    let at = &format!("{top}/wide");
    faulty.mkdir(at);
    for number in 0..600 {
        faulty.put(&format!("{at}/{}", long(&format!("f{number}"))), b"text");
    }
    for number in 0..24 {
        let sub = format!("{at}/d{number}");
        faulty.mkdir(&sub);
        for number in 0..8 {
            faulty.mkdir(&format!("{sub}/e{number}"));
            faulty.put(&format!("{sub}/e{number}/file"), b"text");
        }
    }
}

/// Makes nested directories of several pieces.
fn make_deep(faulty: &Faulty, at: &str, levels: usize) {
    let mut dir = at.to_owned();
    faulty.mkdir(at);
    for _ in 0..levels {
        for number in 0..240 {
            faulty.put(&format!("{dir}/{}", long(&format!("f{number}"))), b"text");
        }
        dir.push_str("/d");
        faulty.mkdir(&dir);
    }
}

fn paths(of: &Path) -> BTreeSet<String> {
    fn look(at: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            let path = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                look(&entry.path(), &path, found);
            }
            found.insert(path);
        }
    }
    let mut found = BTreeSet::new();
    look(of, "", &mut found);
    found
}

/// Copies `source` from the file system with each of these, and compares the names. `descriptors`:
/// the limit.
fn copies_all(faulty: &Faulty, source: &str, ways: &[&[&str]], descriptors: usize) {
    let from = faulty.at.join(source);
    for way in ways {
        let place = place_in_memory("cp-listing");
        let mut command = limited("n", descriptors);
        command.args(*way).arg(&from).arg("copy");
        let output = output_of(command, place.path(), b"");
        assert_eq!(texts(&output), (String::new(), String::new()), "{way:?}");
        let (source, copy) = (paths(&from), paths(&place.path().join("copy")));
        let missing: Vec<_> = source.difference(&copy).take(3).collect();
        assert!(source == copy, "{way:?}: of {}: {missing:?} …", source.len());
    }
}

const WAYS: [&[&str]; 4] =
    [&["-r", "--jobs", "1"], &["-r"], &["-a", "--jobs", "3"], &["-a", "--fsync"]];

#[test]
fn a_directory_is_listed_by_one_handle() {
    let base = tempfile::tempdir().unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    make_wide(&faulty, "wide");
    make_deep(&faulty, "deep", 8);
    copies_all(&faulty, "wide", &WAYS, 1024);
    // Fewer listings may be unfinished than the tree has levels.
    copies_all(&faulty, "deep", &WAYS, 40);
    copies_all(&faulty, "wide", &WAYS, 20);
}

#[test]
fn a_directory_that_cannot_seek_is_copied() {
    let base = tempfile::tempdir().unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    make_wide(&faulty, "wide");
    faulty.set(Rules { unseekable: true, ..Rules::default() });
    copies_all(&faulty, "wide", &WAYS, 1024);
    let dry = ["-r", "--dry-run", "wide", "copy"];
    let (status, out, err) = run(&faulty.at, &dry);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(out.lines().count(), paths(&faulty.at.join("wide")).len() + 1);
}
