//! Files of `--json` and `--trace` that would destroy a source, a target or another file.

use crate::common::mounts::done_by;
use crate::common::*;
use crate::support::*;
use crate::trees::{describe, mkfifo};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

/// The beginning of an earlier result, which may be overwritten.
const JSON: &str = "{\n  \"schema\": 1,\n  \"command\": \"cp\"\n}\n";

/// Runs `cp` with these arguments; it must refuse them and change nothing. Returns the message.
fn refused(place: &Path, arguments: &[&str]) -> String {
    let before = describe(place, true);
    let (status, out, err) = run(place, arguments);
    assert_eq!((status, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
    assert_eq!(describe(place, true), before, "{arguments:?}: {err}");
    err
}

/// As [`refused`], with the file of `--json` and of `--trace`.
fn both_refused(place: &Path, file: &str, arguments: &[&str]) -> Vec<String> {
    let with = |option| refused(place, &[&["--fsync", option, file], arguments].concat());
    ["--json", "--trace"].map(with).to_vec()
}

#[test]
fn a_file_of_the_copy_is_no_result() {
    let place = place("cp-outputs");
    fs::write(place.join("image"), noise(5000)).unwrap();
    fs::write(place.join("notes"), "notes").unwrap();
    fs::write(place.join("old.json"), JSON).unwrap();
    fs::write(place.join("empty"), "").unwrap();
    fs::create_dir(place.join("d")).unwrap();
    symlink("image", place.join("link")).unwrap();
    symlink("new", place.join("dangling")).unwrap();
    fs::hard_link(place.join("old.json"), place.join("hard.json")).unwrap();
    for (file, arguments) in [
        // The user takes the option for a flag.
        ("image", &["notes", "d"][..]),
        ("image", &["image", "d"]),
        ("link", &["image", "d"]),
        ("old.json", &["old.json", "d"]),
        ("hard.json", &["old.json", "d"]),
        ("empty", &["empty", "d"]),
        ("empty", &["notes", "empty"]),
        ("new", &["notes", "new"]),
        ("dangling", &["notes", "new"]),
        ("d/notes", &["notes", "d"]),
        ("./d/../new", &["notes", "new"]),
    ] {
        for text in both_refused(&place, file, arguments) {
            assert!(text.contains("name another file"), "{file}, {arguments:?}: {text}");
        }
    }
    refused(&place, &["--json", "x", "--trace", "./x", "notes", "d"]);
    let trace = |value: &str| {
        let mut command = ours();
        command.args(["--fsync", "notes", "d"]).env("CRINGLE_TRACE", value);
        output_of(command, &place, b"")
    };
    assert_eq!(trace("image").status.code(), Some(1));
    assert_eq!(fs::read(place.join("image")).unwrap(), noise(5000));
    assert!(!place.join("d/notes").exists());
    // A normal summary, and its repetition.
    for _ in 0..2 {
        copies(&place, &["--json", "out.json", "notes", "d"]);
        copies(&place, &["--json", "d/out.json", "notes", "d"]);
    }
    assert!(fs::read_to_string(place.join("d/out.json")).unwrap().starts_with("{\n  \"schema\""));
}

#[test]
fn names_within_a_copied_tree_are_no_result() {
    let place = place("cp-outputs-tree");
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::create_dir_all(place.join("to/tree/sub")).unwrap();
    fs::write(place.join("tree/sub/a.json"), JSON).unwrap();
    fs::write(place.join("to/tree/sub/a.json"), JSON).unwrap();
    fs::write(place.join("tree/sub/b"), "b").unwrap();
    symlink("tree", place.join("same")).unwrap();
    for file in [
        "tree/sub/a.json",
        "tree/sub/new",
        "same/sub/new",
        "to/tree/sub/a.json",
        "to/tree/sub/b",
        "to/tree/sub/../sub/b",
    ] {
        for text in both_refused(&place, file, &["-r", "tree", "to"]) {
            assert!(text.contains("name another file"), "{file}: {text}");
        }
    }
    copies(&place, &["-r", "--json", "to/tree/sub/new", "tree", "to"]);
    copies(&place, &["-r", "--json", "to/new", "tree/.", "to/tree"]);
    assert_eq!(fs::read(place.join("to/tree/sub/b")).unwrap(), b"b");
}

/// A name that the check does not know leads to the open trace or to an earlier summary.
#[test]
fn results_behind_links_are_neither_read_nor_written() {
    for (option, before) in [("--trace", ""), ("--json", JSON)] {
        for hard in [false, true] {
            let base = place_in_memory("cp-outputs-links");
            let at = |name: &str| base.path().join(name);
            for directory in ["tree", "from", "to"] {
                fs::create_dir(at(directory)).unwrap();
            }
            fs::write(at("tree/file"), "bytes").unwrap();
            fs::write(at("result"), before).unwrap();
            for link in ["from/link", "to/file"] {
                match hard {
                    true => fs::hard_link(at("result"), at(link)).unwrap(),
                    false => symlink("../result", at(link)).unwrap(),
                }
            }
            for (arguments, words) in [
                (["-rT", "tree", "to"], "'to/file' is the file of {}; it is not replaced"),
                (["-rLT", "from", "copy"], "'from/link' is the file of {}; it is not copied"),
            ] {
                let (status, _, err) =
                    run(base.path(), &[&["--fsync", option, "result"], &arguments[..]].concat());
                assert_eq!(status, Some(1), "{option}: {err}");
                assert!(err.contains(&words.replace("{}", option)), "{option}: {err}");
                assert!(!at("copy/link").exists());
                let bytes = fs::read(at("result")).unwrap();
                assert!(bytes.len() > 60 && bytes != b"bytes", "{option}: {bytes:?}");
            }
        }
    }
}

/// The temporary file of the summary is no name of the user's.
#[test]
fn an_unwritten_summary_is_named() {
    let place = place("cp-outputs-limit");
    fs::write(place.join("empty"), "").unwrap();
    let mut command = Command::new("sh");
    // A file of 0 bytes is the longest.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" cp --json out.json empty to";
    command.args(["-c", script, env!("CARGO_BIN_EXE_cringle")]);
    let output = output_of(command, &place, b"");
    let err = texts(&output).1;
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot write out.json: File too large") && !err.contains(".cringle-"));
}

#[test]
fn a_backup_is_no_result() {
    let place = place("cp-outputs-backup");
    fs::create_dir_all(place.join("tree")).unwrap();
    fs::create_dir_all(place.join("to/tree")).unwrap();
    for name in ["new", "t", "tree/f", "to/tree/f"] {
        fs::write(place.join(name), name).unwrap();
    }
    for (file, arguments) in [
        ("t~", &["-b", "new", "t"][..]),
        ("t.old", &["-b", "--suffix=.old", "new", "t"]),
        ("t.~1~", &["--backup=numbered", "new", "t"]),
        ("to/tree/f~", &["-rb", "tree", "to"]),
    ] {
        for text in both_refused(&place, file, arguments) {
            assert!(text.contains("backup of"), "{file}: {text}");
        }
    }
    copies(&place, &["-b", "--json", "new~", "new", "t"]);
    assert_eq!(fs::read(place.join("t~")).unwrap(), b"t");
}

#[test]
fn descriptors_are_written_at_their_offset() {
    let place = place("cp-outputs-descriptors");
    fs::write(place.join("source"), noise(5000)).unwrap();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_cringle");
        command.args(["-c", &format!("exec {program} cp {line}")]);
        output_of(command, &place, b"")
    };
    let before = |name: &str| fs::write(place.join(name), "before\n").unwrap();
    for line in [
        "--json /dev/fd/3 source to 3>>log",
        "--json /dev/stdout source to >>log",
        "--json - source to >>log",
    ] {
        before("log");
        let output = shell(line);
        assert!(output.status.success(), "{line}: {output:?}");
        let log = fs::read_to_string(place.join("log")).unwrap();
        assert!(log.starts_with("before\n{\n") && log.ends_with("}\n"), "{line}: {log}");
        fs::remove_file(place.join("to")).unwrap();
    }
    for line in [
        "--json /dev/fd/3 source to 3<>source",
        "--json /proc/self/fd/3 /dev/null source 3<>source",
        "--json /dev/fd/3 source to 3<log",
        "--json /dev/fd/9 source to",
        "--json - source /dev/stdout >log",
        "--json old.json source to >old.json",
    ] {
        let output = shell(line);
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        assert_eq!(fs::read(place.join("source")).unwrap(), noise(5000), "{line}");
        assert!(!place.join("to").exists(), "{line}");
    }
}

#[test]
fn a_pipe_or_device_of_the_copy_is_no_result() {
    let place = place("cp-outputs-special");
    fs::write(place.join("source"), "text").unwrap();
    mkfifo(&place.join("pipe"));
    // An open would wait for the other end.
    refused(&place, &["--json", "pipe", "pipe", "to"]);
    refused(&place, &["--trace", "pipe", "source", "pipe"]);
    // The number of a device that exists nowhere.
    let made = done_by("mknod", &[place.join("device").to_str().unwrap(), "b", "240", "77"]);
    if let Err(why) = made {
        eprintln!("skipped: no device: {why}");
        return;
    }
    assert!(refused(&place, &["--json", "device", "source", "to"]).contains("block device"));
    assert!(refused(&place, &["--trace", "device", "source", "to"]).contains("block device"));
    refused(&place, &["--json", "device", "device", "to"]);
}

#[test]
fn an_unwritable_result_fails_before_the_copy() {
    let place = place("cp-outputs-unwritable");
    fs::write(place.join("source"), "text").unwrap();
    for file in ["nodir/out.json", "/proc/nothing"] {
        for text in both_refused(&place, file, &["source", "to"]) {
            assert!(text.contains(file) && !text.contains(".cringle-"), "{text}");
        }
    }
    let text = refused(&place, &["--json", "nodir/out.json", "source", "to"]);
    assert!(text.contains("the directory nodir does not exist"), "{text}");
    let old = place.join("old.json");
    for flag in ["i", "a"] {
        fs::write(&old, JSON).unwrap();
        let change =
            |sign: &str| done_by("chattr", &[&format!("{sign}{flag}"), old.to_str().unwrap()]);
        if let Err(why) = change("+") {
            eprintln!("skipped: no such flag: {why}");
            continue;
        }
        let result = run(&place, &["--json", "old.json", "source", "to"]);
        change("-").unwrap();
        assert_eq!(result.0, Some(1), "{}", result.2);
        assert!(result.2.contains("cannot write old.json"), "{}", result.2);
        assert!(!place.join("to").exists());
    }
}

#[test]
fn an_append_only_directory_gets_only_the_result() {
    let place = place("cp-outputs-append-only");
    fs::write(place.join("source"), "text").unwrap();
    let directory = place.join("d");
    fs::create_dir(&directory).unwrap();
    let change = |flag| done_by("chattr", &[flag, directory.to_str().unwrap()]);
    if let Err(why) = change("+a") {
        eprintln!("skipped: no such flag: {why}");
        return;
    }
    let results = [0, 1].map(|_| run(&place, &["--json", "d/out.json", "source", "to"]));
    change("-a").unwrap();
    for (status, _, err) in results {
        assert_eq!((status, err.as_str()), (Some(0), ""));
    }
    let names: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["out.json"]);
}

