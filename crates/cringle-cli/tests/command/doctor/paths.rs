//! The report of a path agrees with what its file system does.

use super::support::*;
use crate::common::mounts::Mount;
use crate::common::*;
use cringle_testing::disk;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn states(report: &Report) -> Vec<&str> {
    let place = &report.json["paths"][0];
    let names = ["direct", "nowait_reads", "nowait_writes", "reflink"];
    names.iter().map(|name| place[name]["state"].as_str().unwrap()).collect()
}

fn at(place: &Path, path: &Path) -> Report {
    report_of(|| {
        let mut command = doctor(place);
        command.arg(path);
        command
    })
}

#[test]
fn a_path_that_is_not_utf_8_is_reported() {
    use std::os::unix::ffi::OsStrExt;
    let place = place("doctor-bytes");
    let path = place.join(std::ffi::OsStr::from_bytes(b"a\xff"));
    fs::create_dir_all(&path).unwrap();
    let output = doctor(&place).args(["--no-measure", "--json", "-"]).arg(&path).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown = report["paths"][0]["path"].as_str().unwrap();
    assert!(shown.ends_with("a\u{fffd}"), "{shown}");
}

#[test]
fn each_file_systems_capabilities_are_found() {
    let place = place("doctor-mounts");
    if !is_root() {
        eprintln!("SKIPPED, NOTHING WAS TESTED: only root can mount file systems");
        return;
    }
    let base = tempfile::tempdir_in(&place).unwrap();
    let expected = [
        ("ext4", 64, ["yes", "yes", "no", "no"]),
        ("xfs", 300, ["yes", "yes", "yes", "yes"]),
        ("btrfs", 256, ["yes", "yes", "yes", "yes"]),
    ];
    for (kind, mebibytes, does) in expected {
        let Some(mount) = Mount::new(base.path(), kind, mebibytes) else { continue };
        let report = at(&place, &mount.0);
        let path = &report.json["paths"][0];
        assert_eq!((report.status, states(&report)), (0, does.to_vec()), "{kind}: {}", report.text);
        assert_eq!(path["filesystem"], kind);
        assert_eq!(path["mount_point"], mount.0.to_str().unwrap());
        assert!(path["device"].as_str().unwrap().starts_with("loop"), "{path}");
        assert!(path["direct_alignment"]["offset_bytes"].as_u64().unwrap() >= 512, "{path}");
        assert!(report.joined().contains(&format!(", {kind} device loop")), "{}", report.text);
        assert!(is_empty_but_lost_and_found(&mount.0), "{kind}");
        a_device_is_only_read(&place, path["device"].as_str().unwrap());
    }
}

fn a_device_is_only_read(place: &Path, name: &str) {
    let report = at(place, &Path::new("/dev").join(name));
    let path = &report.json["paths"][0];
    assert_eq!((&path["filesystem"], &path["device"]), (&"block device".into(), &name.into()));
    assert_eq!(states(&report), ["yes", "yes", "unknown", "unknown"], "{}", report.text);
}

fn is_empty_but_lost_and_found(place: &Path) -> bool {
    fs::read_dir(place).unwrap().all(|entry| entry.unwrap().file_name() == "lost+found")
}

#[test]
fn a_file_system_in_memory_is_reported() {
    let place = place("doctor-tmpfs");
    let inner = place.join("memory");
    fs::create_dir(&inner).unwrap();
    let changed = try_report_of("a tmpfs", || {
        let mut command = doctor(&place);
        with_tmpfs(&mut command, &inner, 0);
        command.arg(&inner);
        command
    });
    let Some(report) = changed else { return };
    let path = &report.json["paths"][0];
    assert_eq!((report.status, &path["filesystem"]), (0, &"tmpfs".into()));
    assert!(path["in_memory"].as_str().unwrap().contains("tmpfs"));
    assert_eq!((&path["device"], &path["writable"]), (&Value::Null, &true.into()));
    assert_eq!(states(&report)[3], "no");
    assert!(report.joined().contains("figures are not those of a disk"), "{}", report.text);
}

#[test]
fn without_write_permission_writes_are_unknown() {
    let place = place("doctor-read-only");
    let inner = place.join("read-only");
    fs::create_dir(&inner).unwrap();
    let root = is_root();
    if !root {
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let changed = try_report_of("a read-only mount", || {
        let mut command = doctor(&place);
        if root {
            with_tmpfs(&mut command, &inner, libc::MS_RDONLY);
        }
        command.arg(&inner);
        command
    });
    let Some(report) = changed else { return };
    let path = &report.json["paths"][0];
    assert_eq!((report.status, &path["writable"]), (0, &false.into()));
    assert_eq!(states(&report), ["unknown"; 4]);
    let why = if root { "Read-only file system" } else { "Permission denied" };
    assert!(path["not_writable_because"].as_str().unwrap().contains(why), "{path}");
    assert!(
        report.joined().contains(&format!("writable no temporary file: {why}")),
        "{}",
        report.text
    );
}

#[test]
fn a_file_is_not_written() {
    let place = place("doctor-file");
    let file = place.join("data");
    fs::write(&file, noise(64 << 10)).unwrap();
    let report = at(&place, &file);
    let nowait_reads = if disk::reads_without_waiting() { "yes" } else { "no" };
    assert_eq!((report.status, states(&report)[1]), (0, nowait_reads), "{}", report.text);
    assert_eq!(states(&report)[2..], ["unknown", "unknown"]);
    assert_eq!(fs::read(&file).unwrap(), noise(64 << 10));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
}

#[test]
fn every_path_is_reported() {
    let place = place("doctor-several");
    let report = report_of(|| {
        let mut command = doctor(&place);
        command.args([".", "/"]);
        command
    });
    assert_eq!(report.json["paths"].as_array().unwrap().len(), 2);
    assert!(
        report.text.contains("\nPath .\n") && report.text.contains("\nPath /\n"),
        "{}",
        report.text
    );
}

#[test]
fn a_missing_path_is_status_1() {
    let place = place("doctor-missing");
    let output = doctor(&place).arg("no/such/place").output().unwrap();
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert!(err.contains("no/such/place: cannot examine it"), "{err}");
    assert!(err.contains("give an existing directory"), "{err}");
}
