//! Deep, wide and hostile trees: memory and descriptors are bounded, and nothing outside the target
//! is written.

use crate::common::*;
use crate::support::*;
use crate::trees::{describe, mkfifo};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

#[test]
fn a_swapped_directory_is_not_followed() {
    let place = place("cp-swapped");
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::write(place.join("tree/sub/secret"), "x").unwrap();
    fs::create_dir_all(place.join("copy")).unwrap();
    fs::create_dir_all(place.join("elsewhere")).unwrap();
    symlink("../elsewhere", place.join("copy/sub")).unwrap();
    let mut command = ours();
    command.args(["-rT", "tree", "copy"]);
    let output = output_of(command, &place, b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(is_empty(&place.join("elsewhere")));
}

#[test]
fn deep_and_wide_trees_are_bounded() {
    let place = place("cp-bounds");
    let deep = place.join("deep");
    fs::create_dir(&deep).unwrap();
    let mut dir = cringle::fs::Dir::open(&deep).unwrap();
    for _ in 0..2000 {
        dir.create_dir("d").unwrap();
        dir = dir.open_dir("d").unwrap();
    }
    fs::create_dir(place.join("wide")).unwrap();
    for number in 0..5000 {
        fs::write(place.join(format!("wide/{number}")), "").unwrap();
    }
    let mut command = limited("n", 256);
    command.args(["-a", "deep", "wide", "out"]);
    fs::create_dir(place.join("out")).unwrap();
    let output = output_of(command, &place, b"");
    assert_eq!(texts(&output), (String::new(), String::new()));
    assert_eq!(fs::read_dir(place.join("out/wide")).unwrap().count(), 5000);
    let mut levels = 0;
    let mut dir = cringle::fs::Dir::open(place.join("out/deep")).unwrap();
    while let Ok(below) = dir.open_dir("d") {
        (dir, levels) = (below, levels + 1);
    }
    assert_eq!(levels, 2000);
}

/// Makes branches with some of each kind of file. The names of one file lie far apart.
fn make_branches(tree: &Path) {
    for branch in 0..12 {
        let dir = tree.join(format!("{branch}/a/b/c"));
        fs::create_dir_all(&dir).unwrap();
        for above in dir.ancestors().take(4) {
            fs::write(above.join("file"), noise(3000)).unwrap();
            symlink("file", above.join("link")).unwrap();
        }
        mkfifo(&dir.join("fifo"));
        let first = tree.join("0/a/b/c/file");
        fs::hard_link(first, tree.join(format!("{branch}/a/name"))).unwrap();
        fs::hard_link(dir.join("file"), dir.join("another")).unwrap();
    }
}

#[test]
fn few_descriptors_are_enough() {
    let place = place_in_memory("cp-few");
    let place = place.path();
    make_branches(&place.join("tree"));
    let copied = |mut command: Command, least: usize, way: &[&str]| {
        // The second command copies onto the result of the first.
        command.args(way).args(["-T", "tree", "copy"]);
        let output = output_of(command, place, b"");
        assert_eq!(texts(&output), (String::new(), String::new()), "{least} {way:?}");
    };
    let ways: [(usize, &[&str]); 7] = [
        (10, &["-a"]),
        (10, &["-r"]),
        (10, &["-al"]),
        (10, &["-rL", "--remove-destination"]),
        (11, &["-a", "--backup"]),
        (11, &["-a", "--verify", "--remove-destination"]),
        (16, &["-a", "--fsync"]),
    ];
    for (least, way) in ways {
        for limit in [least, least + 1, least + 3, 24, 33, 48, 100] {
            for _ in 0..2 {
                copied(limited("n", limit), limit, way);
            }
            if way[0] == "-a" && !way.contains(&"--backup") {
                let at = |name| describe(&place.join(name), false);
                assert_eq!(at("tree"), at("copy"), "{limit} {way:?}");
            }
            fs::remove_dir_all(place.join("copy")).unwrap();
        }
    }
    // A soft limit is raised.
    copied(limited("Sn", 8), 8, &["-a"]);
}

#[test]
fn a_dry_run_of_a_wide_directory_is_bounded() {
    let place = place_in_memory("cp-wide-dry");
    let place = place.path();
    for dir in ["wide", "wide/below", "wide/below/again"] {
        fs::create_dir(place.join(dir)).unwrap();
    }
    let names = 30_000;
    for number in 0..names {
        fs::write(place.join(format!("wide/below/{number:_<220}")), "").unwrap();
    }
    // All names, of source and target, need twice as much; with 12 descriptors no listing stays
    // open.
    for (descriptors, kilobytes) in [(1024, 10 << 10), (12, 10 << 10)] {
        let mut command = Command::new("sh");
        let script = format!(
            "ulimit -n {descriptors} && ulimit -d {kilobytes} && exec \"$0\" cp -r --dry-run wide copy"
        );
        command.args(["-c", &script, env!("CARGO_BIN_EXE_cringle")]);
        let output = output_of(command, place, b"");
        assert_eq!(texts(&output).1, "");
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(lines(&output.stdout).len(), names + 3);
    }
}

#[test]
fn a_dry_run_visits_a_deep_tree() {
    let place = place_in_memory("cp-deep-dry");
    let place = place.path();
    fs::create_dir(place.join("deep")).unwrap();
    let mut dir = cringle::fs::Dir::open(place.join("deep")).unwrap();
    let name = "n".repeat(200);
    for level in 0..60 {
        dir.create_dir(&name).unwrap();
        dir.symlink(format!("{level}"), "link").unwrap();
        dir = dir.open_dir(&name).unwrap();
    }
    let (dry, copied) =
        (run(place, &["-r", "--dry-run", "deep", "copy"]), run(place, &["-rv", "deep", "copy"]));
    assert_eq!((dry.0, &dry.2), (copied.0, &copied.2));
    assert_eq!((dry.0, dry.2.as_str()), (Some(0), ""));
    assert_eq!(lines(dry.1.as_bytes()), lines(copied.1.as_bytes()));
    // The same onto an existing tree.
    let dry = run(place, &["-rT", "--dry-run", "deep", "copy"]);
    assert_eq!((dry.0, dry.2.as_str()), (Some(0), ""));
    assert_eq!(dry.1.matches("(removed, replaced)").count(), 60);
}

#[test]
fn the_first_of_two_sources_wins() {
    let place = place("cp-many");
    for directory in ["in", "other", "out", "again"] {
        fs::create_dir(place.join(directory)).unwrap();
    }
    let names: Vec<_> = (0..500).map(|number| format!("in/{number}")).collect();
    for name in &names {
        fs::write(place.join(name), name).unwrap();
    }
    fs::create_dir_all(place.join("in/tree/below")).unwrap();
    fs::write(place.join("in/tree/below/file"), "in a tree").unwrap();
    fs::hard_link(place.join("in/3"), place.join("in/same")).unwrap();
    let mut arguments = vec!["-a", "-t", "out", "in/tree", "in/same"];
    arguments.extend(names.iter().map(String::as_str));
    copies(&place, &arguments);
    for name in &names {
        let copy = place.join(name.replace("in/", "out/"));
        assert_eq!(&fs::read_to_string(copy).unwrap(), name);
    }
    assert!(place.join("out/tree/below/file").exists());
    let inode = |name: &str| fs::metadata(place.join(name)).unwrap().ino();
    assert_eq!(inode("out/3"), inode("out/same"));
    // Two sources of one name, next to each other: the first one wins, however many others there
    // are.
    let mut pairs = vec!["-a".to_owned(), "-t".to_owned(), "again".to_owned()];
    let mut refused = Vec::new();
    for number in 0..300 {
        let other = format!("other/{number}");
        fs::write(place.join(&other), "too late").unwrap();
        pairs.extend([format!("in/{number}"), other]);
        refused.push(format!(
            "cp: will not overwrite just-created 'again/{number}' with 'other/{number}'"
        ));
    }
    refused.sort();
    let (status, _, stderr) = run(&place, &pairs.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(lines(stderr.as_bytes()), refused);
    assert_eq!(status, Some(1));
    for number in 0..300 {
        let copy = fs::read_to_string(place.join(format!("again/{number}"))).unwrap();
        assert_eq!(copy, format!("in/{number}"));
    }
}

/// `SystemCallFilter=~@resources` of systemd denies the call.
#[test]
fn limits_that_cannot_be_read_or_raised_are_no_failure() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use std::os::unix::process::CommandExt;
    let place = place("cp-no-limits");
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::write(place.join("tree/sub/file"), "text").unwrap();
    for (number, error) in [libc::EPERM, libc::ENOSYS].into_iter().enumerate() {
        for flags in [&["-a"][..], &["-a", "--fsync"]] {
            let rules = [(libc::SYS_prlimit64, Vec::new())].into_iter().collect();
            let denied = SeccompAction::Errno(error as u32);
            let architecture = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture);
            let filter: BpfProgram = filter.unwrap().try_into().unwrap();
            let copy = format!("copy-{number}-{}", flags.len());
            let mut command = ours();
            command.args(flags).args(["tree", &copy]);
            // SAFETY: the closure only makes system calls.
            unsafe {
                command.pre_exec(move || {
                    seccompiler::apply_filter(&filter)
                        .map_err(|_| std::io::Error::from_raw_os_error(libc::EINVAL))
                })
            };
            let output = output_of(command, &place, b"");
            assert_eq!(texts(&output), (String::new(), String::new()), "{flags:?}");
            assert!(output.status.success(), "{flags:?}");
            assert_eq!(fs::read(place.join(copy).join("sub/file")).unwrap(), b"text");
        }
    }
}