#[test]
fn mounted_names_of_one_file_are_recognised() {
    let place = place("cp-outputs-mounted");
    for name in ["a", "b"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    for name in ["source", "a/old.json", "file.json"] {
        fs::write(place.join(name), JSON).unwrap();
    }
    let at = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let bind = |from: &str, to: &str| done_by("mount", &["--bind", &at(from), &at(to)]);
    if let Err(why) = bind("a", "b") {
        eprintln!("skipped: no bind mount: {why}");
        return;
    }
    let new = run(&place, &["--json", "a/x", "--trace", "b/x", "source", "to"]);
    let old = run(&place, &["--json", "b/old.json", "a/old.json", "to"]);
    let target = run(&place, &["--json", "b/x", "source", "a/x"]);
    done_by("umount", &[&at("b")]).unwrap();
    // A rename cannot replace a mount point.
    bind("file.json", "a/old.json").unwrap();
    let busy = run(&place, &["--json", "a/old.json", "source", "to"]);
    done_by("umount", &[&at("a/old.json")]).unwrap();
    for result in [new, old, target] {
        assert_eq!(result.0, Some(1), "{}", result.2);
    }
    assert_eq!(busy.0, Some(0), "{}", busy.2);
    assert!(fs::read_to_string(place.join("file.json")).unwrap().contains("\"files\": 1"));
    assert_eq!(fs::read_dir(place.join("a")).unwrap().count(), 1);
}

#[test]
fn a_result_keeps_its_owner_links_and_mode() {
    let place = place("cp-outputs-kept");
    fs::write(place.join("source"), "text").unwrap();
    let out = place.join("out.json");
    for has_link in [false, true] {
        fs::write(&out, JSON).unwrap();
        if has_link {
            fs::hard_link(&out, place.join("link.json")).unwrap();
        }
        if is_root() {
            std::os::unix::fs::chown(&out, Some(1234), Some(2345)).unwrap();
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        fs::set_permissions(&out, mode).unwrap();
        let of = || fs::metadata(&out).map(|it| (it.mode(), it.uid(), it.gid(), it.nlink()));
        let before = of().unwrap();
        copies(&place, &["--json", "out.json", "source", "to"]);
        assert_eq!(of().unwrap(), before);
        assert!(fs::read_to_string(&out).unwrap().contains("\"files\": 1"));
    }
}
