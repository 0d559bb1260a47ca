//! What is said of a path is what its file system does.

use crate::common::mounts::Mount;
use crate::common::*;
use crate::support::*;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn states(said: &Said) -> Vec<&str> {
    let place = &said.json["paths"][0];
    let names = ["direct", "nowait_reads", "nowait_writes", "reflink"];
    names.iter().map(|name| place[name]["state"].as_str().unwrap()).collect()
}

fn at(place: &Path, path: &Path) -> Said {
    surely_said(|| {
        let mut command = doctor(place);
        command.arg(path);
        command
    })
}

#[test]
fn file_systems_are_told_apart_by_what_they_do() {
    let place = place("doctor-mounts");
    if !is_root() {
        eprintln!("SKIPPED, NOTHING WAS TESTED: only root mounts file systems");
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
        let said = at(&place, &mount.0);
        let path = &said.json["paths"][0];
        assert_eq!((said.status, states(&said)), (0, does.to_vec()), "{kind}: {}", said.text);
        assert_eq!(path["filesystem"], kind);
        assert_eq!(path["mount_point"], mount.0.to_str().unwrap());
        assert!(path["device"].as_str().unwrap().starts_with("loop"), "{path}");
        assert!(path["direct_alignment"]["offset_bytes"].as_u64().unwrap() >= 512, "{path}");
        assert!(said.joined().contains(&format!(", {kind} device loop")), "{}", said.text);
        assert!(is_empty_but_lost_and_found(&mount.0), "{kind}");
        a_device_is_only_read(&place, path["device"].as_str().unwrap());
    }
}

fn a_device_is_only_read(place: &Path, name: &str) {
    let said = at(place, &Path::new("/dev").join(name));
    let path = &said.json["paths"][0];
    assert_eq!((&path["filesystem"], &path["device"]), (&"block device".into(), &name.into()));
    assert_eq!(states(&said), ["yes", "yes", "unknown", "unknown"], "{}", said.text);
}

fn is_empty_but_lost_and_found(place: &Path) -> bool {
    fs::read_dir(place).unwrap().all(|entry| entry.unwrap().file_name() == "lost+found")
}

#[test]
fn memory_is_no_disk() {
    let place = place("doctor-tmpfs");
    let inner = place.join("memory");
    fs::create_dir(&inner).unwrap();
    let changed = said("a tmpfs", || {
        let mut command = doctor(&place);
        with_tmpfs(&mut command, &inner, 0);
        command.arg(&inner);
        command
    });
    let Some(said) = changed else { return };
    let path = &said.json["paths"][0];
    assert_eq!((said.status, &path["filesystem"]), (0, &"tmpfs".into()));
    assert!(path["in_memory"].as_str().unwrap().contains("tmpfs"));
    assert_eq!((&path["device"], &path["writable"]), (&Value::Null, &true.into()));
    assert_eq!(states(&said)[3], "no");
    assert!(said.joined().contains("figures of it are no disk's"), "{}", said.text);
}

#[test]
fn where_nothing_can_be_written_what_needs_it_is_unknown() {
    let place = place("doctor-read-only");
    let inner = place.join("read-only");
    fs::create_dir(&inner).unwrap();
    let root = is_root();
    if !root {
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let changed = said("a read-only mount", || {
        let mut command = doctor(&place);
        if root {
            with_tmpfs(&mut command, &inner, libc::MS_RDONLY);
        }
        command.arg(&inner);
        command
    });
    let Some(said) = changed else { return };
    let path = &said.json["paths"][0];
    assert_eq!((said.status, &path["writable"]), (0, &false.into()));
    assert_eq!(states(&said), ["unknown"; 4]);
    let why = if root { "Read-only file system" } else { "Permission denied" };
    assert!(path["not_writable_because"].as_str().unwrap().contains(why), "{path}");
    assert!(said.joined().contains(&format!("writable no temporary file: {why}")), "{}", said.text);
}

#[test]
fn a_file_is_only_read() {
    let place = place("doctor-file");
    let file = place.join("data");
    fs::write(&file, noise(64 << 10)).unwrap();
    let said = at(&place, &file);
    assert_eq!((said.status, states(&said)[1]), (0, "yes"), "{}", said.text);
    assert_eq!(states(&said)[2..], ["unknown", "unknown"]);
    assert_eq!(fs::read(&file).unwrap(), noise(64 << 10));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
}

#[test]
fn several_places_are_all_told() {
    let place = place("doctor-several");
    let said = surely_said(|| {
        let mut command = doctor(&place);
        command.args([".", "/"]);
        command
    });
    assert_eq!(said.json["paths"].as_array().unwrap().len(), 2);
    assert!(said.text.contains("\nPath .\n") && said.text.contains("\nPath /\n"), "{}", said.text);
}

#[test]
fn a_place_that_is_not_there_is_status_1() {
    let place = place("doctor-missing");
    let output = doctor(&place).arg("no/such/place").output().unwrap();
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert!(err.contains("cannot look at no/such/place"), "{err}");
    assert!(err.contains("give a directory"), "{err}");
}
