//! Links whose target appears meanwhile, and links that are made although the call fails.

use crate::common::*;
use crate::support::*;
use cringle_testing::fuse::{ALWAYS, Faulty, Rules};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// Returns the names that a copy has left behind.
fn temporaries(disk: &Faulty) -> Vec<String> {
    let names = disk.names("").into_iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".cringle-cp.")).collect()
}

fn same(disk: &Path, one: &str, other: &str) -> bool {
    let number = |name: &str| fs::symlink_metadata(disk.join(name)).unwrap().ino();
    number(one) == number(other)
}

#[test]
fn forced_links_replace_a_target_that_appears() {
    let base = tempfile::tempdir_in(place("cp-links-race")).unwrap();
    let Some(disk) = Faulty::mount(base.path(), "disk") else { return };
    let succeeds = Some(0);
    for (flags, status) in [
        (&["-lf"][..], succeeds),
        (&["-sf"], succeeds),
        (&["-li"], succeeds),
        (&["-Pf"], succeeds),
        (&["-l"], Some(1)),
        (&["-s"], Some(1)),
    ] {
        disk.clear();
        disk.put("source", b"text");
        symlink("source", disk.at.join("link")).unwrap();
        disk.set(Rules { rivals: ALWAYS, ..Rules::default() });
        let source = if flags[0] == "-Pf" { "link" } else { "source" };
        let (code, _, error) = run(&disk.at, &[flags, &[source, "./victim"]].concat());
        disk.set(Rules::default());
        assert_eq!(code, status, "{flags:?}: {error}");
        assert_eq!(temporaries(&disk), [""; 0], "{flags:?}");
        let is_link = fs::read_link(disk.at.join("victim")).is_ok();
        match (status, flags[0]) {
            (Some(0), "-lf" | "-li") => assert!(same(&disk.at, "source", "victim"), "{flags:?}"),
            (Some(0), _) => assert!(is_link, "{flags:?}"),
            _ => assert!(error.ends_with(": File exists\n"), "{flags:?}: {error}"),
        }
    }
}

/// A server of NFS performs a request again if its answer was lost.
#[test]
fn a_link_made_despite_an_error_counts() {
    let base = tempfile::tempdir_in(place("cp-links-despite")).unwrap();
    let Some(disk) = Faulty::mount(base.path(), "disk") else { return };
    for error in [libc::EEXIST, libc::EIO] {
        for arguments in [
            &["-l", "source", "victim"][..],
            &["-lf", "source", "victim"],
            &["-lf", "source", "old-victim"],
            &["-P", "link", "victim"],
            &["-Pf", "link", "old-victim"],
            &["-s", "source", "victim"],
            &["-sf", "source", "old-victim"],
            &["-aT", "tree", "victim-copy"],
            &["-aT", "tree", "old-copy"],
        ] {
            disk.clear();
            disk.put("source", b"text");
            disk.put("old-victim", b"old");
            symlink("source", disk.at.join("link")).unwrap();
            for directory in ["tree", "old-copy"] {
                disk.mkdir(directory);
                disk.put(&format!("{directory}/a-victim"), b"one");
            }
            disk.put("old-copy/b-victim", b"another");
            disk.link("tree/a-victim", "tree/b-victim");
            disk.set(Rules { links_despite_errors: Some(error), ..Rules::default() });
            let (code, _, text) = run(&disk.at, arguments);
            disk.set(Rules::default());
            assert_eq!((code, text.as_str()), (Some(0), ""), "{error}: {arguments:?}");
            let target = arguments[arguments.len() - 1];
            for directory in ["", target] {
                let names = disk.names(directory).into_iter();
                let left = names.filter(|name| name.to_string_lossy().starts_with(".cringle-cp."));
                assert_eq!(left.count(), 0, "{error}: {arguments:?}");
            }
            match arguments[0] {
                "-l" | "-lf" => assert!(same(&disk.at, "source", target)),
                "-aT" => {
                    let names = ["a-victim", "b-victim"].map(|name| format!("{target}/{name}"));
                    assert!(same(&disk.at, &names[0], &names[1]), "{error}: {arguments:?}");
                }
                _ => assert_eq!(fs::read_link(disk.at.join(target)).unwrap(), Path::new("source")),
            }
        }
    }
}
