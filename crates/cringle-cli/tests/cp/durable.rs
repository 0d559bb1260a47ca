//! `--fsync`: after status 0 everything is on the disk, and no file had its name before its data
//! were.
//!
//! The file system under the test's control records every change that has not been synced.

use crate::common::*;
use crate::support::*;
use cringle_testing::fuse::{Faulty, Op, Rules};
use std::fs;
use std::path::Path;

/// Makes directories, files, a hard link and symbolic links; with `occupied`, also some targets.
fn prepare(faulty: &Faulty, occupied: bool) {
    for directory in ["s", "s/a", "s/a/b", "s/empty", "d"] {
        faulty.mkdir(directory);
    }
    faulty.put("s/small", b"small");
    faulty.put("s/a/large", &noise(300_000));
    faulty.put("s/a/b/first", &noise(5000));
    faulty.link("s/a/b/first", "s/second");
    std::os::unix::fs::symlink("small", faulty.at.join("s/link")).unwrap();
    std::os::unix::fs::symlink("../small", faulty.at.join("s/a/another")).unwrap();
    if occupied {
        faulty.mkdir("d/s");
        faulty.mkdir("d/s/a");
        faulty.put("d/s/small", b"an old one");
        faulty.put("d/s/a/large", &noise(1000));
        faulty.link("d/s/a/large", "d/s/a/larger");
        std::os::unix::fs::symlink("nowhere", faulty.at.join("d/s/link")).unwrap();
    }
}

const WAYS: [&[&str]; 22] = [
    &["-r", "s", "d"],
    &["-a", "s", "d"],
    &["-aL", "s", "d"],
    &["-rL", "--preserve=links", "s", "d"],
    &["-rH", "--preserve=links", "s/link", "s/small", "d"],
    &["-rl", "s", "d"],
    &["-rlf", "s", "d"],
    &["-l", "s/small", "d/new"],
    &["-rs", "--remove-destination", "SOURCE", "d"],
    &["-rb", "s", "d"],
    &["-rb", "--suffix=.old", "--preserve=all", "s", "d"],
    &["-rf", "--remove-destination", "s", "d"],
    &["-ru", "s", "d"],
    &["--parents", "s/a/b/first", "d"],
    &["--parents", "-a", "s/a", "s/small", "d"],
    &["--parents", "-p", "s/a/b/first", "s/small", "s/second", "d"],
    &["-rT", "s", "d/another"],
    &["-r", "--sparse=always", "s", "d"],
    &["-r", "--reflink=auto", "--block-size=4k", "s", "d"],
    &["-p", "s/small", "s/a/large", "s/second", "d"],
    &["--attributes-only", "-p", "s/small", "d"],
    &["-a", "--verify", "s", "d"],
];

