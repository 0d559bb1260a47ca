//! Copies by a user other than root, whom permissions restrict.

use crate::common::*;
use crate::support::*;
use crate::trees::{ACCESS, acl, describe, set_times, set_xattr};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

pub(crate) const NOBODY: u32 = 65_534;

/// Returns a place that another user may write to; `None` without root, who alone can become
/// another user.
pub(crate) fn place_of_nobody(name: &str) -> Option<tempfile::TempDir> {
    if !is_root() {
        eprintln!("skipped: only root becomes another user");
        return None;
    }
    let place = place_in_memory(name);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut can = ours();
    can.arg("--version").uid(NOBODY).gid(NOBODY);
    if !can.output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: another user cannot reach the command");
        return None;
    }
    Some(place)
}

/// Gives everything below to `nobody`.
fn give_away(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path());
        }
    }
}

/// Makes files and directories that their owner may not write to, with attributes.
fn read_only_with_attributes(tree: &Path) {
    fs::create_dir_all(tree.join("sub")).unwrap();
    let names =
        [("r", 0o444), ("o", 0o400), ("x", 0o555), ("w", 0o644), ("sub", 0o555), ("", 0o755)];
    for (name, mode) in names {
        let path = tree.join(name);
        if !path.is_dir() {
            fs::write(&path, name).unwrap();
        }
        assert!(set_xattr(&path, c"user.cringle", name.as_bytes()));
        assert!(set_xattr(&path, c"user.second", b"more"));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        if name == "o" || name == "sub" {
            assert!(set_xattr(&path, ACCESS, &acl(4, 5, 4, 4, 0)));
        }
        set_times(&path, 1_000_000_000, 7);
    }
}

/// The mode that the umask leaves is set when the directories are filled.
#[test]
fn parents_are_filled_under_a_strict_umask() {
    let Some(base) = place_of_nobody("cp-users-umask") else { return };
    for name in ["from/a/b", "to"] {
        fs::create_dir_all(base.path().join(name)).unwrap();
    }
    fs::write(base.path().join("from/a/b/file"), "text").unwrap();
    give_away(base.path());
    let mut command = ours();
    command.args(["--parents", "from/a/b/file", "to"]).uid(NOBODY).gid(NOBODY);
    // SAFETY: `umask` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o777);
            Ok(())
        })
    };
    let output = output_of(command, base.path(), b"");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(base.path().join("to/from/a/b/file")).unwrap(), b"text");
    for name in ["to/from", "to/from/a", "to/from/a/b", "to/from/a/b/file"] {
        let mode = fs::metadata(base.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0, "{name}");
    }
}

#[test]
fn attributes_of_read_only_files_are_preserved() {
    let Some(base) = place_of_nobody("cp-users") else { return };
    if !set_xattr(base.path(), c"user.cringle", b"try") {
        eprintln!("skipped: no extended attributes of users on this file system");
        return;
    }
    for (number, flags) in [
        &["-a"][..],
        &["-a", "--fsync"],
        &["-dR", "--preserve=all"],
        &["-a", "--reflink=never", "--sparse=always"],
        &["-rp", "--preserve=xattr"],
        &["-aT"],
        &["-aT", "--fsync"],
        &["-aT", "--remove-destination"],
    ]
    .iter()
    .enumerate()
    {
        let place = base.path().join(number.to_string());
        let onto = flags[0] == "-aT";
        for tree in if onto { &["tree", "copy"][..] } else { &["tree"] } {
            read_only_with_attributes(&place.join(tree));
        }
        if onto {
            fs::set_permissions(place.join("copy/sub"), fs::Permissions::from_mode(0o555)).unwrap();
            for name in ["r", "x", "w", "sub"] {
                assert!(set_xattr(&place.join("copy").join(name), c"user.cringle", b"old"));
            }
        }
        give_away(&place);
        let mut command = ours();
        command.args(*flags).args(["-f", "tree", "copy"]).uid(NOBODY).gid(NOBODY);
        let output = output_of(command, &place, b"");
        assert_eq!((output.status.code(), texts(&output).1.as_str()), (Some(0), ""), "{flags:?}");
        let of = |name: &str| describe(&place.join(name), true);
        assert_eq!(of("copy"), of("tree"), "{flags:?}");
    }
    // Without the mode, the file keeps the one with which it was created.
    let place = base.path().join("mode");
    read_only_with_attributes(&place.join("tree"));
    give_away(&place);
    let mut command = ours();
    command.args(["-r", "--preserve=xattr", "tree", "copy"]).uid(NOBODY).gid(NOBODY);
    let output = output_of(command, &place, b"");
    assert_eq!((output.status.code(), texts(&output).1.as_str()), (Some(0), ""));
    for name in ["r", "o", "x", "w", "sub"] {
        let mode = |tree: &str| {
            fs::metadata(place.join(tree).join(name)).unwrap().permissions().mode() & 0o700
        };
        assert_eq!(mode("copy"), mode("tree"), "{name}");
        let has = crate::trees::xattrs(&place.join("copy").join(name));
        assert!(has.contains("user.cringle") && has.contains("user.second"), "{name}: {has}");
    }
}

/// The copy gets everything else that the source has. (GNU's stops at the attribute, and leaves
/// mode 0700.)
#[test]
fn an_unreadable_attribute_is_reported_with_its_source() {
    let Some(place) = place_of_nobody("cp-unreadable") else { return };
    fs::create_dir_all(place.path().join("tree/sub")).unwrap();
    if !set_xattr(&place.path().join("tree/sub"), c"user.cringle", b"try") {
        eprintln!("skipped: no extended attributes of users on this file system");
        return;
    }
    let closed = fs::Permissions::from_mode(0o300);
    fs::set_permissions(place.path().join("tree/sub"), closed).unwrap();
    give_away(place.path());
    let mut command = ours();
    command.args(["-a", "--preserve=xattr", "tree", "copy"]).uid(NOBODY).gid(NOBODY);
    let output = output_of(command, place.path(), b"");
    let expected = [
        "cp: cannot access 'tree/sub': Permission denied",
        "cp: getting attribute 'user.cringle' of 'tree/sub': Permission denied",
    ];
    assert_eq!(
        (output.status.code(), lines(&output.stderr)),
        (Some(1), expected.map(str::to_owned).to_vec())
    );
    let copy = fs::metadata(place.path().join("copy/sub")).unwrap();
    assert_eq!(copy.permissions().mode() & 0o7777, 0o300);
}

/// Without the ownership, set-id bits stay where they grant no other user's rights.
#[test]
fn set_id_bits_stay_with_their_owner() {
    let Some(place) = place_of_nobody("cp-set-id") else { return };
    let at = |name: &str| place.path().join(name);
    for name in ["tool", "tree"] {
        match name {
            "tree" => fs::create_dir(at(name)).unwrap(),
            _ => fs::write(at(name), "x").unwrap(),
        }
        chown(at(name), Some(NOBODY), Some(NOBODY)).unwrap();
        let mode = fs::Permissions::from_mode(if name == "tree" { 0o2755 } else { 0o6755 });
        fs::set_permissions(at(name), mode).unwrap();
    }
    let copy = |user: u32, name: &str, to: &str| {
        let mut command = ours();
        command.args(["-r", "--preserve=mode", name, to]).current_dir(&place).uid(user).gid(user);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        fs::metadata(at(to)).unwrap().permissions().mode() & 0o7777
    };
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(copy(NOBODY, "tool", "own"), 0o6755);
    assert_eq!(copy(0, "tool", "of-root"), 0o755);
    assert_eq!(copy(0, "tree", "tree-of-root"), 0o2755);
}
