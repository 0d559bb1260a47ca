//! A file system that gives one answer for ever: each copy ends.

use crate::common::*;
use cringle_testing::child::scaled;
use cringle_testing::fuse::Faulty;
use std::cell::Cell;
use std::fs;

const WAYS: &[&[&str]] = &[&["-a"], &["-rf", "--fsync"], &["-r", "--remove-destination"]];

/// Each copy with another error has the next way, so that each way meets every op and every error;
/// with `CRINGLE_FULL=1` it meets each op with each error.
#[test]
fn one_errno_for_ever_ends_each_copy() {
    let base = tempfile::tempdir_in(place("cp-endless")).unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    let source = base.path().join("victims");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("victim"), "strand").unwrap();
    fs::hard_link(source.join("victim"), source.join("victim-too")).unwrap();
    let prepare = |faulty: &Faulty| {
        faulty.mkdir("victims");
        faulty.put("victims/victim", b"old");
    };
    for first in 0..scaled(1, WAYS.len()) {
        let number = Cell::new(first);
        faulty.call_ends(format!("from way {first} on"), prepare, || {
            let way = WAYS[number.replace(number.get() + 1) % WAYS.len()];
            let mut command = cringle(base.path());
            let output = command.arg("cp").args(way).arg(&source).arg(&faulty.at).output();
            (way, texts(&output.unwrap()).1)
        });
    }
}
