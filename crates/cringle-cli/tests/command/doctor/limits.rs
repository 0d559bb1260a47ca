//! The report names limits that are too low, and how to raise them.

use super::support::*;
use crate::common::*;
use std::path::Path;
use std::process::Command;

#[test]
fn a_low_limit_of_descriptors_is_reported() {
    let place = place("doctor-nofile");
    let report = report_of(|| {
        let mut command = doctor(&place);
        limited(&mut command, libc::RLIMIT_NOFILE, 64);
        command
    });
    assert_eq!(report.status, 0, "64 descriptors are enough for a ring");
    let limit = report.limit("open files");
    assert_eq!((&limit["value"], &limit["enough"]), (&"64 (hard 64)".into(), &false.into()));
    assert!(limit["remedy"].as_str().unwrap().contains("LimitNOFILE="));
    assert!(report.joined().contains("open files 64 (hard 64), TOO LOW"), "{}", report.text);
    // On an older kernel, missing features precede the limits.
    let verdict = report.verdict();
    let lack = verdict.split_once("it lacks ").map_or("", |(_, lack)| lack);
    assert!(lack.contains("more open files than 64"), "{verdict}");
}

#[test]
fn no_free_descriptor_is_a_cause() {
    let place = place("doctor-no-descriptor");
    let report = report_of(|| {
        let mut command = doctor(&place);
        without_inherited_files(&mut command);
        // Three standard streams and a pipe use five; a ring would be the sixth.
        limited(&mut command, libc::RLIMIT_NOFILE, 5);
        command
    });
    assert_eq!((report.status, report.cause_kinds()), (3, vec!["descriptors"]));
    assert!(report.joined().contains("no file descriptor is free for a ring"), "{}", report.text);
    assert!(report.verdict().contains("higher hard limit"), "{}", report.verdict());
}

/// A runtime needs more descriptors than its rings.
#[test]
fn too_few_descriptors_are_not_blamed_on_workers() {
    let place = place("doctor-few-descriptors");
    for limit in [6, 12, 24, 30] {
        let report = report_of(|| {
            let mut command = doctor(&place);
            without_inherited_files(&mut command);
            limited(&mut command, libc::RLIMIT_NOFILE, limit);
            command.env("CRINGLE_WORKERS", "16");
            command
        });
        assert_eq!((report.status, report.cause_kinds()), (3, vec!["descriptors"]), "{limit}");
        assert!(report.verdict().contains("LimitNOFILE="), "{limit}: {}", report.verdict());
    }
}

const CAP_IPC_LOCK: libc::c_ulong = 14;

fn with_locked_memory(name: &str, bytes: u64) -> Report {
    let place = place(name);
    report_of(|| {
        let mut command = doctor(&place);
        without_capability(&mut command, CAP_IPC_LOCK);
        limited(&mut command, libc::RLIMIT_MEMLOCK, bytes);
        command
    })
}

#[test]
fn too_little_locked_memory_is_a_cause() {
    let report = with_locked_memory("doctor-memlock", 16 << 10);
    let limit = report.limit("locked memory");
    assert_eq!(limit["value"], "16 KiB (hard 16 KiB)");
    assert!(report.joined().contains("locked memory 16 KiB"), "{}", report.text);
    let wants = limit["enough"].as_bool().unwrap();
    if wants {
        eprintln!("PARTLY SKIPPED: this kernel does not count rings as locked memory");
        assert_eq!(report.status, 0);
        return;
    }
    assert_eq!((report.status, report.cause_kinds()), (3, vec!["locked-memory"]));
    assert!(report.verdict().contains("RLIMIT_MEMLOCK is too small"), "{}", report.verdict());
    let remedies = &report.json["io_uring"]["causes"][0]["remedies"];
    assert_eq!(remedies[0], report.verdict().rsplit_once("what to do: ").unwrap().1);
    let first = remedies[0].as_str().unwrap().to_lowercase();
    assert!(first.contains("memlock"), "no setting of this place: {remedies}");
}

