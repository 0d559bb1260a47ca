//! The report names limits that are too low, and how to raise them.

use super::support::*;
use crate::common::*;

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
    assert!(report.verdict().contains("ulimit -n"), "{}", report.verdict());
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
    assert!(report.verdict().contains("ulimit -l unlimited"), "{}", report.verdict());
    assert!(report.joined().contains("LimitMEMLOCK="), "{}", report.text);
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
