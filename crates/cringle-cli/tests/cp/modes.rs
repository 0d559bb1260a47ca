//! Modes and attributes of new files, in tables that are put to both programs.

use crate::common::*;
use crate::support::*;
use crate::trees::{DEFAULT, acl, mkfifo, set_xattr, socket};
use crate::users::{NOBODY, place_of_nobody};
use cringle_testing::child::scaled;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes a tree of every type of file with many modes, and a target for it. Returns false if the
/// file system has no ACLs.
fn modes(place: &Path, default: Option<&[u8]>, owner: u32) -> bool {
    let tree = place.join("tree");
    fs::create_dir_all(&tree).unwrap();
    fs::create_dir(place.join("into")).unwrap();
    let mut made = Vec::new();
    for mode in [0o644, 0o444, 0o600, 0o400, 0o755, 0o666, 0o4755, 0o777] {
        for kind in ["file", "fifo", "socket", "directory"] {
            let path = tree.join(format!("{kind}-{mode:o}"));
            match kind {
                "file" => fs::write(&path, kind).unwrap(),
                "fifo" => mkfifo(&path),
                "socket" => socket(&path),
                _ => {
                    fs::create_dir(&path).unwrap();
                    fs::write(path.join("file"), "below").unwrap();
                    made.push((path.join("file"), 0o640));
                }
            }
            let directory = if kind == "directory" { mode >> 2 & 0o111 | 0o100 } else { 0 };
            made.push((path, mode | directory));
        }
    }
    for (path, mode) in [("directory-555", 0o555), ("directory-1777", 0o1777)] {
        fs::create_dir(tree.join(path)).unwrap();
        made.push((tree.join(path), mode));
    }
    symlink("nowhere", tree.join("link")).unwrap();
    for (path, mode) in made {
        if mode & 0o200 == 0 && path.is_file() {
            set_xattr(&path, c"user.cringle", b"value");
        }
        lchown(&path, Some(owner), Some(owner)).unwrap();
        set_mode(&path, mode);
    }
    for name in ["tree", "tree/link", "into", ""] {
        lchown(place.join(name), Some(owner), Some(owner)).unwrap();
    }
    default.is_none_or(|default| set_xattr(&place.join("into"), DEFAULT, default))
}

const FLAGS: &[&[&str]] = &[
    &["-r"],
    &["-r", "--no-preserve=mode"],
    &["-r", "--preserve=ownership"],
    &["-r", "--preserve=xattr"],
    &["-r", "--preserve=ownership,xattr"],
    &["-r", "--preserve=mode"],
    &["-r", "--preserve=timestamps"],
    &["-r", "--preserve=ownership", "--no-preserve=mode"],
    &["-a"],
    &["-a", "--no-preserve=mode"],
    &["-a", "--no-preserve=mode,ownership"],
    &["-r", "--parents"],
    &["-r", "--parents", "--preserve=ownership"],
    &["-r", "--parents", "--no-preserve=mode"],
];

/// Every set of flags meets every ACL, and each of both every mask and user. With `CRINGLE_FULL=1`
/// every combination of the three is compared.
#[test]
fn new_modes_are_gnus_under_each_acl() {
    let Some(place) = place_of_nobody("cp-modes") else { return };
    let probe = tempfile::tempdir_in(place.path()).unwrap();
    if !is_gnu() || !modes(probe.path(), Some(&acl(7, 7, 7, 7, 7)), 0) {
        return eprintln!("skipped: no ACLs here");
    }
    let some = |owner, user, group, mask, others| Some(acl(owner, user, group, mask, others));
    let acls =
        [None, some(5, 5, 5, 5, 5), some(7, 7, 7, 7, 7), some(5, 7, 0, 7, 0), some(0, 0, 0, 0, 0)];
    let runs = [(0o022, 0), (0o077, NOBODY), (0, 0), (0o022, NOBODY)];
    let mut differences = String::new();
    for (row, default) in acls.iter().enumerate() {
        for (column, flags) in FLAGS.iter().enumerate() {
            let chosen = runs.iter().cycle().skip(row + column).take(scaled(1, runs.len()));
            for &(umask, who) in chosen {
                let differ = new_modes(place.path(), flags, default.as_deref(), umask, who);
                if !differ.is_empty() {
                    differences += &format!("umask {umask:o}, {who}, {default:x?}:\n{differ}");
                }
            }
        }
    }
    assert_same(differences);
}

/// Compares the copies of a user with this mask into a directory with this default ACL.
fn new_modes(place: &Path, flags: &[&str], default: Option<&[u8]>, umask: u32, who: u32) -> String {
    let base = tempfile::tempdir_in(place).unwrap();
    set_mode(base.path(), 0o755);
    let programs = [gnu(), ours()].map(|mut program| {
        program.uid(who).gid(who);
        masked(program, umask)
    });
    let owner = if who == 0 { 1234 } else { who };
    let make = |place: &Path| _ = modes(place, default, owner);
    let arguments = [flags, &["tree", "into"]].concat();
    compare_programs(base.path(), programs.into(), &arguments, b"", Compared::TreesOnto, make)
}

