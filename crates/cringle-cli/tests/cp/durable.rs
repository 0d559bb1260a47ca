//! What is not on the disk when `--fsync` ends with 0, and what had its name before it was: nothing.
//!
//! The file system under our control remembers what was changed and not synced since.

use crate::common::*;
use crate::faulty::{Faulty, Op, Rules};
use crate::support::*;
use std::fs;
use std::path::Path;

/// Files in directories, one that is linked, symbolic links; with `occupied`, some names exist.
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
fn all_that_was_copied_is_synced_before_it_has_its_name() {
    let base = place("cp-durable");
    let Some(faulty) = Faulty::mount(&base, "disk", false) else { return };
    let mut wrong = Vec::new();
    for way in WAYS {
        for (occupied, jobs) in [(false, "--jobs=1"), (false, "--jobs=4"), (true, "--jobs=3")] {
            faulty.clear();
            prepare(&faulty, occupied);
            faulty.settle();
            // What is linked may have been written a moment ago.
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
            let said = command.output().unwrap();
            let (status, told) = (said.status.code(), texts(&said).1);
            let left = faulty.unsynced();
            if status == Some(0) && !left.is_empty() {
                wrong.push(format!("{way:?} {jobs} occupied: {occupied}: not synced: {left:?}"));
            }
            // Where names are taken, some of these are refused.
            if !occupied && status != Some(0) {
                wrong.push(format!("{way:?} {jobs}: {status:?} {told}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file that cannot be synced gets no name, and the old one has its own again.
#[test]
fn a_backup_of_what_could_not_be_synced_is_taken_back() {
    let base = place("cp-durable-backup");
    let Some(faulty) = Faulty::mount(&base, "disk", false) else { return };
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
        let (status, _, told) = run(&base, &[way, &["--fsync"], ends].concat());
        assert!(status == Some(1) && told.contains("error syncing"), "{way:?}: {told}");
        assert_eq!(faulty.fired(), [Op::Fsync], "{way:?}");
        assert_eq!(faulty.names("d/s"), ["victim"], "{way:?}");
        assert_eq!(faulty.get("d/s/victim").unwrap().0, b"old", "{way:?}");
    }
}

/// `--reflink=never` asks for blocks of its own: the kernel's copy within a file system may share them.
#[test]
fn a_copy_that_may_not_share_is_no_copy_within_the_kernel() {
    let base = place("cp-never-shared");
    let Some(faulty) = Faulty::mount(&base, "disk", false) else { return };
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

/// Other names of a file that could not be synced are not made links to what has its name still.
#[test]
fn a_link_to_what_could_not_be_synced_replaces_nothing() {
    let base = place("cp-durable-links");
    let Some(faulty) = Faulty::mount(&base, "disk", false) else { return };
    faulty.mkdir("d");
    let names = ["victim-1", "victim-2"];
    fs::create_dir(base.join("s")).unwrap();
    fs::write(base.join("s").join(names[0]), "new").unwrap();
    fs::hard_link(base.join("s").join(names[0]), base.join("s").join(names[1])).unwrap();
    for name in names {
        faulty.put(&format!("d/{name}"), format!("old {name}").as_bytes());
    }
    // The first is not synced; the second is copied anew, or fails as well.
    for times in [1, usize::MAX] {
        faulty.set(Rules::failing(Op::Fsync, libc::EIO, 0, times));
        let (status, _, told) = run(&base, &["-aT", "--fsync", "--jobs=1", "s", "disk/d"]);
        assert!(status == Some(1) && told.contains("error syncing"), "{told}");
        for name in names {
            let content = faulty.get(&format!("d/{name}")).unwrap().0;
            let old = format!("old {name}").into_bytes();
            assert!(content == b"new" || content == old, "{name}: {}", content.escape_ascii());
        }
    }
}

/// A source whose copy could not be synced has made nothing that a later one must not replace.
#[test]
fn what_could_not_be_synced_was_not_made() {
    let base = place("cp-durable-made");
    let Some(faulty) = Faulty::mount(&base, "disk", false) else { return };
    faulty.put("victim", b"old");
    for directory in ["a", "b"] {
        fs::create_dir(base.join(directory)).unwrap();
        fs::write(base.join(directory).join("victim"), directory).unwrap();
    }
    faulty.set(Rules::failing(Op::Fsync, libc::EIO, 0, 1));
    let (status, _, told) = run(&base, &["--fsync", "a/victim", "b/victim", "disk"]);
    assert!(status == Some(1) && told.lines().count() == 1, "{told}");
    assert_eq!(faulty.get("victim").unwrap().0, b"b");
}

/// Under POSIXLY_CORRECT a link that leads nowhere is written through, and verified.
#[test]
fn the_directory_that_a_link_leads_to_is_synced() {
    let base = place("cp-durable-posix");
    let Some(faulty) = Faulty::mount(&base, "disk", false) else { return };
    faulty.mkdir("d");
    faulty.mkdir("elsewhere");
    fs::write(base.join("s"), "text").unwrap();
    std::os::unix::fs::symlink("../elsewhere/new", faulty.at.join("d/link")).unwrap();
    faulty.settle();
    let mut command = ours();
    command.args(["--fsync", "--verify", "s", "disk/d/link"]).env("POSIXLY_CORRECT", "1");
    let said = command.current_dir(&base).output().unwrap();
    assert_eq!((said.status.code(), texts(&said).1), (Some(0), String::new()));
    assert_eq!(faulty.get("elsewhere/new").unwrap().0, b"text");
    assert_eq!(faulty.unsynced(), [""; 0]);
}
