//! Copies trees onto occupied targets with many threads: each name ends with its own source's
//! content.

use crate::common::*;
use crate::support::*;
use crate::trees::{describe, mkfifo};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

const PAIRS: usize = 600;

/// In `s`, `aN` and `bN` are one file with its own content; `d` has an old file under each name.
fn pairs(place: &Path) {
    fs::create_dir(place.join("s")).unwrap();
    fs::create_dir(place.join("d")).unwrap();
    for number in 0..PAIRS {
        let name = |tree: &str, letter| place.join(format!("{tree}/{letter}{number}"));
        fs::write(name("s", 'a'), number.to_string()).unwrap();
        fs::hard_link(name("s", 'a'), name("s", 'b')).unwrap();
        fs::write(name("d", 'a'), "old").unwrap();
        fs::write(name("d", 'b'), "old").unwrap();
    }
}

fn each_name_has_its_own_content(place: &Path) {
    for number in 0..PAIRS {
        for letter in ['a', 'b'] {
            let path = place.join(format!("d/{letter}{number}"));
            assert_eq!(fs::read_to_string(&path).unwrap(), number.to_string(), "{path:?}");
        }
    }
    let names = fs::read_dir(place.join("d")).unwrap().count();
    assert_eq!(names, 2 * PAIRS, "temporary names are left");
}

#[test]
fn links_replace_names_with_their_own_file() {
    let base = place_in_memory("cp-onto-pairs");
    for (number, flags) in
        ["-a", "-rlf", "-rsf", "-rl --remove-destination", "-ab"].iter().enumerate()
    {
        let place = base.path().join(number.to_string());
        fs::create_dir(&place).unwrap();
        pairs(&place);
        let source = place.join("s/.");
        let mut arguments: Vec<_> = flags.split(' ').collect();
        arguments.extend(["--jobs=16", source.to_str().unwrap(), "d"]);
        copies(&place, &arguments);
        if *flags == "-ab" {
            for number in 0..PAIRS {
                for letter in ['a', 'b'] {
                    let backup = place.join(format!("d/{letter}{number}~"));
                    assert_eq!(fs::read_to_string(&backup).unwrap(), "old", "{backup:?}");
                    fs::remove_file(backup).unwrap();
                }
            }
        }
        each_name_has_its_own_content(&place);
        if flags.starts_with("-a") {
            let inode = |letter, number| {
                fs::metadata(place.join(format!("d/{letter}{number}"))).unwrap().ino()
            };
            assert!((0..PAIRS).all(|number| inode('a', number) == inode('b', number)), "{flags}");
        }
        fs::remove_dir_all(&place).unwrap();
    }
}

#[test]
fn leftovers_of_a_killed_run_are_ignored() {
    let place = place("cp-onto-leftovers");
    fs::create_dir(place.join("s")).unwrap();
    fs::create_dir(place.join("d")).unwrap();
    for number in 0..20 {
        fs::write(place.join(format!("s/{number}")), number.to_string()).unwrap();
        fs::hard_link(place.join(format!("s/{number}")), place.join(format!("s/l{number}")))
            .unwrap();
    }
    // Names with the process's own number, as an earlier run with that number could have left them.
    let script = "for n in link $(seq 0 99); do echo left > d/.cringle-cp.$$.$n; done; exec \"$@\"";
    for flags in [&["-r", "--fsync"][..], &["-a"], &["-a", "--fsync"], &["-rlf"]] {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_cringle"), "cp"]);
        command.args(flags).args(["s/.", "d"]);
        let output = output_of(command, &place, b"");
        assert_eq!((output.status.code(), texts(&output).1.as_str()), (Some(0), ""), "{flags:?}");
        for number in 0..20 {
            for name in [number.to_string(), format!("l{number}")] {
                assert_eq!(
                    fs::read_to_string(place.join("d").join(name)).unwrap(),
                    number.to_string()
                );
            }
        }
        let mut left = 0;
        for entry in fs::read_dir(place.join("d")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_str().unwrap().starts_with(".cringle-cp.") {
                assert_eq!(fs::read_to_string(entry.path()).unwrap(), "left\n");
                left += 1;
                fs::remove_file(entry.path()).unwrap();
            }
        }
        assert_eq!(left, 101);
    }
}

