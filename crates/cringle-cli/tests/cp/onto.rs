//! Trees onto occupied targets, by many threads at once: each name ends with its own source's content.

use crate::common::*;
use crate::support::*;
use crate::trees::{describe, mkfifo};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

const PAIRS: usize = 600;

/// `s/aN` and `s/bN` are one file with content of its own; `d` has an old file under each name.
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
fn links_that_replace_names_keep_to_their_own_file() {
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
fn leftovers_of_a_killed_run_are_in_nobodys_way() {
    let place = place("cp-onto-leftovers");
    fs::create_dir(place.join("s")).unwrap();
    fs::create_dir(place.join("d")).unwrap();
    for number in 0..20 {
        fs::write(place.join(format!("s/{number}")), number.to_string()).unwrap();
        fs::hard_link(place.join(format!("s/{number}")), place.join(format!("s/l{number}")))
            .unwrap();
    }
    // Names of the process's own number, as a run that had the same number would have left them.
    let script = "for n in link $(seq 0 99); do echo left > d/.cringle-cp.$$.$n; done; exec \"$@\"";
    for flags in [&["-r", "--fsync"][..], &["-a"], &["-a", "--fsync"], &["-rlf"]] {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_cringle"), "cp"]);
        command.args(flags).args(["s/.", "d"]);
        let said = output_of(command, &place, b"");
        assert_eq!((said.status.code(), texts(&said).1.as_str()), (Some(0), ""), "{flags:?}");
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

/// Names of each kind, on both sides, that fit and that do not.
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
fn occupied_names_become_what_gnus_makes_of_them() {
    if !is_gnu() {
        return;
    }
    let mut told = String::new();
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
        told += &compare("occupied", &arguments, b"", Compared::Trees, occupied);
    }
    assert_same(told);
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

/// A name that leaves no room for a number has one backup, which no later one replaces.
#[test]
fn a_numbered_backup_of_a_long_name_replaces_none() {
    let place = place("cp-long-backup");
    let name = "7".repeat(252);
    let mut ends = Vec::new();
    for text in ["one", "two", "three"] {
        fs::write(place.join("s"), text).unwrap();
        let (status, _, told) = run(&place, &["--backup=numbered", "s", &name]);
        ends.push((status, told.contains("cannot backup") && told.contains("File exists")));
    }
    assert_eq!(ends, [(Some(0), false), (Some(0), false), (Some(1), true)]);
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    assert_eq!((read(&name), read(&format!("{name}~"))), ("two".into(), "one".into()));
}

/// One failure, one line.
#[test]
fn nothing_is_synced_where_nothing_was_copied() {
    let place = place("cp-nothing-synced");
    fs::write(place.join("file"), "x").unwrap();
    let (status, _, told) = run(&place, &["--fsync", "nope", "file/."]);
    assert_eq!((status, told.lines().count()), (Some(1), 1), "{told}");
}

/// A link in the target that leads to a file which is only made by this copy: the one or the other.
#[test]
fn a_new_file_and_a_link_to_it_are_no_mixture() {
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
        let (status, _, told) = run(&place, &all);
        // Which of the two comes first is not said; a link that leads nowhere yet is refused.
        assert!(status == Some(0) || told.contains("not writing through dangling"), "{told}");
        let found = fs::read(place.join("d/a/f")).unwrap();
        assert!(found == one || found == other, "{flags:?}: a mixture");
    }
}

/// Of two targets that are one file, the last one's content stays, also of many on the command line.
#[test]
fn many_targets_that_are_one_file_are_written_in_turn() {
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
        let said = run(&place, &arguments);
        assert_eq!(said, (Some(0), String::new(), String::new()));
        let last = fs::read(place.join("s/h199")).unwrap();
        assert!(fs::read(place.join(directory).join("h100")).unwrap() == last, "{directory}");
    }
}

/// With `--fsync`, too, what one source made is not replaced by another, and a link that leads nowhere is
/// found before anything is copied.
#[test]
fn with_fsync_targets_are_known_as_without() {
    let place = place("cp-fsync-known");
    for directory in ["a", "b", "d"] {
        fs::create_dir(place.join(directory)).unwrap();
    }
    fs::write(place.join("a/x"), "1").unwrap();
    fs::write(place.join("b/x"), "2").unwrap();
    let (status, _, told) = run(&place, &["--fsync", "a/x", "b/x", "d"]);
    let words = "will not overwrite just-created 'd/x' with 'b/x'";
    assert!(status == Some(1) && told.contains(words), "{told}");
    assert_eq!(fs::read_to_string(place.join("d/x")).unwrap(), "1");
    std::os::unix::fs::symlink("nope", place.join("link")).unwrap();
    let (status, _, told) = run(&place, &["--fsync", "a/x", "link"]);
    assert!(status == Some(1) && told.contains("not writing through dangling"), "{told}");
    let mut command = ours();
    command.args(["--fsync", "a/x", "link"]).env("POSIXLY_CORRECT", "1").current_dir(&place);
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(place.join("nope")).unwrap(), "1");
}

/// A source that is a file of the target, by a link: whole, whichever of the two is copied first.
#[test]
fn a_source_that_is_written_meanwhile_is_read_whole() {
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
            // Two names: it is written in place.
            fs::hard_link(place.join("e/a/f"), place.join("e/other")).unwrap();
        }
        if by_hard_link {
            fs::hard_link(place.join("e/a/f"), &link).unwrap();
        } else {
            std::os::unix::fs::symlink("../../../../../e/a/f", &link).unwrap();
        }
        let (status, _, told) = run(&place, &[way, "--jobs=4", "-T", "s", "e"]);
        if status == Some(0) {
            let found = fs::read(place.join("e/b/x/y/z/l")).unwrap();
            let same = found.iter().all(|byte| *byte == found[0]);
            assert!(found.len() == bytes && same, "{way} {exists}: {} bytes", found.len());
        } else {
            // The link leads nowhere if it is looked at first.
            assert!(!exists && told.contains("No such file"), "{way}: {told}");
        }
    }
}

/// On the command line the sources are in order, where one is another's target.
#[test]
fn many_sources_that_are_targets_are_copied_in_order() {
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
