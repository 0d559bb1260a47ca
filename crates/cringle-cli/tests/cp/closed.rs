//! Standard descriptors that are closed, full, or open the wrong way round.

use crate::common::*;
use crate::support::*;
use crate::trees::describe;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn little(place: &Path) {
    fs::create_dir_all(place.join("d")).unwrap();
    for (name, text) in [("a", "text of a"), ("b", "another"), ("keep", "kept")] {
        fs::write(place.join(name), text).unwrap();
    }
}

/// Runs a program in a new place, with the redirections of a shell; returns its output and the
/// resulting files.
fn redirected(program: Command, redirections: &str, arguments: &str) -> (Output, String) {
    let base = place_in_memory("cp-redirected");
    little(base.path());
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$@\" {redirections}"), "sh"]);
    command.arg(program.get_program()).args(program.get_args());
    command.args(arguments.split_whitespace());
    let output = output_of(command, base.path(), b"");
    (output, format!("{:?}", describe(base.path(), false)))
}

/// Runs both; returns ours, and the differences of statuses and files.
fn compare_redirected(redirections: &str, arguments: &str) -> (Output, String) {
    let (mine, my_files) = redirected(ours(), redirections, arguments);
    let (theirs, their_files) = redirected(gnu(), redirections, arguments);
    let mut differences = String::new();
    if mine.status != theirs.status || my_files != their_files {
        let (status, theirs) = (mine.status, theirs.status);
        differences = format!(
            "cp {arguments} {redirections}: {status}, GNU {theirs}\n{my_files}\n{their_files}\n"
        );
    }
    (mine, differences)
}

/// Std opens `/dev/null` in their place before `main`. (A target is never a name in `/dev` itself
/// with a flag that removes or renames targets.)
#[test]
fn closed_standard_descriptors_are_no_files() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for (redirections, arguments, words) in [
        (">&-", "a /dev/stdout", "cannot stat '/dev/stdout': standard output is closed"),
        (">&-", "-T a /dev/fd/1", "cannot stat '/dev/fd/1': standard output is closed"),
        (">&-", "-f a /proc/self/fd/1", "standard output is closed"),
        (">&-", "-P --remove-destination a /dev/fd/1", "standard output is closed"),
        (">&-", "a b /dev/fd/1", "target '/dev/fd/1': standard output is closed"),
        (">&-", "-t /dev/fd/1 a", "target directory '/dev/fd/1': standard output is closed"),
        (">&-", "-r d /dev/fd/1", "standard output is closed"),
        (">&-", "--attributes-only a /dev/stdout", "standard output is closed"),
        (">&-", "--fsync a /dev/stdout", ""),
        (">&-", "-v a c", "write error: Bad file descriptor"),
        (">&-", "--version", "write error: Bad file descriptor"),
        ("<&-", "/dev/stdin keep", "cannot stat '/dev/stdin': standard input is closed"),
        ("<&-", "/dev/stdin new", "cannot stat '/dev/stdin': standard input is closed"),
        ("<&-", "-r /dev/fd/0 keep", "cannot stat '/dev/fd/0': standard input is closed"),
        ("<&-", "--parents /dev/stdin d", "standard input is closed"),
        ("<&-", "-i a keep", "cannot read the answer: standard input is closed"),
        ("<&-", "-i a new", ""),
        ("< .", "-i a keep", "cannot read the answer: Is a directory"),
        ("2>&-", "-r /dev/fd/2 keep", ""),
        ("2>&-", "a /dev/stderr", ""),
        ("2>&- 1>&-", "/dev/stderr keep", ""),
        ("<&- >&- 2>&-", "a c", ""),
        ("<&- >&- 2>&-", "-r d a e", ""),
    ] {
        let (mine, differ) = match arguments.contains("--fsync") {
            true => (redirected(ours(), redirections, arguments).0, String::new()),
            false => compare_redirected(redirections, arguments),
        };
        differences += &differ;
        let error = texts(&mine).1;
        assert!(error.contains(words), "cp {arguments} {redirections}: {error}");
        assert_eq!(error.is_empty(), words.is_empty() && !arguments.contains("--fsync"), "{error}");
    }
    assert_same(differences);
}

/// Std opens `/dev/null` for a closed descriptor, and aborts if it cannot.
#[test]
fn a_closed_descriptor_needs_no_null_device() {
    let place = place("cp-closed-without-dev");
    fs::write(place.join("a"), "text of a").unwrap();
    let hidden = |script: &str| {
        let mut command = Command::new("unshare");
        let hide = "mount -t tmpfs none /dev && test ! -e /dev/null && ";
        command.args(["--mount", "sh", "-c", &format!("{hide}{script}"), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_cringle"));
        output_of(command, &place, b"")
    };
    if !has("unshare") || !hidden("true").status.success() {
        eprintln!("skipped: /dev cannot be hidden here");
        return;
    }
    for redirections in ["<&-", ">&-", "<&- >&- 2>&-"] {
        let output = hidden(&format!("exec \"$1\" cp a c {redirections}"));
        assert!(output.status.success(), "{redirections}: {output:?}");
        assert_eq!(fs::read(place.join("c")).unwrap(), b"text of a");
        fs::remove_file(place.join("c")).unwrap();
    }
}

/// A link in a tree that leads to a closed descriptor is copied, as any other link.
#[test]
fn links_to_closed_descriptors_are_copied() {
    let base = place("cp-closed-link");
    fs::create_dir(base.join("tree")).unwrap();
    std::os::unix::fs::symlink("/dev/stdin", base.join("tree/input")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" cp -r tree copy <&-", env!("CARGO_BIN_EXE_cringle")]);
    assert!(output_of(command, &base, b"").status.success());
    assert_eq!(fs::read_link(base.join("copy/input")).unwrap(), Path::new("/dev/stdin"));
}

#[test]
fn a_lost_message_fails_the_copy_as_gnus() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for redirections in [
        "2>&-",
        "2>/dev/full",
        "2</dev/null",
        "2>/dev/null",
        "1>/dev/full",
        "1</dev/null",
        "</dev/null 2>&-",
    ] {
        for arguments in [
            "a c",
            "a a d",
            "-v a c",
            "-i a keep",
            "nosuch c",
            "a nosuch d",
            "-r d d/sub",
            "-z",
            "a",
            "--sparse=x a b",
        ] {
            differences += &compare_redirected(redirections, arguments).1;
        }
    }
    assert_same(differences);
}
