//! What the copy has created is replaced by new files; what is the user's is not.

use super::{copied_and_kept, resumed};
use crate::common::mounts::{Mount, done_by};
use crate::common::*;
use crate::support::*;
use crate::trees::mkfifo;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Replaces the source by another file with this mode.
fn make_secret(path: &Path, mode: u32) {
    let _ = fs::remove_file(path);
    fs::write(path, "secret").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The user moved it to another disk, for instance.
#[test]
fn users_link_in_place_of_a_directory_stays() {
    let place = place("cp-resume-moved");
    fs::create_dir_all(place.join("s/moved")).unwrap();
    fs::write(place.join("s/moved/file"), "text").unwrap();
    let arguments = ["-rT", "--resume=m", "s", "d"];
    resumed(&place, &arguments);
    fs::rename(place.join("d/moved"), place.join("disk")).unwrap();
    symlink("../disk", place.join("d/moved")).unwrap();
    let (status, _, err) = run(&place, &arguments);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("cannot overwrite non-directory 'd/moved' with directory"), "{err}");
    assert_eq!(fs::read_link(place.join("d/moved")).unwrap(), Path::new("../disk"));
    assert_eq!(fs::read_to_string(place.join("disk/file")).unwrap(), "text");
}

#[test]
fn users_fifo_in_place_of_a_link_stays() {
    let place = place("cp-resume-users-fifo");
    symlink("nothing", place.join("s")).unwrap();
    let arguments = ["-aT", "--resume=m", "s", "d"];
    resumed(&place, &arguments);
    for name in ["s", "d"] {
        fs::remove_file(place.join(name)).unwrap();
    }
    mkfifo(&place.join("d"));
    fs::create_dir(place.join("s")).unwrap();
    assert_eq!(run(&place, &arguments).0, Some(1));
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::metadata(place.join("d")).unwrap().file_type().is_fifo());
}

/// Neither a new mount, nor a lost record, nor another number of links makes the files the user's.
#[test]
fn unproven_own_files_get_the_new_mode() {
    for (target, flags) in [("new/d", &["-rT"][..]), ("d", &["-rT"]), ("d", &["-dRT"])] {
        let base = tempfile::tempdir_in(place("cp-resume-own")).unwrap();
        let place = base.path();
        for directory in ["s", "d", "new"] {
            fs::create_dir(place.join(directory)).unwrap();
        }
        for name in ["unrecorded", "altered", "linked"] {
            make_secret(&place.join("s").join(name), 0o644);
        }
        let arguments = [flags, &["--resume=m", "s", target]].concat();
        assert_eq!(copied_and_kept(&resumed(place, &arguments)), (3, 0));
        // A part of the last record is lost, that of the files.
        let whole = fs::read(place.join("m")).unwrap();
        fs::write(place.join("m"), &whole[..whole.len() - 1]).unwrap();
        let at = |name: &str| place.join(target).join(name);
        fs::write(at("altered"), "altered").unwrap();
        fs::hard_link(place.join("s/linked"), place.join("second")).unwrap();
        for name in ["unrecorded", "altered", "linked"] {
            fs::set_permissions(place.join("s").join(name), fs::Permissions::from_mode(0o600))
                .unwrap();
        }
        resumed(place, &arguments);
        for name in ["unrecorded", "altered", "linked"] {
            assert_eq!(mode_of(&at(name)), 0o600, "{flags:?} {target}/{name}");
        }
    }
}