#[test]
fn without_locked_memory_setup_is_denied() {
    let report = with_locked_memory("doctor-no-memlock", 0);
    if report.status == 0 {
        eprintln!("SKIPPED, NOTHING WAS TESTED: this kernel does not count rings as locked memory");
        assert_eq!(report.limit("locked memory")["enough"], true);
        return;
    }
    assert_eq!(report.calls()[0], "denied");
    assert_eq!(report.cause_kinds(), ["locked-memory"]);
    assert!(report.joined().contains("io_uring_setup denied: Cannot allocate memory"));
}

/// The command as a user of its own, because the kernel counts all rings of a user together.
fn as_another_user(place: &Path, memory: u64) -> Command {
    let mut command = with_few_threads(place, 1000).expect("the caller is root");
    limited(&mut command, libc::RLIMIT_MEMLOCK, memory);
    command.args(["doctor", "--no-measure"]).env("CRINGLE_WORKERS", "3");
    command
}

#[test]
fn the_size_of_a_ring_is_what_the_kernel_counts() {
    if !is_root() {
        eprintln!("SKIPPED, NOTHING WAS TESTED: only root is another user");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let with = |memory| report_of(|| as_another_user(place.path(), memory));
    let report = with(4 << 20);
    let rings = |report: &Report| report.json["io_uring"]["locked_memory"].clone();
    let found = rings(&report);
    let bytes = found["ring_bytes"].as_u64().unwrap();
    if found["counted"] == false {
        eprintln!("PARTLY SKIPPED: this kernel does not count rings as locked memory");
        assert!(report.joined().contains("this kernel does not count rings"), "{}", report.text);
        return;
    }
    assert_eq!(found["counted"], true);
    assert_eq!(found["counted_ring_bytes"], bytes, "the size is computed otherwise: {found}");
    // Rings of the command's last run may not be freed yet.
    let others = found["others_bytes"].as_u64().unwrap();
    let fit = format!("so {} fit", ((4 << 20) - others) / bytes);
    let meaning = report.limit("locked memory")["meaning"].as_str().unwrap();
    assert!(meaning.ends_with(&fit), "{fit}: {meaning}");
    // Exactly enough for three workers, and one byte less.
    let enough = with(3 * bytes);
    assert_eq!((enough.status, &rings(&enough)["created"]), (0, &3.into()), "{}", enough.text);
    let less = with(3 * bytes - 1);
    assert_eq!((less.status, less.cause_kinds()), (3, vec!["locked-memory"]), "{}", less.text);
    assert_eq!(rings(&less)["created"], 2);
    let what = less.json["io_uring"]["causes"][0]["what"].as_str().unwrap();
    assert!(what.contains("only 2 of 3 rings") && what.contains("they need "), "{what}");
}

#[test]
fn a_soft_limit_is_raised_by_ulimit() {
    let place = place("doctor-soft-memlock");
    let report = report_of(|| {
        let mut command = doctor(&place);
        without_capability(&mut command, CAP_IPC_LOCK);
        soft_limited(&mut command, libc::RLIMIT_MEMLOCK, 16 << 10);
        command
    });
    if report.json["io_uring"]["locked_memory"]["counted"] == false {
        eprintln!("SKIPPED, NOTHING WAS TESTED: this kernel does not count rings as locked memory");
        return;
    }
    assert_eq!((report.status, report.cause_kinds()), (3, vec!["locked-memory"]));
    let remedy = report.json["io_uring"]["causes"][0]["remedies"][0].as_str().unwrap();
    let kibibytes = remedy.strip_prefix("ulimit -l ").unwrap_or_else(|| panic!("{remedy}"));
    let workers = report.json["io_uring"]["locked_memory"]["workers"].as_u64().unwrap();
    let ring = report.json["io_uring"]["locked_memory"]["ring_bytes"].as_u64().unwrap();
    assert!(kibibytes.parse::<u64>().unwrap() * 1024 >= workers * ring, "{remedy}");
}
