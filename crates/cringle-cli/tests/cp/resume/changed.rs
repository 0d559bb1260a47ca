//! Sources and targets that change between two runs.

use super::records::until_old;
use super::{copied_and_kept, resumed};
use crate::common::mounts::Mount;
use crate::common::*;
use crate::support::*;
use crate::trees::{ACCESS, DEFAULT, acl, describe, set_times, set_xattr};
use cringle_testing::fuse::{Faulty, Rules};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// An existing file keeps its mode with `-r`, but a copy without interrupts had created this one.
#[test]
fn changed_source_gives_its_new_mode() {
    let place = place("cp-resume-mode");
    fs::create_dir_all(place.join("s")).unwrap();
    fs::create_dir_all(place.join("d")).unwrap();
    for name in ["s/new", "s/old", "d/old"] {
        fs::write(place.join(name), "text").unwrap();
        chmod(&place.join(name), 0o600);
    }
    for flags in [&[][..], &["--fsync"]] {
        let manifest = format!("--resume=m{}", flags.len());
        let arguments = [&["-rT", &manifest, "s", "d"], flags].concat();
        assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (2, 0));
        for name in ["s/new", "s/old"] {
            chmod(&place.join(name), 0o700);
        }
        assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (2, 0));
        assert_eq!(mode_of(&place.join("d/new")), 0o700);
        // The user's file, which was there before the first run.
        assert_eq!(mode_of(&place.join("d/old")), 0o600);
        fs::remove_file(place.join("d/new")).unwrap();
        chmod(&place.join("s/new"), 0o600);
    }
}

/// A file that the copy had written into remains the user's, with its other names.
#[test]
fn file_written_in_place_is_written_in_place_again() {
    let place = place("cp-resume-in-place");
    fs::write(place.join("s"), "text").unwrap();
    fs::write(place.join("d"), "old").unwrap();
    fs::hard_link(place.join("d"), place.join("second")).unwrap();
    let arguments = ["--resume=m", "s", "d"];
    for text in ["text", "another"] {
        fs::write(place.join("s"), text).unwrap();
        assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (1, 0));
        assert_eq!(fs::read_to_string(place.join("second")).unwrap(), text);
    }
}

#[test]
fn copies_linked_to_one_another_come_apart() {
    let place = place("cp-resume-linked");
    fs::create_dir(place.join("s")).unwrap();
    for (name, mode) in [("a", 0o644), ("b", 0o640), ("c", 0o600)] {
        fs::write(place.join("s").join(name), "the same").unwrap();
        chmod(&place.join("s").join(name), mode);
    }
    fs::hard_link(place.join("s/a"), place.join("s/second")).unwrap();
    let arguments = ["-aT", "--resume=m", "s", "d"];
    resumed(&place, &arguments);
    for name in ["b", "c"] {
        fs::remove_file(place.join("d").join(name)).unwrap();
        fs::hard_link(place.join("d/a"), place.join("d").join(name)).unwrap();
    }
    resumed(&place, &arguments);
    assert_eq!(describe(&place.join("d"), true), describe(&place.join("s"), true));
}

/// Makes two files of one size and with the same times; `None` if the clock is too fine for that.
fn twins(place: &Path) -> Option<()> {
    for directory in ["s/first", "s/second"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    let of_both = |f: &dyn Fn(&Path, &str)| {
        for name in ["first", "second"] {
            f(&place.join("s").join(name).join("file"), &format!("{name:6}"));
        }
    };
    for _ in 0..10_000 {
        of_both(&|path, text| fs::write(path, text).unwrap());
        let times = |name: &str| {
            let status = fs::metadata(place.join("s").join(name).join("file")).unwrap();
            (status.mtime(), status.mtime_nsec(), status.ctime(), status.ctime_nsec())
        };
        if times("first") == times("second") {
            return Some(());
        }
        of_both(&|path, _| fs::remove_file(path).unwrap());
    }
    None
}

/// The times of a file do not change when a directory above it is renamed.
#[test]
fn exchanged_directories_are_noticed() {
    let place = place("cp-resume-exchanged");
    let Some(()) = twins(&place) else {
        eprintln!("skipped: the file system gives no two files the same times");
        return;
    };
    until_old(&place.join("s/second/file"));
    let arguments = ["-aT", "--resume=m", "s", "d"];
    assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (2, 0));
    for (from, to) in [("s/first", "other"), ("s/second", "s/first"), ("other", "s/second")] {
        fs::rename(place.join(from), place.join(to)).unwrap();
    }
    assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (2, 0));
    for (name, text) in [("first", "second"), ("second", "first ")] {
        assert_eq!(fs::read_to_string(place.join("d").join(name).join("file")).unwrap(), text);
    }
}

