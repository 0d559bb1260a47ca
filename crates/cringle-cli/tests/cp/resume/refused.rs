//! Manifests and command lines that are refused, and manifests that cannot be written.

use super::{copied_and_kept, resumed};
use crate::common::mounts::Mount;
use crate::common::*;
use crate::support::*;
use crate::trees::mkfifo;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Expects status 1 and returns the message.
fn refused(place: &Path, arguments: &[&str]) -> String {
    let (status, out, err) = run(place, arguments);
    assert_eq!((status, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
    err
}

fn small_source(place: &Path) {
    fs::create_dir(place.join("s")).unwrap();
    fs::write(place.join("s/file"), "text").unwrap();
}

#[test]
fn options_that_depend_on_targets_are_refused() {
    let place = place("cp-resume-options");
    small_source(&place);
    for flag in [
        "-i",
        "-n",
        "-u",
        "--update=none",
        "--update=none-fail",
        "-b",
        "--backup=numbered",
        "-l",
        "-s",
        "--attributes-only",
        "--parents",
        "--copy-contents",
        "--dry-run",
    ] {
        let text = refused(&place, &["-r", flag, "--resume=m", "s", "d"]);
        assert!(text.contains("--resume cannot be combined with "), "{flag}: {text}");
    }
    let text = refused(&place, &["-r", "--resume-check=content", "s", "d"]);
    assert!(text.contains("--resume-check needs --resume"), "{text}");
    let text = refused(&place, &["-r", "--resume=m", "--resume-check=size", "s", "d"]);
    assert!(text.contains("invalid argument"), "{text}");
    assert!(!place.join("m").exists() && !place.join("d").exists());
}

#[test]
fn another_command_line_is_refused() {
    let place = place("cp-resume-another");
    small_source(&place);
    fs::create_dir(place.join("t")).unwrap();
    resumed(&place, &["-r", "--resume=m", "s", "d"]);
    for (arguments, named) in [
        (&["-r", "s", "e"][..], "the name 'd' instead of the name 'e'"),
        (&["-r", "t", "d"], "the name 's' instead of the name 't'"),
        (&["-r", "s", "t", "d"], "instead of the name "),
        (&["-rp", "s", "d"], "mode preserved 'no' instead of mode preserved 'yes'"),
        (&["-r", "--fsync", "s", "d"], "--fsync 'no' instead of --fsync 'yes'"),
        (&["-r", "--sparse=always", "s", "d"], "--sparse 'Auto' instead of --sparse 'Always'"),
    ] {
        let text = refused(&place, &[&["--resume=m"], arguments].concat());
        assert!(text.starts_with("cringle cp: manifest 'm' belongs to another copy"), "{text}");
        assert!(text.contains(named), "{text}");
    }
    // These have no influence on the result.
    resumed(&place, &["-r", "--resume=m", "--jobs=1", "--block-size=8k", "s", "d"]);
    assert!(!place.join("e").exists());
}

/// Relative names mean other files there, also if others of the names are absolute.
#[test]
fn another_working_directory_is_refused() {
    let place = place("cp-resume-elsewhere");
    for directory in ["here", "other"] {
        fs::create_dir(place.join(directory)).unwrap();
        fs::write(place.join(directory).join("a"), directory).unwrap();
    }
    let names = ["a", "b"].map(|name| place.join("here").join(name).display().to_string());
    let absolute = names.each_ref().map(String::as_str);
    resumed(&place.join("here"), &["--resume=../m", "a", "b"]);
    for (directory, names) in [
        ("other", ["a", "b"]),
        ("other", absolute),
        ("other", ["a", absolute[1]]),
        ("here", absolute),
    ] {
        let text = refused(&place.join(directory), &[&["--resume=../m"], &names[..]].concat());
        assert!(text.contains("belongs to another copy, with the working directory "), "{text}");
    }
    assert!(!place.join("other/b").exists());
    assert_eq!(
        copied_and_kept(&resumed(&place.join("here"), &["--resume=../m", "a", "b"])),
        (0, 1)
    );
    // Absolute names mean the same everywhere.
    for (directory, counts) in [("here", (1, 0)), ("other", (0, 1))] {
        let arguments = [&["--resume=../n"], &absolute[..]].concat();
        assert_eq!(copied_and_kept(&resumed(&place.join(directory), &arguments)), counts);
    }
}

#[test]
fn other_files_are_not_taken_for_manifests() {
    let place = place("cp-resume-other");
    small_source(&place);
    fs::write(place.join("letter"), "Dear reader, this is no manifest.".repeat(9)).unwrap();
    let before = fs::read(place.join("letter")).unwrap();
    let text = refused(&place, &["-r", "--resume=letter", "s", "d"]);
    assert!(text.starts_with("cringle cp: 'letter' is no intact manifest: "), "{text}");
    assert_eq!(fs::read(place.join("letter")).unwrap(), before);
    let log = cringle::block::Log::open(place.join("log"), |_, _| Ok(())).unwrap();
    log.append(b"a record of another program").unwrap();
    drop(log);
    let text = refused(&place, &["-r", "--resume=log", "s", "d"]);
    assert!(text.contains("it has records of another kind"), "{text}");
    for (path, words) in [("s", "Is a directory"), ("missing/m", "No such file or directory")] {
        let text = refused(&place, &["-r", &format!("--resume={path}"), "s", "d"]);
        assert!(text.contains(words) && text.contains("manifest"), "{text}");
    }
    assert!(!place.join("d").exists());
}

#[test]
fn manifests_in_the_copied_trees_are_refused() {
    let place = place("cp-resume-inside");
    small_source(&place);
    fs::create_dir_all(place.join("d/below")).unwrap();
    std::os::unix::fs::symlink("s", place.join("link")).unwrap();
    for (manifest, side) in [
        ("s/m", "source 's'"),
        ("link/m", "source 's'"),
        ("d/m", "target 'd'"),
        ("d/below/m", "target 'd'"),
    ] {
        let text = refused(&place, &["-rT", &format!("--resume={manifest}"), "s", "d"]);
        assert!(text.contains(&format!("lies in the {side}; put it elsewhere")), "{text}");
        assert!(!place.join(manifest).exists(), "{manifest} was created");
    }
    fs::create_dir(place.join("e")).unwrap();
    // Beside the targets it is not in the way, unless a target has its name.
    resumed(&place, &["-r", "--resume=e/m", "s", "e"]);
    let text = refused(&place, &["--resume=e/file", "s/file", "e"]);
    assert!(text.contains("manifest 'e/file' is the target 'e/file'; name another"), "{text}");
    let text = refused(&place, &["--resume=new", "s/file", "e/../new"]);
    assert!(text.contains("manifest 'new' is the target 'e/../new'; name another"), "{text}");
    std::os::unix::fs::symlink("s/m", place.join("dangling")).unwrap();
    let text = refused(&place, &["-rT", "--resume=dangling", "s", "d"]);
    assert!(text.contains("cannot use manifest 'dangling': "), "{text}");
    for name in ["e/file", "new", "s/m"] {
        assert!(!place.join(name).exists(), "{name} was created");
    }
}

/// A link leads to the manifest: it is neither read nor overwritten.
#[test]
fn manifest_is_neither_source_nor_target() {
    let place = place("cp-resume-itself");
    small_source(&place);
    std::os::unix::fs::symlink("../m", place.join("s/link")).unwrap();
    let text = refused(&place, &["-rL", "--resume=m", "s", "d"]);
    assert!(text.contains("'s/link' is the manifest of this copy; it is not copied"), "{text}");
    fs::remove_file(place.join("s/link")).unwrap();
    fs::create_dir(place.join("t")).unwrap();
    std::os::unix::fs::symlink("../n", place.join("t/file")).unwrap();
    let text = refused(&place, &["-rT", "--resume=n", "s", "t"]);
    assert!(text.contains("'t/file' is the manifest of this copy; it is not replaced"), "{text}");
}

/// The corrected command line uses the same manifest, whether it is new or empty.
#[test]
fn refused_result_does_not_occupy_the_manifest() {
    let place = place("cp-resume-result");
    small_source(&place);
    fs::write(place.join("image"), "bytes").unwrap();
    fs::write(place.join("empty"), "").unwrap();
    for manifest in ["--resume=new", "--resume=empty"] {
        for option in ["--json", "--trace"] {
            let text = refused(&place, &["-rT", manifest, option, "image", "s", "d"]);
            assert!(text.contains("name another file"), "{text}");
        }
        assert!(!place.join("new").exists());
        copies(&place, &["-r", manifest, "s/file", "to"]);
        fs::remove_file(place.join("to")).unwrap();
        let _ = fs::remove_file(place.join("new"));
    }
}

#[test]
fn two_copies_cannot_share_a_manifest() {
    let place = place("cp-resume-shared");
    mkfifo(&place.join("fifo"));
    let mut command = ours();
    command.args(["--resume=m", "fifo", "d"]).current_dir(&place).stderr(Stdio::piped());
    let mut first = command.spawn().unwrap();
    // The open of the FIFO waits for the copy, which has the manifest by then.
    let fifo = fs::OpenOptions::new().write(true).open(place.join("fifo")).unwrap();
    let text = refused(&place, &["--resume=m", "fifo", "d"]);
    assert!(text.contains("manifest 'm' is in use by another copy"), "{text}");
    assert!(first.try_wait().unwrap().is_none());
    drop(fifo);
    assert_eq!(finish(first, "the first copy").status.code(), Some(0));
}

/// The manifest is on a full disk: the copy stops, and continues when there is room.
#[test]
fn full_disk_of_the_manifest_stops_the_copy() {
    let place = place("cp-resume-full");
    let Some(small) = is_root().then(|| Mount::new(&place, "tmpfs", 1)).flatten() else { return };
    for directory in 0..50 {
        fs::create_dir_all(place.join(format!("s/{directory}/below"))).unwrap();
        fs::write(place.join(format!("s/{directory}/file")), "text").unwrap();
    }
    let manifest = format!("--resume={}", small.0.join("m").display());
    let arguments = ["-aT", &manifest, "s", "d"];
    fs::write(small.0.join("m"), "").unwrap();
    let ballast = small.0.join("ballast");
    // The header still fits.
    let full = fs::write(&ballast, vec![0; (1 << 20) - 4096]);
    assert!(full.is_ok(), "{full:?}");
    let text = refused(&place, &arguments);
    assert_eq!(text.lines().count(), 1, "{text}");
    let name = small.0.join("m").display().to_string();
    let words = format!("cannot write manifest '{name}': No space left on device; the copy stops");
    assert_eq!(text, format!("cringle cp: {words}\n"));
    fs::remove_file(&ballast).unwrap();
    let (copied, kept) = copied_and_kept(&resumed(&place, &arguments));
    assert_eq!(copied + kept, 50);
}

/// They exceed what one record of a log may have.
#[test]
fn many_names_are_accepted() {
    let place = place("cp-resume-names");
    fs::create_dir(place.join("s")).unwrap();
    fs::create_dir(place.join("d")).unwrap();
    let name = |n: usize| format!("s/{n:0120}");
    let names: Vec<String> = (0..3000).map(name).collect();
    names.iter().for_each(|name| fs::write(place.join(name), name).unwrap());
    let names = names.iter().map(String::as_str);
    let arguments: Vec<&str> = ["--resume=m"].into_iter().chain(names).chain(["d/"]).collect();
    assert_eq!(copied_and_kept(&resumed(&place, &arguments)).0, 3000);
    let kept = copied_and_kept(&resumed(&place, &arguments));
    assert_eq!(kept.0 + kept.1, 3000);
    let other = [&arguments[..arguments.len() - 2], &["d/"]].concat();
    assert!(refused(&place, &other).contains("belongs to another copy"));
}

/// The report at the end would replace the manifest.
#[test]
fn other_outputs_are_not_the_manifest() {
    let place = place("cp-resume-outputs");
    small_source(&place);
    for option in ["--json=./m", "--trace=m"] {
        let text = refused(&place, &["-r", "--resume=m", option, "s", "d"]);
        assert!(text.contains("manifest 'm' is the file of --"), "{text}");
        assert!(!place.join("m").exists() && !place.join("d").exists());
    }
    resumed(&place, &["-r", "--resume=m", "s", "d"]);
    let before = fs::read(place.join("m")).unwrap();
    std::os::unix::fs::symlink("m", place.join("link")).unwrap();
    for option in ["--json=./m", "--json=link", "--trace=m"] {
        let text = refused(&place, &["-r", "--resume=m", option, "s", "d"]);
        assert!(text.contains("manifest 'm' is the file of --"), "{text}");
        assert_eq!(fs::read(place.join("m")).unwrap(), before);
    }
}
