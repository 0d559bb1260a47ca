//! What is told beside GNU's words: the summary, the dry run, how each file was copied, how far it is.

use crate::common::*;
use crate::support::*;
use crate::trees::{describe, mkfifo, random_tree, set_times};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};

#[test]
fn the_summary_is_true() {
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

/// As other programs do, and not a complaint for each of the other files.
#[test]
fn who_is_told_to_nobody_ends() {
    let place = place("cp-told-nobody");
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

/// A caller that ignores SIGPIPE (`trap '' PIPE`, systemd) gets the whole copy, and a status, as with GNU's.
#[test]
fn a_caller_that_ignores_the_signal_gets_the_whole_copy() {
    let place = place("cp-told-nobody-ignored");
    fs::create_dir(place.join("tree")).unwrap();
    for n in 0..300 {
        fs::write(place.join(format!("tree/{n}")), "x").unwrap();
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = ours();
    command.args(["-rv", "tree", "to"]).current_dir(&place).stdout(writer).stderr(Stdio::piped());
    // SAFETY: one plain system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            Ok(())
        });
    }
    let said = finish(command.spawn().unwrap(), "cp -v to nobody");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(texts(&said).1.contains("write error: Broken pipe"), "{said:?}");
    assert_eq!(fs::read_dir(place.join("to")).unwrap().count(), 300);
}

#[test]
fn the_dry_run_of_a_new_tree_says_what_v_says_and_changes_nothing() {
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
fn the_dry_run_says_what_would_become_of_what_is_there() {
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
        let (code, said, told) = run(&place, &arguments);
        assert_eq!(lines(said.as_bytes()), out, "{arguments:?}");
        assert_eq!(lines(told.as_bytes()), err, "{arguments:?}");
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
fn debug_says_how_each_file_was_copied() {
    let place = place("cp-debug");
    fs::write(place.join("small"), "small").unwrap();
    fs::write(place.join("large"), noise(1 << 20)).unwrap();
    let holes = fs::File::create(place.join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    let said = |arguments: &[&str]| {
        let (status, said, told) = run(&place, &[&["--debug"], arguments].concat());
        assert_eq!((status, told.as_str()), (Some(0), ""));
        said
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
        assert_eq!(said(arguments), format!("{first}{how}"), "{arguments:?}");
    }
    let auto = said(&["large", "d"]);
    let shared = auto.contains("reflink: yes");
    assert!(shared || auto.contains("copy offload: yes, reflink: unsupported, "), "{auto}");
    assert_eq!(said(&["-n", "small", "c"]), "skipped 'c'\n");
}

/// The end of the tests, and the one that is a terminal.
fn terminal() -> (fs::File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: two places for the descriptors; no name, no settings are asked for.
    let opened = unsafe {
        libc::openpty(
            &mut ours,
            &mut theirs,
            null,
            null.cast_const().cast(),
            null.cast_const().cast(),
        )
    };
    assert_eq!(opened, 0);
    // SAFETY: two new descriptors that nobody else has.
    unsafe { (fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

#[test]
fn progress_is_for_terminals_and_never_for_pipes() {
    let place = place("cp-progress");
    for name in ["first", "second"] {
        mkfifo(&place.join(name));
    }
    let start = |source: &str, err: Stdio| -> Child {
        let mut command = ours();
        command.args(["--progress", "--copy-contents", "-r", source, &format!("{source}-copy")]);
        command.current_dir(&place).stderr(err).spawn().unwrap()
    };
    // The one with the pipe is the elder: if the other has drawn, it would have.
    let piped = start("first", Stdio::piped());
    let mut first = fs::OpenOptions::new().write(true).open(place.join("first")).unwrap();
    first.write_all(b"something").unwrap();
    let (mut seen, terminal) = terminal();
    let drawn = start("second", terminal.into());
    let mut second = fs::OpenOptions::new().write(true).open(place.join("second")).unwrap();
    second.write_all(b"something").unwrap();
    let mut line = String::new();
    while !line.contains("MiB/s") {
        let mut bytes = [0; 256];
        let n = seen.read(&mut bytes).unwrap();
        line.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
    assert!(line.starts_with("\r\u{1b}[K"), "{line:?}");
    drop((first, second));
    assert_eq!(finish(drawn, "cp on a terminal").status.code(), Some(0));
    let said = finish(piped, "cp into a pipe");
    assert_eq!((said.status.code(), texts(&said).1), (Some(0), String::new()));
}
