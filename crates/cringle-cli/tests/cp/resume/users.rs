//! Copies by a user whom permissions restrict: files and directories that their owner may not
//! write to.

use super::records::until_old;
use crate::common::*;
use crate::support::*;
use crate::trees::{describe, set_times};
use crate::users::{NOBODY, place_of_nobody};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes read-only files in a read-only directory.
fn read_only_source(place: &Path) {
    let tree = place.join("s");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for name in ["first", "sub/second", "sub/third"] {
        let path = tree.join(name);
        fs::write(&path, format!("the text of {name}")).unwrap();
        set_mode(&path, 0o444);
    }
    for path in [tree.join("sub"), tree.clone()] {
        set_mode(&path, 0o555);
        set_times(&path, 1_000_000_000, 7);
    }
    for path in ["", "s", "s/first", "s/sub", "s/sub/second", "s/sub/third"] {
        chown(place.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Copies as `nobody`; returns the numbers of files that were copied and kept.
fn as_nobody(place: &Path, flags: &[&str]) -> (u64, u64) {
    let mut command = ours();
    command.args(flags).args(["--resume=m", "--json=-", "-T", "s", "d"]).uid(NOBODY).gid(NOBODY);
    let output = output_of(command, place, b"");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{flags:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (report["files"].as_u64().unwrap(), report["kept_files"].as_u64().unwrap())
}

/// The files are complete, but the kill came before their record.
#[test]
fn unrecorded_read_only_files_are_kept() {
    for flags in [&["-r"][..], &["-a"], &["-a", "--fsync"]] {
        let Some(place) = place_of_nobody("cp-resume-nobody") else { return };
        read_only_source(place.path());
        assert_eq!(as_nobody(place.path(), flags), (3, 0), "{flags:?}");
        let manifest = place.path().join("m");
        let whole = fs::read(&manifest).unwrap();
        // The last record is cut, that of the files.
        fs::write(&manifest, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(as_nobody(place.path(), flags), (0, 3), "{flags:?}");
        let times = flags.contains(&"-a");
        let of = |tree: &str| describe(&place.path().join(tree), times);
        assert_eq!(of("d"), of("s"), "{flags:?}");
    }
}

#[test]
fn changed_read_only_files_are_copied_again() {
    let Some(place) = place_of_nobody("cp-resume-nobody-changed") else { return };
    read_only_source(place.path());
    assert_eq!(as_nobody(place.path(), &["-a"]), (3, 0));
    fs::write(place.path().join("s/sub/second"), "another text").unwrap();
    assert_eq!(as_nobody(place.path(), &["-a"]), (1, 2));
    let of = |tree: &str| describe(&place.path().join(tree), true);
    assert_eq!(of("d"), of("s"));
}

/// The user could not set the owner, which the copy does not report, as GNU's does not.
#[test]
fn root_completes_what_another_user_began() {
    let Some(place) = place_of_nobody("cp-resume-root") else { return };
    let place = place.path();
    chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::create_dir(place.join("s")).unwrap();
    for (name, mode) in [("owned", 0o4755), ("secret", 0o600)] {
        fs::write(place.join("s").join(name), name).unwrap();
        chown(place.join("s").join(name), Some(123), Some(456)).unwrap();
        set_mode(&place.join("s").join(name), mode);
    }
    until_old(&place.join("s/secret"));
    let mut command = ours();
    command.args(["-aT", "--resume=m", "s", "d"]).uid(NOBODY).gid(NOBODY);
    let (_, err) = texts(&output_of(command, place, b""));
    assert!(err.contains("'s/secret'"), "{err}");
    super::resumed(place, &["-aT", "--resume=m", "s", "d"]);
    for name in ["owned", "secret"] {
        let of = |tree: &str| {
            let metadata = fs::metadata(place.join(tree).join(name)).unwrap();
            (metadata.uid(), metadata.gid(), metadata.mode())
        };
        assert_eq!(of("d"), of("s"), "{name}");
    }
}

/// The user's directory can be written to, but not listed.
#[test]
fn directory_that_cannot_be_searched_is_reported() {
    let Some(place) = place_of_nobody("cp-resume-unlisted") else { return };
    read_only_source(place.path());
    fs::create_dir(place.path().join("d")).unwrap();
    chown(place.path().join("d"), Some(NOBODY), Some(NOBODY)).unwrap();
    set_mode(&place.path().join("d"), 0o333);
    let copy = || {
        let mut command = ours();
        command.args(["-r", "--resume=m", "-T", "s", "d"]).uid(NOBODY).gid(NOBODY);
        let output = output_of(command, place.path(), b"");
        (output.status.code(), texts(&output).1)
    };
    assert_eq!(copy(), (Some(0), String::new()));
    let (status, err) = copy();
    let what =
        "warning: a temporary file of an interrupted run may remain in 'd': Permission denied";
    assert_eq!((status, err), (Some(0), format!("cringle cp: {what}\n")));
}
