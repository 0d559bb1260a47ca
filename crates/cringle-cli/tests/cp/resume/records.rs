//! What a second run with the same manifest copies again, and what it keeps.

use super::{copied_and_kept, resumed};
use crate::common::*;
use crate::support::*;
use crate::trees::{describe, set_times};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const COPY: [&str; 5] = ["-aT", "--resume=m", "s", "d", "--jobs=2"];

/// Makes a source whose last change is so long ago that times can prove that it has not changed
/// again.
fn old_source(place: &Path) {
    fs::create_dir_all(place.join("s/below")).unwrap();
    for name in ["a", "b", "below/c", "below/new\nline"] {
        fs::write(place.join("s").join(name), format!("the text of {name}")).unwrap();
    }
    fs::hard_link(place.join("s/a"), place.join("s/below/second")).unwrap();
    set_times(&place.join("s/a"), 1_000_000_000, 5);
    until_old(&place.join("s/below/second"));
}

/// Waits until the clock shows three seconds more than the file's last change.
pub(super) fn until_old(path: &Path) {
    let changed = fs::metadata(path).unwrap().ctime();
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    while now().as_secs() as i64 <= changed + 3 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn inode(place: &Path, name: &str) -> u64 {
    fs::metadata(place.join("d").join(name)).unwrap().ino()
}

#[test]
fn whole_files_are_not_copied_again() {
    let place = place("cp-resume-whole");
    old_source(&place);
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (4, 0));
    let inodes = ["a", "b", "below/c"].map(|name| inode(&place, name));
    for check in [&[][..], &["--resume-check=time"], &["--resume-check=content"]] {
        let report = resumed(&place, &[&COPY[..], check].concat());
        assert_eq!(copied_and_kept(&report), (0, 4), "{check:?}");
    }
    assert_eq!(["a", "b", "below/c"].map(|name| inode(&place, name)), inodes);
    assert_eq!(describe(&place.join("d"), true), describe(&place.join("s"), true));
}

#[test]
fn changed_files_are_copied_again() {
    let place = place("cp-resume-changed");
    old_source(&place);
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (4, 0));
    let change = |path: &str, text: &str| {
        let path = place.join(path);
        let before = fs::metadata(&path).unwrap();
        assert_eq!(before.len(), text.len() as u64);
        fs::write(&path, text).unwrap();
        // Size and modification time are the old ones.
        set_times(&path, before.mtime() - 1, before.mtime_nsec());
    };
    let same = || assert_eq!(describe(&place.join("d"), true), describe(&place.join("s"), true));
    set_times(&place.join("s/b"), 1_000_000_000, 0);
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (1, 3));
    change("s/b", "the TEXT of b");
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (1, 3));
    same();
    change("d/b", "THE text of b");
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (1, 3));
    same();
    // Only the attributes of the target differ: they are set again.
    fs::set_permissions(place.join("d/b"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (0, 4));
    same();
    fs::remove_file(place.join("d/b")).unwrap();
    fs::remove_file(place.join("d/below/second")).unwrap();
    // One worker examines the whole name before the missing one, which is linked to it then.
    let alone = [&COPY[..], &["--jobs=1"]].concat();
    assert_eq!(copied_and_kept(&resumed(&place, &alone)), (1, 3));
    same();
    // One of the names of a copy is another file now.
    fs::remove_file(place.join("d/a")).unwrap();
    fs::write(place.join("d/a"), "the text of a").unwrap();
    resumed(&place, &COPY);
    same();
}

/// A change within the granularity of time stamps leaves no trace in them.
#[test]
fn recently_changed_sources_are_compared() {
    let place = place("cp-resume-recent");
    fs::create_dir(place.join("s")).unwrap();
    fs::write(place.join("s/file"), "text").unwrap();
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (1, 0));
    // The same bytes: kept, after a comparison.
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (0, 1));
    // The record is about this file at a time when it might have changed unseen.
    let manifest = fs::read(place.join("m")).unwrap();
    assert!(manifest.len() > 100);
}

#[test]
fn torn_manifest_is_cut() {
    let place = place("cp-resume-torn");
    old_source(&place);
    assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (4, 0));
    let whole = fs::read(place.join("m")).unwrap();
    for length in [0, 1, 20, whole.len() / 2, whole.len() - 40, whole.len() - 1] {
        fs::write(place.join("m"), &whole[..length]).unwrap();
        let (copied, kept) = copied_and_kept(&resumed(&place, &COPY));
        // A hard link counts as one file.
        assert_eq!(copied + kept, 4, "{length}");
        assert_eq!(copied_and_kept(&resumed(&place, &COPY)), (0, 4), "{length}");
        assert_eq!(describe(&place.join("d"), true), describe(&place.join("s"), true));
    }
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    fs::write(place.join("m"), &damaged).unwrap();
    let (status, _, err) = run(&place, &COPY);
    assert!(status == Some(1) && err.contains("'m' is no intact manifest"), "{err}");
    assert_eq!(fs::read(place.join("m")).unwrap(), damaged);
}

#[test]
fn leftover_temporary_files_are_removed() {
    let place = place("cp-resume-leftovers");
    old_source(&place);
    resumed(&place, &COPY);
    let manifest = fs::read(place.join("m")).unwrap();
    let at = manifest.windows(12).position(|bytes| bytes == b"cringle cp 1").unwrap();
    let number = u64::from_le_bytes(manifest[at - 12..at - 4].try_into().unwrap());
    let left = place.join(format!("d/below/.cringle-cp.{number:016x}.0123456789abcdef"));
    let foreign = place.join("d/below/.cringle-cp.0123456789abcdef");
    let beside = place.join(format!(".cringle-cp.{number:016x}.0123456789abcdef"));
    for path in [&left, &foreign, &beside] {
        fs::write(path, "a part").unwrap();
    }
    resumed(&place, &COPY);
    assert!(!left.exists() && !beside.exists() && foreign.exists());
}

/// The first run has created the target. So the second one must not copy into it.
#[test]
fn target_of_the_first_run_is_the_target() {
    let place = place("cp-resume-target");
    old_source(&place);
    let arguments = ["-r", "--resume=m", "s", "d"];
    for kept in [0, 5] {
        let (copied, found) = copied_and_kept(&resumed(&place, &arguments));
        assert_eq!((copied, found), (5 - kept, kept));
    }
    assert!(!place.join("d/s").exists());
    // Several sources, of which one is new.
    fs::create_dir(place.join("into")).unwrap();
    let arguments = ["--resume=n", "s/a", "s/b", "into"];
    assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (2, 0));
    fs::remove_file(place.join("into/b")).unwrap();
    assert_eq!(copied_and_kept(&resumed(&place, &arguments)), (1, 1));
}