/// Makes files of each type on both sides, of the same type and of different ones.
fn occupied(place: &Path) {
    for tree in ["s", "d"] {
        fs::create_dir(place.join(tree)).unwrap();
        symlink(format!("to-{tree}"), place.join(tree).join("link")).unwrap();
        mkfifo(&place.join(tree).join("fifo"));
        fs::write(place.join(tree).join("file"), tree).unwrap();
    }
    fs::write(place.join("s/file-dir"), "file").unwrap();
    fs::create_dir(place.join("d/file-dir")).unwrap();
    fs::hard_link(place.join("s/file"), place.join("d/file.old")).unwrap();
    fs::write(place.join("s/file.old"), "other").unwrap();
}

#[test]
fn occupied_names_end_as_with_gnus() {
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for case in [
        "-rH s/. d",
        "-rHf s/. d",
        "-RHT s d",
        "-aH s/. d",
        "-n s/file-dir d",
        "-nr s/. d",
        "-nT s/file-dir d/file-dir",
        "-b --suffix=.old s/file d",
        "-b -S.old s/file.old d/file",
        "-b -S.old d/file.old d/file",
        "-ab -S.old s/file d",
        "-bT s/. d/file",
        "--parents -r s/.. d",
        "--parents -r s/. d",
        "--parents -r s/./ d",
        "-P --attributes-only s/link d",
        "-Pf --attributes-only s/link d",
        "-n --update=all s/file d",
        "-i --update=none s/file d",
        "--update=none -i s/file d",
    ] {
        if case.contains("--update=") && gnu_version() < (9, 3) {
            continue;
        }
        let arguments: Vec<_> = case.split(' ').collect();
        differences += &compare("occupied", &arguments, b"", Compared::Trees, occupied);
    }
    assert_same(differences);
}

#[test]
fn a_dry_run_decides_as_a_copy() {
    let place = place("cp-onto-dry");
    occupied(&place);
    for case in [
        "-n s/file-dir d",
        "-nT s/file-dir d/file-dir",
        "s/file-dir d",
        "-r s/. d/file-dir",
        "--update=none-fail s/file d",
        "--update=none-fail s/file-dir d",
        "-b -S.old d/file.old d/file",
        "-T s/file s/file",
        "-rT s d/file",
        "-l s/file d/file.old",
    ] {
        let arguments: Vec<_> = case.split(' ').collect();
        let dry = run(&place, &[&["--dry-run"], &arguments[..]].concat());
        let before = describe(&place, true);
        let copied = run(&place, &arguments);
        assert_eq!((dry.0, &dry.2), (copied.0, &copied.2), "{case}");
        assert_eq!(before.len(), describe(&place, true).len().min(before.len()), "{case}");
    }
}

#[test]
fn two_sources_of_one_file_do_not_mix() {
    let base = place_in_memory("cp-onto-mixed");
    let sizes = [300_000, 40_000, 5, 90_000];
    for round in 0..10 {
        let place = base.path().join(round.to_string());
        for directory in ["a", "b", "c", "e"] {
            fs::create_dir_all(place.join("s").join(directory)).unwrap();
            fs::create_dir_all(place.join("d").join(directory)).unwrap();
        }
        for number in 0..40 {
            for (letter, size) in ['a', 'b', 'c', 'e'].into_iter().zip(sizes) {
                let name = |tree: &str| place.join(format!("{tree}/{letter}/{number}"));
                fs::write(name("s"), letter.to_string().repeat(size)).unwrap();
                match letter {
                    'a' => fs::write(name("d"), "old").unwrap(),
                    'b' => fs::hard_link(place.join(format!("d/a/{number}")), name("d")).unwrap(),
                    _ => symlink(format!("../a/{number}"), name("d")).unwrap(),
                }
            }
        }
        copies(&place, &["-r", "--jobs=16", "--reflink=never", "s/.", "d"]);
        for number in 0..40 {
            let content = fs::read(place.join(format!("d/a/{number}"))).unwrap();
            let whole = ['a', 'b', 'c', 'e'].into_iter().zip(sizes).any(|(letter, size)| {
                content.len() == size && content.iter().all(|&byte| byte == letter as u8)
            });
            assert!(whole, "round {round}: {number} is a mixture");
        }
        fs::remove_dir_all(&place).unwrap();
    }
}

