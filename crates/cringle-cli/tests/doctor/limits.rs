//! Limits that are too low are told, with how to raise them.

use crate::common::*;
use crate::support::*;

#[test]
fn few_descriptors_are_told() {
    let place = place("doctor-nofile");
    let said = surely_said(|| {
        let mut command = doctor(&place);
        limited(&mut command, libc::RLIMIT_NOFILE, 64);
        command
    });
    assert_eq!(said.status, 0, "64 are enough for a ring");
    let limit = said.limit("open files");
    assert_eq!((&limit["value"], &limit["enough"]), (&"64 (hard 64)".into(), &false.into()));
    assert!(limit["remedy"].as_str().unwrap().contains("LimitNOFILE="));
    assert!(said.joined().contains("open files 64 (hard 64), TOO LOW"), "{}", said.text);
    // An older kernel lacks features, too, which come before.
    let verdict = said.verdict();
    let lack = verdict.split_once("it lacks ").map_or("", |(_, lack)| lack);
    assert!(lack.contains("more open files than 64"), "{verdict}");
}

#[test]
fn no_descriptor_at_all_for_a_ring_is_told() {
    let place = place("doctor-no-descriptor");
    let said = surely_said(|| {
        let mut command = doctor(&place);
        without_inherited_files(&mut command);
        // Standard streams and a pipe; a ring would be the sixth.
        limited(&mut command, libc::RLIMIT_NOFILE, 5);
        command
    });
    assert_eq!((said.status, said.cause_kinds()), (3, vec!["descriptors"]));
    assert!(said.joined().contains("no file descriptor is left for a ring"), "{}", said.text);
    assert!(said.verdict().contains("ulimit -n"), "{}", said.verdict());
}

const CAP_IPC_LOCK: libc::c_ulong = 14;

fn with_locked_memory(name: &str, bytes: u64) -> Said {
    let place = place(name);
    surely_said(|| {
        let mut command = doctor(&place);
        without_capability(&mut command, CAP_IPC_LOCK);
        limited(&mut command, libc::RLIMIT_MEMLOCK, bytes);
        command
    })
}

#[test]
fn little_locked_memory_is_told() {
    let said = with_locked_memory("doctor-memlock", 16 << 10);
    let limit = said.limit("locked memory");
    assert_eq!(limit["value"], "16 KiB (hard 16 KiB)");
    assert!(said.joined().contains("locked memory 16 KiB"), "{}", said.text);
    let wants = limit["enough"].as_bool().unwrap();
    if wants {
        eprintln!("SKIPPED, HALF OF IT: this kernel does not count rings as locked memory");
        assert_eq!(said.status, 0);
        return;
    }
    assert_eq!((said.status, said.cause_kinds()), (3, vec!["locked-memory"]));
    assert!(said.verdict().contains("RLIMIT_MEMLOCK is too small"), "{}", said.verdict());
    assert!(said.verdict().contains("ulimit -l unlimited"), "{}", said.verdict());
    assert!(said.joined().contains("LimitMEMLOCK="), "{}", said.text);
}

#[test]
fn no_locked_memory_at_all_is_told_by_the_first_ring() {
    let said = with_locked_memory("doctor-no-memlock", 0);
    if said.status == 0 {
        eprintln!("SKIPPED, NOTHING WAS TESTED: this kernel does not count rings as locked memory");
        assert_eq!(said.limit("locked memory")["enough"], true);
        return;
    }
    assert_eq!(said.calls()[0], "denied");
    assert_eq!(said.cause_kinds(), ["locked-memory"]);
    assert!(said.joined().contains("io_uring_setup denied: Cannot allocate memory"));
}