/// The time of the last status change shows that a target was altered, although its size and its
/// other times are the recorded ones.
#[test]
fn altered_target_with_restored_times_is_copied_again() {
    let place = place("cp-resume-altered");
    fs::create_dir(place.join("s")).unwrap();
    for name in ["altered", "touched"] {
        fs::write(place.join("s").join(name), "right").unwrap();
    }
    for check in ["--resume-check=time", "--resume-check=content"] {
        let manifest = format!("--resume=m-{check}");
        let target = format!("d-{check}");
        let arguments = ["-aT", &manifest, check, "s", &target];
        assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (2, 0));
        for (name, text) in [("altered", "wrong"), ("touched", "right")] {
            let path = place.join(&target).join(name);
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, text).unwrap();
            fs::File::open(&path).unwrap().set_modified(modified).unwrap();
        }
        // The contents were compared: one of them is right.
        assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (1, 1), "{check}");
        assert_eq!(fs::read_to_string(place.join(&target).join("altered")).unwrap(), "right");
    }
}

/// A disk that returns other bytes changes no time: only the contents show it.
#[test]
fn only_contents_show_a_damaged_block() {
    let base = tempfile::tempdir_in(place("cp-resume-damaged")).unwrap();
    if !is_root() {
        return eprintln!("skipped: only root mounts file systems");
    }
    let Some(mount) = Mount::new(base.path(), "ext4", 64) else { return };
    // A source that changed seconds ago: its times prove that it has not changed since.
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cp/resume/changed.rs");
    let text = fs::read(source).unwrap();
    let arguments = ["-a", "--fsync", "--resume=m", source, "ext4/d"];
    assert_eq!(copied_and_kept(&resumed(base.path(), &arguments)), (1, 0));
    let image = base.path().join("ext4.image");
    let at = mount.0.clone();
    drop(mount);
    let bytes = fs::read(&image).unwrap();
    let start = bytes.windows(64).position(|part| part == &text[..64]).expect("the copy");
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"A", start as u64).unwrap();
    let [image, place] = [&image, &at].map(|path| path.to_str().unwrap());
    crate::common::mounts::done_by("mount", &["-o", "loop", image, place]).unwrap();
    let _mount = Mount(at.clone());
    let copy = || fs::read(at.join("d")).unwrap();
    assert_eq!(copied_and_kept(&resumed(base.path(), &arguments)), (0, 1));
    assert!(copy() != text);
    let checked = [&["--resume-check=content"], &arguments[..]].concat();
    assert_eq!(copied_and_kept(&resumed(base.path(), &checked)), (1, 0));
    assert!(copy() == text);
}