/// The owner may write to the directory but not read it.
#[test]
fn an_unlisted_directory_inherits_acls_as_with_gnus() {
    let Some(of_nobody) = place_of_nobody("cp-unlisted") else { return };
    let unlisted = |place: &Path, default: &[u8]| {
        for name in ["tree/sub", "into"] {
            fs::create_dir_all(place.join(name)).unwrap();
        }
        for (name, mode) in [("tree/sub", 0o300), ("tree", 0o755), ("into", 0o755), ("", 0o755)] {
            lchown(place.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
            set_mode(&place.join(name), mode);
        }
        set_xattr(&place.join("into"), DEFAULT, default)
    };
    let probe = tempfile::tempdir_in(of_nobody.path()).unwrap();
    if !is_gnu() || !unlisted(probe.path(), &acl(7, 6, 5, 7, 0)) {
        return eprintln!("skipped: no ACLs here");
    }
    let mut differences = String::new();
    for default in [acl(7, 6, 5, 7, 0), acl(5, 7, 7, 7, 5)] {
        for flags in FLAGS {
            let base = tempfile::tempdir_in(of_nobody.path()).unwrap();
            set_mode(base.path(), 0o755);
            let arguments = [flags, &["tree", "into"][..]].concat();
            let make = |place: &Path| _ = unlisted(place, &default);
            let who = Some(NOBODY);
            differences +=
                &compare_in(base.path(), who, &arguments, b"", Compared::TreesOnto, make);
        }
    }
    assert_same(differences);
}

/// Makes files with attributes of every namespace. `types`: of every type, too.
fn attributes(place: &Path, types: bool) {
    let tree = place.join("tree");
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join("file"), "text").unwrap();
    fs::write(tree.join("read-only"), "text").unwrap();
    let mut names = vec!["file", "read-only"];
    if types {
        mkfifo(&tree.join("fifo"));
        symlink("nowhere", tree.join("link")).unwrap();
        names.extend(["fifo", "link", "directory", ""]);
    }
    for name in names {
        for attribute in [
            c"user.cringle",
            c"user.second",
            c"user.Beagle.index",
            c"trusted.cringle",
            c"trusted.SGI_ACL_FILE",
            c"security.selinux",
            c"security.cringle",
            c"security.SMACK64",
            c"security.ima",
        ] {
            // Some types of files and file systems cannot have all of them.
            set_xattr(&tree.join(name), attribute, name.as_bytes());
        }
    }
    set_mode(&tree.join("read-only"), 0o444);
}

#[test]
fn attributes_of_every_namespace_are_copied_as_gnus() {
    let Some(of_nobody) = place_of_nobody("cp-namespaces") else { return };
    if !is_gnu() {
        return;
    }
    let mut differences = String::new();
    for flags in [
        &["-a"][..],
        &["-r", "--preserve=xattr"],
        &["-r", "--preserve=all"],
        &["-r", "--preserve=xattr,all"],
        &["-r", "--preserve=all,xattr"],
        &["-r", "--preserve=xattr", "--no-preserve=all", "--preserve=all"],
        &["-r", "--preserve=xattr", "--no-preserve=xattr", "--preserve=all"],
        &["-r", "--no-preserve=all", "--preserve=xattr"],
        &["-a", "--preserve=xattr"],
        &["-a", "--preserve=all"],
        &["-a", "--no-preserve=xattr"],
        &["-r", "--preserve=all", "-a"],
        &["-r", "--preserve=all", "--attributes-only"],
        &["-a", "--attributes-only"],
        &["-rp"],
        &["-p", "--preserve=xattr"],
    ] {
        for who in [0, NOBODY] {
            let base = match who {
                0 => tempfile::tempdir_in(place("cp-namespaces")).unwrap(),
                _ => tempfile::tempdir_in(of_nobody.path()).unwrap(),
            };
            set_mode(base.path(), 0o777);
            // GNU's gives up a directory or special file at an attribute that must be preserved.
            let names: &[&str] = if who == 0 && flags[0] != "-p" {
                &["-T", "tree", "copy"]
            } else {
                &["tree/file", "tree/read-only", "copy"]
            };
            let arguments = [flags, names].concat();
            let make = |place: &Path| {
                attributes(place, who == 0);
                fs::create_dir(place.join("copy")).unwrap();
                set_mode(&place.join("copy"), 0o777);
            };
            differences +=
                &compare_in(base.path(), Some(who), &arguments, b"", Compared::TreesOnto, make);
        }
    }
    assert_same(differences);
}