#[test]
fn files_are_synced_before_they_are_named() {
    let base = place("cp-durable");
    let Some(faulty) = Faulty::mount(&base, "disk") else { return };
    let mut wrong = Vec::new();
    for way in WAYS {
        for (occupied, jobs) in [(false, "--jobs=1"), (false, "--jobs=4"), (true, "--jobs=3")] {
            faulty.clear();
            prepare(&faulty, occupied);
            faulty.settle();
            // The file to link to may have been written a moment ago.
            if way[0].starts_with("-rl") || way[0] == "-l" {
                fs::write(faulty.at.join("s/small"), "written now").unwrap();
            }
            if way[0].starts_with("-rl") {
                fs::write(faulty.at.join("s/a/large"), noise(9000)).unwrap();
            }
            let source = faulty.at.join("s");
            let named = |text: &&str| match *text {
                "SOURCE" => source.clone(),
                text => Path::new(text).to_owned(),
            };
            let mut command = ours();
            command.args(["--fsync", jobs]).args(way.iter().map(named)).current_dir(&faulty.at);
            let output = command.output().unwrap();
            let (status, stderr) = (output.status.code(), texts(&output).1);
            let left = faulty.unsynced();
            if status == Some(0) && !left.is_empty() {
                wrong.push(format!("{way:?} {jobs} occupied: {occupied}: not synced: {left:?}"));
            }
            // Onto existing targets, some of these are refused.
            if !occupied && status != Some(0) {
                wrong.push(format!("{way:?} {jobs}: {status:?} {stderr}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file that cannot be synced does not get its name, and the backup is renamed back.
#[test]
fn a_failed_sync_restores_the_backup() {
    let base = place("cp-durable-backup");
    let Some(faulty) = Faulty::mount(&base, "disk") else { return };
    for way in [&["-b"][..], &["--backup=numbered"], &["-rb"]] {
        faulty.clear();
        faulty.mkdir("d");
        faulty.mkdir("d/s");
        faulty.put("d/s/victim", b"old");
        fs::create_dir_all(base.join("s")).unwrap();
        fs::write(base.join("s/victim"), "new").unwrap();
        faulty.set(Rules::failing(Op::Fsync, libc::ENOSPC, 0, 1));
        let ends: &[&str] =
            if way == ["-rb"] { &["s", "disk/d"] } else { &["s/victim", "disk/d/s"] };
        let (status, _, stderr) = run(&base, &[way, &["--fsync"], ends].concat());
        assert!(status == Some(1) && stderr.contains("error syncing"), "{way:?}: {stderr}");
        assert_eq!(faulty.fired(), [Op::Fsync], "{way:?}");
        assert_eq!(faulty.names("d/s"), ["victim"], "{way:?}");
        assert_eq!(faulty.get("d/s/victim").unwrap().0, b"old", "{way:?}");
    }
}

/// `--reflink=never` requests blocks of its own; a copy within the kernel may share them.
#[test]
fn reflink_never_avoids_copies_within_the_kernel() {
    let base = place("cp-never-shared");
    let Some(faulty) = Faulty::mount(&base, "disk") else { return };
    let bytes = noise(300_000);
    for (reflink, asked) in [("--reflink=auto", true), ("--reflink=never", false)] {
        faulty.clear();
        faulty.put("victim", &bytes);
        faulty.set(Rules::failing(Op::CopyRange, libc::EOPNOTSUPP, 0, 1));
        copies(&base, &[reflink, "disk/victim", "disk/copy"]);
        assert_eq!(faulty.fired().contains(&Op::CopyRange), asked, "{reflink}");
        assert!(faulty.get("copy").unwrap().0 == bytes, "{reflink}");
    }
}

/// Other names of a file that could not be synced must not become links to the old file.
#[test]
fn a_failed_sync_makes_no_links() {
    let base = place("cp-durable-links");
    let Some(faulty) = Faulty::mount(&base, "disk") else { return };
    faulty.mkdir("d");
    let names = ["victim-1", "victim-2"];
    fs::create_dir(base.join("s")).unwrap();
    fs::write(base.join("s").join(names[0]), "new").unwrap();
    fs::hard_link(base.join("s").join(names[0]), base.join("s").join(names[1])).unwrap();
    for name in names {
        faulty.put(&format!("d/{name}"), format!("old {name}").as_bytes());
    }
    // The first file is not synced; the second one is copied anew, or fails as well.
    for times in [1, usize::MAX] {
        faulty.set(Rules::failing(Op::Fsync, libc::EIO, 0, times));
        let (status, _, stderr) = run(&base, &["-aT", "--fsync", "--jobs=1", "s", "disk/d"]);
        assert!(status == Some(1) && stderr.contains("error syncing"), "{stderr}");
        for name in names {
            let content = faulty.get(&format!("d/{name}")).unwrap().0;
            let old = format!("old {name}").into_bytes();
            assert!(content == b"new" || content == old, "{name}: {}", content.escape_ascii());
        }
    }
}

/// A source whose copy could not be synced has made no target, so a later source may replace the
/// file.
#[test]
fn a_failed_sync_does_not_block_later_sources() {
    let base = place("cp-durable-made");
    let Some(faulty) = Faulty::mount(&base, "disk") else { return };
    faulty.put("victim", b"old");
    for directory in ["a", "b"] {
        fs::create_dir(base.join(directory)).unwrap();
        fs::write(base.join(directory).join("victim"), directory).unwrap();
    }
    faulty.set(Rules::failing(Op::Fsync, libc::EIO, 0, 1));
    let (status, _, stderr) = run(&base, &["--fsync", "a/victim", "b/victim", "disk"]);
    assert!(status == Some(1) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(faulty.get("victim").unwrap().0, b"b");
}

/// Under POSIXLY_CORRECT a dangling link is written through, and verified.
#[test]
fn the_directory_behind_a_link_is_synced() {
    let base = place("cp-durable-posix");
    let Some(faulty) = Faulty::mount(&base, "disk") else { return };
    faulty.mkdir("d");
    faulty.mkdir("elsewhere");
    fs::write(base.join("s"), "text").unwrap();
    std::os::unix::fs::symlink("../elsewhere/new", faulty.at.join("d/link")).unwrap();
    faulty.settle();
    let mut command = ours();
    command.args(["--fsync", "--verify", "s", "disk/d/link"]).env("POSIXLY_CORRECT", "1");
    let output = command.current_dir(&base).output().unwrap();
    assert_eq!((output.status.code(), texts(&output).1), (Some(0), String::new()));
    assert_eq!(faulty.get("elsewhere/new").unwrap().0, b"text");
    assert_eq!(faulty.unsynced(), [""; 0]);
}