/// A plain copy would write through the link, into the device, or wait for the FIFO's reader.
#[test]
fn file_in_place_of_a_link_or_special_file_is_a_new_file() {
    let place = place("cp-resume-types");
    fs::create_dir_all(place.join("s/below")).unwrap();
    fs::write(place.join("precious"), "precious").unwrap();
    fs::write(place.join("users"), "old").unwrap();
    fs::create_dir_all(place.join("d")).unwrap();
    std::os::unix::fs::symlink("../users", place.join("d/users")).unwrap();
    fs::write(place.join("s/users"), "new").unwrap();
    for name in ["s/link", "s/below/link"] {
        std::os::unix::fs::symlink(place.join("precious"), place.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("nothing", place.join("s/dangling")).unwrap();
    crate::trees::mkfifo(&place.join("s/fifo"));
    let arguments = ["-aT", "--resume=m", "s", "d"];
    resumed(&place, &arguments);
    for name in ["s/link", "s/below/link", "s/dangling", "s/fifo"] {
        fs::remove_file(place.join(name)).unwrap();
        fs::write(place.join(name), "file").unwrap();
    }
    resumed(&place, &arguments);
    assert_eq!(fs::read_to_string(place.join("precious")).unwrap(), "precious");
    // The user's link existed before the first run: it is followed, as by GNU's.
    assert_eq!(fs::read_to_string(place.join("users")).unwrap(), "new");
    for tree in ["d", "s"].map(|tree| place.join(tree)) {
        fs::remove_file(tree.join("users")).unwrap();
        // The two removals are not at the same time.
        set_times(&tree, 1_000_000_000, 0);
    }
    assert_eq!(describe(&place.join("d"), true), describe(&place.join("s"), true));
}

/// The same for a source of the command line.
#[test]
fn named_file_in_place_of_a_link_is_a_new_file() {
    let place = place("cp-resume-named-type");
    fs::write(place.join("precious"), "precious").unwrap();
    std::os::unix::fs::symlink("precious", place.join("s")).unwrap();
    let arguments = ["-aT", "--resume=m", "s", "d"];
    resumed(&place, &arguments);
    fs::remove_file(place.join("s")).unwrap();
    fs::write(place.join("s"), "file").unwrap();
    resumed(&place, &arguments);
    assert_eq!(fs::read_to_string(place.join("precious")).unwrap(), "precious");
    assert_eq!(fs::read_to_string(place.join("d")).unwrap(), "file");
    assert!(fs::symlink_metadata(place.join("d")).unwrap().is_file());
}

/// A plain copy onto a directory keeps its attributes, but the copy has created this one.
#[test]
fn removed_attributes_of_directories_are_removed() {
    let place = place("cp-resume-attributes");
    fs::create_dir_all(place.join("s/below")).unwrap();
    fs::create_dir(place.join("d")).unwrap();
    let all = ["s/below", "d"].map(|name| {
        let path = place.join(name);
        set_xattr(&path, ACCESS, &acl(7, 7, 5, 7, 0))
            && set_xattr(&path, DEFAULT, &acl(7, 7, 5, 7, 0))
            && set_xattr(&path, c"user.cringle", b"value")
    });
    if all != [true; 2] {
        return eprintln!("skipped: no ACLs here");
    }
    resumed(&place, &["-aT", "--resume=m", "s", "d"]);
    for name in [ACCESS, DEFAULT, c"user.cringle"] {
        let path = c_path(&place.join("s/below"));
        // SAFETY: path and name outlive the call.
        assert_eq!(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }, 0);
    }
    resumed(&place, &["-aT", "--resume=m", "s", "d"]);
    let of = |tree: &str| describe(&place.join(tree).join("below"), true);
    assert_eq!(of("d"), of("s"));
    // The user's directory, which was there before the first run, keeps its attribute.
    assert!(crate::trees::xattrs(&place.join("d")).contains("user.cringle"));
}

/// On this file system the time of the last status change is that of the last modification, which
/// any program sets.
#[test]
fn sources_without_change_times_are_compared() {
    let base = tempfile::tempdir_in(place("cp-resume-no-ctime")).unwrap();
    let Some(fuse) = Faulty::mount(base.path(), "fuse") else { return };
    let arguments = ["-a", "--resume=m", "fuse/s", "d"];
    for text in ["first", "other"] {
        fs::write(base.path().join("fuse/s"), text).unwrap();
        set_times(&base.path().join("fuse/s"), 1_000_000_000, 0);
        assert_eq!(copied_and_kept(&resumed(base.path(), &arguments)), (1, 0));
        assert_eq!(fs::read_to_string(base.path().join("d")).unwrap(), text);
    }
    assert_eq!(copied_and_kept(&resumed(base.path(), &arguments)), (0, 1));
    drop(fuse);
}

/// A program writes to a part that has been compared, while the rest is.
#[test]
fn target_that_changes_during_comparison_is_copied() {
    let base = tempfile::tempdir_in(place("cp-resume-written")).unwrap();
    let Some(faulty) = Faulty::mount(base.path(), "faulty") else { return };
    let bytes = noise(400_000);
    faulty.put("victim", &bytes);
    let check = ["--resume=m", "--resume-check=content", "--block-size=4k", "faulty/victim", "d"];
    for flags in [&["--json=-"][..], &["-a", "--json=-"]] {
        let _ = fs::remove_file(base.path().join("m"));
        let arguments = [flags, &check].concat();
        run(base.path(), &arguments);
        faulty.set(Rules { stalls_at: Some(100_000), ..Rules::default().direct() });
        let mut command = ours();
        command.args(&arguments).current_dir(base.path()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        while faulty.stalled() == 0 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let target = fs::File::options().write(true).open(base.path().join("d")).unwrap();
        target.write_all_at(&[!bytes[0]], 0).unwrap();
        faulty.release();
        let output = finish(child, "cp --resume");
        faulty.set(Rules::default());
        let report = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(copied_and_kept(&report), (1, 0), "{flags:?}");
        assert!(fs::read(base.path().join("d")).unwrap() == bytes, "{flags:?}");
    }
}