/// A name without room for a number has one backup, which no later one replaces.
#[test]
fn a_numbered_backup_of_a_long_name_is_kept() {
    let place = place("cp-long-backup");
    let name = "7".repeat(252);
    let mut ends = Vec::new();
    for text in ["one", "two", "three"] {
        fs::write(place.join("s"), text).unwrap();
        let (status, _, stderr) = run(&place, &["--backup=numbered", "s", &name]);
        ends.push((status, stderr.contains("cannot backup") && stderr.contains("File exists")));
    }
    assert_eq!(ends, [(Some(0), false), (Some(0), false), (Some(1), true)]);
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    assert_eq!((read(&name), read(&format!("{name}~"))), ("two".into(), "one".into()));
}

/// One failure prints one line.
#[test]
fn a_failed_copy_syncs_nothing() {
    let place = place("cp-nothing-synced");
    fs::write(place.join("file"), "x").unwrap();
    let (status, _, stderr) = run(&place, &["--fsync", "nope", "file/."]);
    assert_eq!((status, stderr.lines().count()), (Some(1), 1), "{stderr}");
}

/// A link in the target to a file that this copy creates: it is written through or refused.
#[test]
fn a_new_file_and_its_link_do_not_mix() {
    let place = place("cp-link-to-new");
    for directory in ["s/a", "s/b/x/y/z", "d/b/x/y/z"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    let (one, other) = (vec![b'A'; 24 << 20], vec![b'B'; 16 << 20]);
    fs::write(place.join("s/a/f"), &one).unwrap();
    fs::write(place.join("s/b/x/y/z/l"), &other).unwrap();
    for flags in [&[][..], &["--block-size=4k"]] {
        let link = place.join("d/b/x/y/z/l");
        let _ = fs::remove_file(&link);
        let _ = fs::remove_file(place.join("d/a/f"));
        std::os::unix::fs::symlink("../../../../a/f", &link).unwrap();
        let all = [flags, &["-rT", "--reflink=never", "--jobs=4", "s", "d"]].concat();
        let (status, _, stderr) = run(&place, &all);
        // The order is undefined: a link that is still dangling is refused.
        assert!(status == Some(0) || stderr.contains("not writing through dangling"), "{stderr}");
        let found = fs::read(place.join("d/a/f")).unwrap();
        assert!(found == one || found == other, "{flags:?}: a mixture");
    }
}

/// Of two targets that are one file, the last one's content stays, also with many sources on the
/// command line.
#[test]
fn targets_that_are_one_file_are_written_in_turn() {
    let place = place("cp-one-of-many");
    fs::create_dir_all(place.join("s")).unwrap();
    let names: Vec<_> = (100..200).map(|n| format!("s/h{n}")).collect();
    for (number, name) in names.iter().enumerate() {
        fs::write(place.join(name), format!("{name} {}", "x".repeat(number * 100))).unwrap();
    }
    for directory in ["d", "e"] {
        fs::create_dir(place.join(directory)).unwrap();
        fs::write(place.join(directory).join("h100"), "old").unwrap();
        for n in 101..200 {
            let link = place.join(format!("{directory}/h{n}"));
            match directory {
                "d" => fs::hard_link(place.join("d/h100"), link).unwrap(),
                _ => std::os::unix::fs::symlink("h100", link).unwrap(),
            }
        }
        let arguments: Vec<_> = names.iter().map(String::as_str).chain([directory]).collect();
        let output = run(&place, &arguments);
        assert_eq!(output, (Some(0), String::new(), String::new()));
        let last = fs::read(place.join("s/h199")).unwrap();
        assert!(fs::read(place.join(directory).join("h100")).unwrap() == last, "{directory}");
    }
}

/// With `--fsync`, too, no source replaces the target of another, and a dangling link is found
/// before a file is copied.
#[test]
fn fsync_does_not_replace_new_targets() {
    let place = place("cp-fsync-known");
    for directory in ["a", "b", "d"] {
        fs::create_dir(place.join(directory)).unwrap();
    }
    fs::write(place.join("a/x"), "1").unwrap();
    fs::write(place.join("b/x"), "2").unwrap();
    let (status, _, stderr) = run(&place, &["--fsync", "a/x", "b/x", "d"]);
    let words = "will not overwrite just-created 'd/x' with 'b/x'";
    assert!(status == Some(1) && stderr.contains(words), "{stderr}");
    assert_eq!(fs::read_to_string(place.join("d/x")).unwrap(), "1");
    std::os::unix::fs::symlink("nope", place.join("link")).unwrap();
    let (status, _, stderr) = run(&place, &["--fsync", "a/x", "link"]);
    assert!(status == Some(1) && stderr.contains("not writing through dangling"), "{stderr}");
    let mut command = ours();
    command.args(["--fsync", "a/x", "link"]).env("POSIXLY_CORRECT", "1").current_dir(&place);
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(place.join("nope")).unwrap(), "1");
}

