//! The measurements, and their interruption.

use super::support::*;
use crate::common::*;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn measuring(place: &Path, seconds: &str) -> Command {
    let mut command = cringle(place);
    command.args(["doctor", "--quiet", "--seconds", seconds]);
    command
}

fn rows(found: &Value) -> Vec<(String, u64, u64)> {
    let reads = found["measured"]["reads"].as_array().unwrap().iter();
    let number = |read: &Value, name: &str| read[name].as_u64().unwrap();
    reads
        .map(|read| {
            let profile = read["profile"].as_str().unwrap().to_owned();
            (profile, number(read, "block_bytes"), number(read, "queue_depth"))
        })
        .collect()
}

#[test]
fn the_ring_is_measured_beside_pread() {
    let place = place("doctor-measured");
    let report = report_of(|| measuring(&place, "1"));
    assert_eq!(report.status, 0);
    let row = |profile: &str, bytes, depth| (profile.to_owned(), bytes, depth);
    let mut expected = vec![
        row("cached", 4096, 1),
        row("cached", 4096, 32),
        row("cached", 64, 1),
        row("cached", 64, 32),
    ];
    if report.json["paths"][0]["direct"]["state"] == "yes" {
        expected.extend([row("direct", 4096, 1), row("direct", 4096, 32)]);
    }
    assert_eq!(rows(&report.json), expected);
    for read in report.json["measured"]["reads"].as_array().unwrap() {
        for way in ["pread", "ring", "fibers"] {
            assert!(read[way].as_f64().unwrap() > 0.0, "{way}: {read}");
        }
    }
    assert!(report.json["measured"]["fiber_switch_ns"].as_f64().unwrap() > 0.0);
    assert!(report.verdict().contains("1 worker read"), "{}", report.verdict());
    assert!(report.joined().contains("A switch between fibers takes"), "{}", report.text);
    assert!(is_empty(&place));
}

#[test]
fn without_a_ring_pread_is_measured_alone() {
    let place = place("doctor-measured-denied");
    let report = report_of(|| {
        let mut command = measuring(&place, "0.5");
        filtered(&mut command, filter(&[SETUP], seccompiler::SeccompAction::KillProcess));
        command
    });
    assert_eq!(report.status, 3);
    let reads = report.json["measured"]["reads"].as_array().unwrap();
    assert!(!reads.is_empty());
    for read in reads {
        assert!(read["pread"].as_f64().unwrap() > 0.0, "{read}");
        assert_eq!((&read["ring"], &read["fibers"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn a_measurement_that_fails_is_explained() {
    let place = place("doctor-unmeasured");
    let file = place.join("short");
    std::fs::write(&file, "short").unwrap();
    let report = report_of(|| {
        let mut command = measuring(&place, "0.1");
        command.arg(&file);
        command
    });
    assert_eq!((report.status, rows(&report.json)), (0, vec![]));
    assert!(report.joined().contains("were not measured: "), "{}", report.text);
    assert!(report.joined().contains("less than one block of 4 KiB"), "{}", report.text);
}

/// Returns whether the child has started to measure: it then has a file of this size open.
fn is_measuring(child: &Child) -> bool {
    let size = 32 << 20;
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let mut files = descriptors.flatten().filter_map(|entry| std::fs::metadata(entry.path()).ok());
    files.any(|file| file.size() == size)
}

#[test]
fn an_interruption_is_status_130_and_leaves_no_file() {
    let place = place("doctor-interrupted");
    let mut command = measuring(&place, "3600");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !is_measuring(&child) {
        assert_eq!(child.try_wait().unwrap(), None, "the child ended before it measured");
        std::thread::yield_now();
    }
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: a system call without pointers. The child has not been reaped, so that the number is
    // still its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(texts(&output).1.contains("interrupted"));
    assert!(is_empty(&place));
}
