//! Copies where no thread can be started.

use crate::common::*;
use crate::support::*;
use crate::trees::{describe, random_tree};
use crate::users::{NOBODY, place_of_nobody};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const COPIES: &[&[&str]] = &[
    &["tree/file", "copy"],
    &["-rT", "tree", "copy"],
    &["-aT", "tree", "copy"],
    &["-aT", "--jobs=1", "tree", "copy"],
    &["-aT", "--progress", "tree", "copy"],
    &["-aT", "--resume", "manifest", "tree", "copy"],
    &["-a", "--dry-run", "tree", "copy"],
];

/// Runs one copy in a fresh target, and expects what it makes otherwise.
fn copies_as_usual(place: &Path, arguments: &[&str], restrict: impl Fn(&mut Command)) {
    let result = |restricted: bool| {
        let target = place.join("copy");
        for name in ["copy", "manifest"] {
            let _ = std::fs::remove_dir_all(place.join(name));
            let _ = std::fs::remove_file(place.join(name));
        }
        let mut command = ours();
        command.args(arguments).uid(NOBODY).gid(NOBODY);
        if restricted {
            restrict(&mut command);
        }
        let output = output_of(command, place, b"");
        let lines = lines(&output.stderr).into_iter().filter(|line| !line.contains("MiB/s"));
        let lines: Vec<_> = lines.collect();
        (output.status.code(), lines, self::lines(&output.stdout), describe(&target, false))
    };
    let usual = result(false);
    assert_eq!(usual.0, Some(0), "{arguments:?}");
    assert_eq!(result(true), usual, "{arguments:?}");
}

/// Makes every start of a thread or process fail with an error.
fn deny_clone(command: &mut Command, error: i32) {
    let rules = [(libc::SYS_clone, Vec::new()), (libc::SYS_clone3, Vec::new())];
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let denied = SeccompAction::Errno(error as u32);
    let rules = rules.into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture);
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    // SAFETY: the closure only makes system calls.
    unsafe {
        command.pre_exec(move || {
            seccompiler::apply_filter(&filter)
                .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
        })
    };
}

/// Limits the processes and threads of the user, who may have other ones.
fn limit_processes(command: &mut Command, most: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the closure only makes a system call, which reads `limit`.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NPROC, &limit) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
}

/// Also with many files on the command line, which several threads copy otherwise.
#[test]
fn no_thread_but_the_first_is_needed() {
    let Some(base) = place_of_nobody("cp-threads") else { return };
    let place = base.path();
    random_tree(&place.join("tree"), 36);
    std::fs::write(place.join("tree/file"), noise(300_000)).unwrap();
    let many: Vec<_> = (0..100).map(|n| format!("many{n}")).collect();
    for name in &many {
        std::fs::write(place.join(name), name).unwrap();
    }
    for name in describe(&place.join("tree"), false).into_keys() {
        let path = place.join("tree").join(name);
        if std::fs::symlink_metadata(&path).unwrap().file_type().is_char_device() {
            // Only root may copy it.
            std::fs::remove_file(&path).unwrap();
            continue;
        }
        lchown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut all: Vec<Vec<&str>> = COPIES.iter().map(|arguments| arguments.to_vec()).collect();
    std::fs::create_dir(place.join("into")).unwrap();
    std::fs::set_permissions(place.join("into"), PermissionsExt::from_mode(0o777)).unwrap();
    all.push(many.iter().map(String::as_str).chain(["into"]).collect());
    let durable = vec!["-aT", "--fsync", "tree", "copy"];
    for arguments in all.iter().chain([&durable]) {
        // (The syncs of a ring need threads of the kernel, which count, too.)
        let limits: &[_] = if *arguments == durable { &[] } else { &[1, 2, 3] };
        for &most in limits {
            copies_as_usual(place, arguments, |command| limit_processes(command, most));
        }
        for error in [libc::EPERM, libc::EAGAIN] {
            copies_as_usual(place, arguments, |command| deny_clone(command, error));
        }
    }
    assert_eq!(std::fs::read_dir(place.join("into")).unwrap().count(), 100);
}

/// Directories are dropped one by one, so that a small stack is enough.
#[test]
fn a_deep_tree_needs_no_deep_stack() {
    let place = place_in_memory("cp-deep-here");
    let place = place.path();
    std::fs::create_dir(place.join("tree")).unwrap();
    let mut dir = cringle::fs::Dir::open(place.join("tree")).unwrap();
    for _ in 0..5000 {
        dir.create_dir("d").unwrap();
        dir = dir.open_dir("d").unwrap();
    }
    let mut command = limited("s", 256);
    command.args(["-r", "tree", "copy"]);
    deny_clone(&mut command, libc::EPERM);
    let output = output_of(command, place, b"");
    assert_eq!((output.status.code(), texts(&output).1.as_str()), (Some(0), ""));
}
