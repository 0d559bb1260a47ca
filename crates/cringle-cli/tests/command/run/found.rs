//! How the program and the library are found.

use super::*;
use crate::doctor::support::with_tmpfs;

#[test]
fn scripts_are_run_by_their_interpreters() {
    let place = place("run-scripts");
    write_script(&place, "plain", "echo \"plain $0 $1\"");
    write_script(&place, "first", "#!/bin/sh -e\necho \"first $0 $1\"; cat /proc/$$/comm");
    write_script(&place, "env", "#!/usr/bin/env sh\necho \"env $0 $1\"");
    write_script(&place, "second", "#!./first\n");
    let run = |name: &str| printed(&mut cringle_run(&place, &[name, "a"]), 0);
    assert_eq!(run("./plain"), "plain ./plain a\n");
    assert_eq!(run("./first"), "first ./first a\nfirst\n");
    assert_eq!(run("./env"), "env ./env a\n");
    assert_eq!(run("./second"), "first ./first ./second\nsecond\n");
    let mut by_path = cringle_run(&place, &["first", "a"]);
    let path = format!("/nowhere:{}:/bin:/usr/bin", place.display());
    let text = printed(by_path.env("PATH", path), 0);
    assert_eq!(text, format!("first {} a\nfirst\n", place.join("first").display()));
}

#[test]
fn python_scripts_have_fibers() {
    let place = place("run-python");
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED, NOTHING WAS TESTED without python3");
        return;
    }
    let script = "#!/usr/bin/env python3
import os, sys, threading
barrier = threading.Barrier(31)
threads = [threading.Thread(target=barrier.wait, daemon=True) for _ in range(30)]
[thread.start() for thread in threads]
print('fibers' if len(os.listdir('/proc/self/task')) < 30 else 'threads', sys.argv[1:])
barrier.wait()
[thread.join() for thread in threads]
";
    write_script(&place, "script", script);
    assert_eq!(printed(&mut cringle_run(&place, &["./script", "-v"]), 0), "fibers ['-v']\n");
}

/// Copies the command, or links it, into a directory of its own.
fn installed(place: &Path) -> PathBuf {
    let bin = place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let (built, command) = (env!("CARGO_BIN_EXE_cringle"), bin.join("cringle"));
    if std::fs::hard_link(built, &command).is_err() {
        std::fs::copy(built, &command).unwrap();
    }
    command
}

#[test]
fn the_library_is_found_beside_the_command() {
    let place = place("run-library");
    let command = installed(&place);
    let run = || {
        let mut command = Command::new(&command);
        command.args(["run", "--library"]).env_remove("CRINGLE_PRELOAD");
        command.output().unwrap()
    };
    let (status, text) = refusal(&run());
    assert_eq!(status, 125);
    for part in ["libcringle_preload.so was not found", "cargo build --release -p cringle-preload"]
    {
        assert!(text.contains(part), "{text}");
    }
    // The first of these directories wins: the last ones are tried first.
    for directory in ["lib/cringle", "lib", "bin"] {
        let directory = place.join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("libcringle_preload.so");
        std::fs::copy(library(), &path).unwrap();
        assert_eq!(texts(&run()).0, format!("{}\n", path.canonicalize().unwrap().display()));
    }
}

#[test]
fn without_proc_the_error_says_so() {
    let place = place("run-no-proc");
    let mut command = cringle(&place);
    command.args(["run", "true"]).env_remove("CRINGLE_PRELOAD").env_remove("LD_PRELOAD");
    with_tmpfs(&mut command, Path::new("/proc"), 0);
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED, NOTHING WAS TESTED with an empty /proc");
        return;
    };
    let (status, text) = refusal(&output);
    assert!(status == 125 && text.contains("mount /proc, or name"), "{text}");
}

#[test]
fn the_environment_names_the_library() {
    let place = place("run-named");
    let found = printed(&mut cringle_run(&place, &["--library"]), 0);
    assert_eq!(Path::new(found.trim_end()), library().canonicalize().unwrap());
    let mut by_hand = Command::new("sh");
    by_hand.args([
        "-c",
        "grep -c libcringle_preload /proc/$$/maps >/dev/null && echo \"$LD_PRELOAD\"",
    ]);
    // Children are preloaded, too, as by any other library.
    assert_eq!(printed(by_hand.env("LD_PRELOAD", found.trim_end()), 0), found);
    let named = |path: &Path| {
        let mut command = cringle_run(&place, &["true"]);
        refusal(&command.env("CRINGLE_PRELOAD", path).output().unwrap())
    };
    let (status, text) = named(Path::new("absent.so"));
    assert!(status == 125 && text.contains("absent.so"), "{text}");
    let spaced = place.join("a b.so");
    std::fs::copy(library(), &spaced).unwrap();
    let (status, text) = named(&spaced);
    assert!(status == 125 && text.contains("cannot name a path with a space"), "{text}");
}
