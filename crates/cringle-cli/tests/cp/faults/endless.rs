//! A file system that gives one answer for ever: each copy ends.

use crate::common::*;
use cringle_testing::fuse::Faulty;
use std::fs;

const WAYS: &[&[&str]] = &[&["-a"], &["-rf", "--fsync"], &["-r", "--remove-destination"]];

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
    for way in WAYS {
        faulty.call_ends(way, prepare, || {
            let mut command = cringle(base.path());
            let output = command.arg("cp").args(*way).arg(&source).arg(&faulty.at).output();
            texts(&output.unwrap()).1
        });
    }
}