/// A source that links to a file of the target is copied whole, whichever of the two is copied
/// first.
#[test]
fn a_source_being_written_is_copied_whole() {
    let place = place("cp-source-is-target");
    for directory in ["s/a", "s/b/x/y/z"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    let bytes = 24 << 20;
    fs::write(place.join("s/a/f"), vec![b'A'; bytes]).unwrap();
    for (way, by_hard_link, exists) in
        [("-rL", false, true), ("-r", true, true), ("-rL", false, false)]
    {
        let _ = fs::remove_dir_all(place.join("e"));
        let link = place.join("s/b/x/y/z/l");
        let _ = fs::remove_file(&link);
        fs::create_dir_all(place.join("e/a")).unwrap();
        if exists {
            fs::write(place.join("e/a/f"), vec![b'O'; bytes]).unwrap();
            // It has two names, so it is written in place.
            fs::hard_link(place.join("e/a/f"), place.join("e/other")).unwrap();
        }
        if by_hard_link {
            fs::hard_link(place.join("e/a/f"), &link).unwrap();
        } else {
            std::os::unix::fs::symlink("../../../../../e/a/f", &link).unwrap();
        }
        let (status, _, stderr) = run(&place, &[way, "--jobs=4", "-T", "s", "e"]);
        if status == Some(0) {
            let found = fs::read(place.join("e/b/x/y/z/l")).unwrap();
            assert!(found == vec![found[0]; bytes], "{way} {exists}: {} bytes", found.len());
        } else {
            // The link is dangling if it is copied first.
            assert!(!exists && stderr.contains("No such file"), "{way}: {stderr}");
        }
    }
}

/// On the command line, a source that is another's target is copied in order.
#[test]
fn sources_that_are_targets_are_copied_in_order() {
    let place = place("cp-sources-are-targets");
    fs::create_dir(place.join("s")).unwrap();
    fs::create_dir(place.join("e")).unwrap();
    let mut names = Vec::new();
    for number in 100..150 {
        let (file, link) = (format!("f{number}"), format!("l{number}"));
        fs::write(place.join("s").join(&file), format!("new {number}").repeat(50_000)).unwrap();
        fs::write(place.join("e").join(&file), "old").unwrap();
        std::os::unix::fs::symlink(format!("../e/{file}"), place.join("s").join(&link)).unwrap();
        names.extend([format!("s/{file}"), format!("s/{link}")]);
    }
    let arguments: Vec<_> = names.iter().map(String::as_str).chain(["e"]).collect();
    assert_eq!(run(&place, &arguments), (Some(0), String::new(), String::new()));
    for number in 100..150 {
        let read = |name: String| fs::read(place.join("e").join(name)).unwrap();
        assert!(read(format!("f{number}")) == read(format!("l{number}")), "{number}");
    }
}
