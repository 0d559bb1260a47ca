//! Output beyond GNU's: the summary, the dry run, how each file was copied.

use crate::common::*;
use crate::support::*;
use crate::trees::{describe, random_tree, set_times};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

#[test]
fn the_summary_counts_files() {
    let place = place("cp-summary");
    random_tree(&place.join("tree"), 9);
    let mut command = ours();
    let report = json(command.args(["-r", "tree", "copy"]).current_dir(&place));
    assert_eq!((report["schema"].as_u64(), report["status"].as_u64()), (Some(1), Some(0)));
    let files = describe(&place.join("copy"), false);
    let regular = files.values().filter(|text| text.starts_with("10")).count();
    let fifos = files.values().filter(|text| text.contains(" fifo true")).count();
    assert_eq!(report["files"].as_u64(), Some((regular - fifos) as u64));
}

/// As with other programs, without an error for each of the other files.
#[test]
fn a_closed_pipe_ends_the_copy() {
    let place = place("cp-closed-pipe");
    for n in 0..50 {
        fs::create_dir_all(place.join(format!("tree/{n}"))).unwrap();
    }
    for arguments in [&["-rv", "tree"][..], &["-r", "--dry-run", "tree"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = ours();
        command.args(arguments).arg("to").current_dir(&place).stdout(writer);
        let output = command.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

/// If the caller ignores SIGPIPE (`trap '' PIPE`, systemd), the copy is complete and returns a
/// status, as with GNU's.
#[test]
fn ignoring_sigpipe_completes_the_copy() {
    let place = place("cp-ignored-sigpipe");
    fs::create_dir(place.join("tree")).unwrap();
    for n in 0..300 {
        fs::write(place.join(format!("tree/{n}")), "x").unwrap();
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = ours();
    command.args(["-rv", "tree", "to"]).current_dir(&place).stdout(writer).stderr(Stdio::piped());
    // SAFETY: the child makes one async-signal-safe call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            Ok(())
        });
    }
    let output = finish(command.spawn().unwrap(), "cp -v into a closed pipe");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(texts(&output).1.contains("write error: Broken pipe"), "{output:?}");
    assert_eq!(fs::read_dir(place.join("to")).unwrap().count(), 300);
}

#[test]
fn a_dry_run_prints_the_lines_of_v() {
    let place = place("cp-dry");
    random_tree(&place.join("tree"), 9);
    let dry = run(&place, &["-r", "--dry-run", "tree", "copy"]);
    assert!(!place.join("copy").exists());
    let real = run(&place, &["-rv", "tree", "copy"]);
    let sorted = |text: &str| lines(text.as_bytes());
    assert_eq!((dry.0, sorted(&dry.1), dry.2), (real.0, sorted(&real.1), real.2));
    assert!(dry.1.lines().count() > 50);
}

#[test]
fn a_dry_run_reports_existing_targets() {
    let place = place("cp-dry-there");
    for directory in ["tree/both", "there/both", "tree/dir", "there/file", "nested/in"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    for file in ["tree/new", "tree/both/x", "there/both/x", "tree/file", "there/dir", "a", "b"] {
        fs::write(place.join(file), file).unwrap();
    }
    fs::write(place.join("old"), "old").unwrap();
    set_times(&place.join("old"), 1_000_000_000, 0);
    symlink("a", place.join("link")).unwrap();
    let before = describe(&place, true);
    let case = |arguments: &[&str], status, out: &[&str], err: &[&str]| {
        let arguments = [&["--dry-run"], arguments].concat();
        let (code, output, stderr) = run(&place, &arguments);
        assert_eq!(lines(output.as_bytes()), out, "{arguments:?}");
        assert_eq!(lines(stderr.as_bytes()), err, "{arguments:?}");
        assert_eq!(code, Some(status), "{arguments:?}");
        assert_eq!(describe(&place, true), before, "{arguments:?}");
    };
    case(
        &["-rT", "tree", "there"],
        1,
        &["'tree/both/x' -> 'there/both/x' (overwritten)", "'tree/new' -> 'there/new'"],
        &[
            "cp: cannot overwrite directory 'there/file' with non-directory",
            "cp: cannot overwrite non-directory 'there/dir' with directory 'tree/dir'",
        ],
    );
    case(&["a", "b"], 0, &["'a' -> 'b' (overwritten)"], &[]);
    case(&["-b", "a", "b"], 0, &["'a' -> 'b' (backed up, replaced)"], &[]);
    case(&["-i", "a", "b"], 0, &["'a' -> 'b' (asked about, overwritten)"], &[]);
    case(&["--remove-destination", "a", "b"], 0, &["'a' -> 'b' (removed, replaced)"], &[]);
    case(&["-n", "a", "b"], 0, &["skipped 'b'"], &[]);
    case(&["-u", "old", "b"], 0, &["skipped 'b'"], &[]);
    case(&["--update=none-fail", "a", "b"], 1, &[], &["cp: not replacing 'b'"]);
    case(&["a", "link"], 1, &[], &["cp: 'a' and 'link' are the same file"]);
    case(&["tree", "b"], 1, &[], &["cp: -r not specified; omitting directory 'tree'"]);
    case(&["nosuch", "b"], 1, &[], &["cp: cannot stat 'nosuch': No such file or directory"]);
    case(
        &["-r", "nested", "nested/in/x"],
        1,
        &[],
        &["cp: cannot copy a directory, 'nested', into itself, 'nested/in/x'"],
    );
}

#[test]
fn dry_run_names_what_prevents_a_new_name() {
    let place = place("cp-dry-run-names");
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::create_dir(place.join("there")).unwrap();
    fs::write(place.join("tree/sub/file"), "text").unwrap();
    for (arguments, out, err) in [
        (
            &["--parents", "tree/sub/file", "there"][..],
            &["'tree/sub/file' -> 'there/tree/sub/file'"][..],
            &[][..],
        ),
        (
            &["tree/sub/file", "no/such"],
            &[],
            &["cp: cannot create regular file 'no/such': No such file or directory"],
        ),
        (
            &["-r", "tree", "no/such"],
            &[],
            &["cp: cannot create directory 'no/such': No such file or directory"],
        ),
        (
            &["-s", "tree/sub/file", "there"],
            &[],
            &["cp: there/file: can make relative symbolic links only in current directory"],
        ),
    ] {
        let (status, output, stderr) = run(&place, &[&["--dry-run"], arguments].concat());
        assert_eq!(lines(output.as_bytes()), out, "{arguments:?}");
        assert_eq!(lines(stderr.as_bytes()), err, "{arguments:?}");
        assert_eq!(status, Some(i32::from(!err.is_empty())), "{arguments:?}");
    }
    assert_eq!(fs::read_dir(place.join("there")).unwrap().count(), 0);
}

#[test]
fn json_is_alone_on_standard_output() {
    let place = place("cp-json-alone");
    fs::create_dir(place.join("tree")).unwrap();
    fs::write(place.join("tree/file"), "text").unwrap();
    for (flag, line) in
        [("--dry-run", "'tree/file' -> 'copy/file'"), ("-v", "'tree/file' -> 'copy/file'")]
    {
        let (status, output, stderr) = run(&place, &["-r", flag, "--json", "-", "tree", "copy"]);
        assert_eq!(status, Some(0), "{flag}");
        assert!(serde_json::from_str::<serde_json::Value>(&output).is_ok(), "{flag}: {output}");
        assert!(stderr.contains(line), "{flag}: {stderr}");
    }
}

#[test]
fn debug_reports_how_files_are_copied() {
    let place = place("cp-debug");
    fs::write(place.join("small"), "small").unwrap();
    fs::write(place.join("large"), noise(1 << 20)).unwrap();
    let holes = fs::File::create(place.join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    let output = |arguments: &[&str]| {
        let (status, output, stderr) = run(&place, &[&["--debug"], arguments].concat());
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        output
    };
    for (arguments, first, how) in [
        (
            &["--reflink=never", "small", "c"][..],
            "'small' -> 'c'\n",
            "copy offload: avoided, reflink: no, sparse detection: no\n",
        ),
        (
            &["--reflink=never", "large", "c"],
            "'large' -> 'c'\n",
            "copy offload: avoided, reflink: no, sparse detection: no\n",
        ),
        (
            &["--reflink=never", "--sparse=always", "large", "c"],
            "'large' -> 'c'\n",
            "copy offload: avoided, reflink: no, sparse detection: zeros\n",
        ),
        (
            &["--reflink=never", "holes", "c"],
            "'holes' -> 'c'\n",
            "copy offload: unknown, reflink: no, sparse detection: SEEK_HOLE\n",
        ),
    ] {
        assert_eq!(output(arguments), format!("{first}{how}"), "{arguments:?}");
    }
    let auto = output(&["large", "d"]);
    let shared = auto.contains("reflink: yes");
    assert!(shared || auto.contains("copy offload: yes, reflink: unsupported, "), "{auto}");
    assert_eq!(output(&["-n", "small", "c"]), "skipped 'c'\n");
}