#[test]
fn new_mount_keeps_what_is_own() {
    let base = tempfile::tempdir_in(place("cp-resume-remounted")).unwrap();
    if !is_root() {
        return eprintln!("skipped: only root mounts file systems");
    }
    let Some(mount) = Mount::new(base.path(), "ext4", 64) else { return };
    let at = mount.0.clone();
    fs::create_dir(base.path().join("s")).unwrap();
    fs::create_dir(at.join("there")).unwrap();
    make_secret(&base.path().join("s/file"), 0o644);
    let copies: [&[&str]; 2] =
        [&["-rT", "--resume=m", "s", "ext4/d"], &["--resume=n", "s/file", "ext4/there"]];
    copies.iter().for_each(|arguments| drop(resumed(base.path(), arguments)));
    drop(mount);
    let image = base.path().join("ext4.image");
    let [image, path] = [&image, &at].map(|path| path.to_str().unwrap());
    done_by("mount", &["-o", "loop", image, path]).unwrap();
    let _mount = Mount(at.clone());
    make_secret(&base.path().join("s/file"), 0o600);
    copies.iter().for_each(|arguments| drop(resumed(base.path(), arguments)));
    for name in ["d/file", "there/file"] {
        assert_eq!(mode_of(&at.join(name)), 0o600, "{name}");
    }
}

/// The user exchanged two directories, so that a copied link has the name of a file.
#[test]
fn no_link_in_an_own_directory_is_followed() {
    for text in ["precious", "the file"] {
        let base = tempfile::tempdir_in(place("cp-resume-exchanged-link")).unwrap();
        let place = base.path();
        fs::write(place.join("precious"), text).unwrap();
        fs::create_dir_all(place.join("s/d1")).unwrap();
        fs::create_dir(place.join("s/d2")).unwrap();
        symlink("../../precious", place.join("s/d1/x")).unwrap();
        fs::write(place.join("s/d2/x"), "the file").unwrap();
        fs::set_permissions(place.join("s/d2/x"), fs::Permissions::from_mode(0o600)).unwrap();
        let arguments = ["-aT", "--resume=m", "s", "d"];
        resumed(place, &arguments);
        let mode = mode_of(&place.join("precious"));
        for (from, to) in [("d/d1", "other"), ("d/d2", "d/d1"), ("other", "d/d2")] {
            fs::rename(place.join(from), place.join(to)).unwrap();
        }
        resumed(place, &arguments);
        assert_eq!(fs::read_to_string(place.join("precious")).unwrap(), text);
        assert_eq!(mode_of(&place.join("precious")), mode);
        let copy = place.join("d/d2/x");
        assert!(fs::symlink_metadata(&copy).unwrap().is_file());
        assert_eq!(fs::read_to_string(copy).unwrap(), "the file");
    }
}

/// A program that shares equal files has linked the copies to one another.
#[test]
fn linked_copies_do_not_get_each_others_contents() {
    let place = place("cp-resume-deduplicated");
    fs::create_dir(place.join("s")).unwrap();
    for name in ["a", "b"] {
        fs::write(place.join("s").join(name), "same").unwrap();
    }
    let arguments = ["-rT", "--resume=m", "s", "d"];
    resumed(&place, &arguments);
    fs::remove_file(place.join("d/b")).unwrap();
    fs::hard_link(place.join("d/a"), place.join("d/b")).unwrap();
    fs::write(place.join("s/b"), "other").unwrap();
    resumed(&place, &arguments);
    for (name, text) in [("a", "same"), ("b", "other")] {
        assert_eq!(fs::read_to_string(place.join("d").join(name)).unwrap(), text, "{name}");
    }
}

#[test]
fn own_directory_gets_the_new_mode() {
    let place = place("cp-resume-directory-mode");
    fs::create_dir_all(place.join("s/below")).unwrap();
    fs::create_dir(place.join("d")).unwrap();
    let set = |name: &str, mode| {
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let arguments = ["-rT", "--resume=m", "s", "d"];
    for mode in [0o755, 0o700, 0o555, 0o750] {
        ["s", "s/below"].iter().for_each(|name| set(name, mode));
        resumed(&place, &arguments);
        assert_eq!(mode_of(&place.join("d/below")), mode);
        set("d/below", 0o711);
    }
    // The user's directory.
    assert_eq!(mode_of(&place.join("d")), 0o755);
}
