//! A file system that gives one answer for ever: each copy ends.

use crate::common::*;
use crate::faulty::{Faulty, Op, Rules};
use std::fs;

/// The number of times that a copy may get the same errno.
const LIMIT: usize = 5000;

const OPS: &[Op] = &[
    Op::Lookup,
    Op::Getattr,
    Op::Truncate,
    Op::Setattr,
    Op::Open,
    Op::Create,
    Op::Write,
    Op::Flush,
    Op::Fsync,
    Op::Rename,
    Op::Readdir,
    Op::Mkdir,
    Op::Unlink,
    Op::Link,
];

const ERRNOS: &[i32] =
    &[libc::EPERM, libc::ENOENT, libc::EAGAIN, libc::EEXIST, libc::EXDEV, libc::ENOTDIR];

const WAYS: &[&[&str]] = &[&["-a"], &["-rf", "--fsync"], &["-r", "--remove-destination"]];

#[test]
fn one_errno_for_ever_ends_each_copy() {
    let base = tempfile::tempdir_in(place("cp-endless")).unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty", false) else { return };
    let source = base.path().join("victims");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("victim"), "strand").unwrap();
    fs::hard_link(source.join("victim"), source.join("victim-too")).unwrap();
    for (&op, &errno) in OPS.iter().flat_map(|op| ERRNOS.iter().map(move |errno| (op, errno))) {
        for way in WAYS {
            faulty.set(Rules::default());
            faulty.clear();
            faulty.mkdir("victims");
            faulty.put("victims/victim", b"old");
            faulty.set(Rules::failing(op, errno, 0, LIMIT));
            let mut command = cringle(base.path());
            let output = command.arg("cp").args(*way).arg(&source).arg(&faulty.at).output();
            let answers = faulty.fired().len();
            let (_, err) = texts(&output.unwrap());
            assert!(answers < LIMIT, "{way:?}, {op:?}, {errno}: {answers}\n{err}");
        }
    }
}
