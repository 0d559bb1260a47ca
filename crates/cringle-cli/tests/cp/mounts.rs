//! Several file systems, each on a small image: copies within and between them, shared blocks, a
//! mount point within a tree, a full disk.

use crate::common::mounts::Mount;
use crate::common::*;
use crate::support::*;
use crate::trees::{describe, random_tree};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use tempfile::TempDir;

/// The smallest sizes with which they can be made.
const KINDS: [(&str, u64); 4] = [("ext4", 64), ("xfs", 300), ("btrfs", 256), ("tmpfs", 64)];

/// Mounts all that this machine has. The directory must be dropped last.
fn mounts(test: &str) -> (TempDir, Vec<Mount>) {
    let base = tempfile::tempdir_in(place(test)).unwrap();
    if !is_root() {
        eprintln!("skipped: only root mounts file systems");
        return (base, Vec::new());
    }
    let mounts = KINDS.iter().filter_map(|(kind, size)| Mount::new(base.path(), kind, *size));
    let mounts = mounts.collect();
    (base, mounts)
}

fn gnu_copies(place: &Path, arguments: &[&str]) {
    let mut command = gnu();
    command.args(arguments);
    let output = output_of(command, place, b"");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn archives_between_file_systems_are_identical() {
    let (base, mounts) = mounts("cp-mounts");
    if !is_gnu() {
        return;
    }
    let path = |mount: &Mount, name: &str| mount.0.join(name).to_str().unwrap().to_owned();
    for (seed, from) in mounts.iter().enumerate() {
        random_tree(&from.0.join("tree"), 500 + seed as u64);
        for to in &mounts {
            let tree = path(from, "tree");
            gnu_copies(base.path(), &["-a", &tree, &path(to, "gnu")]);
            copies(base.path(), &["-a", &tree, &path(to, "ours")]);
            copies(base.path(), &["-a", "--fsync", "--verify", &tree, &path(to, "safe")]);
            let of = |name: &str| describe(&to.0.join(name), true);
            assert_eq!(of("ours"), of("gnu"), "from {:?} to {:?}", from.0, to.0);
            assert_eq!(of("safe"), of("gnu"), "from {:?} to {:?}", from.0, to.0);
            for name in ["gnu", "ours", "safe"] {
                fs::remove_dir_all(to.0.join(name)).unwrap();
            }
        }
    }
}

/// As in `cp -ax / /mnt`: the target is mounted within the source, and `-x` leaves out what it
/// contains.
#[test]
fn a_mounted_target_within_the_source_is_no_copy_into_itself() {
    let (base, mounts) = mounts("cp-mounted-target");
    for image in fs::read_dir(base.path()).unwrap().map(Result::unwrap) {
        if image.file_type().unwrap().is_file() {
            fs::remove_file(image.path()).unwrap();
        }
    }
    fs::write(base.path().join("file"), "text").unwrap();
    let source = format!("{}/.", base.path().display());
    for mount in &mounts {
        let target = mount.0.join("copy");
        fs::create_dir(&target).unwrap();
        for to in [&target, &mount.0] {
            let (to, text) = (to.to_str().unwrap(), "file");
            let (status, out, err) = run(base.path(), &["-ax", "--dry-run", &source, to]);
            assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
            copies(base.path(), &["-ax", &source, to]);
            assert!(Path::new(to).join(text).exists());
            // The mount point is a directory of the source; what is mounted there is not.
            let point = Path::new(to).join(mount.0.file_name().unwrap());
            assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "{}", point.display());
        }
    }
}

/// Returns the number of files of a copy within `mount` that share their blocks.
fn cloned(mount: &Mount, flag: &str, target: &str) -> u64 {
    let mut command = ours();
    command.args(["-a", flag, "tree", target]).current_dir(&mount.0);
    json(&mut command)["cloned_files"].as_u64().unwrap()
}

#[test]
fn blocks_are_shared_unless_refused() {
    let (_base, mounts) = mounts("cp-reflink");
    for mount in &mounts {
        let tree = mount.0.join("tree");
        fs::create_dir(&tree).unwrap();
        for name in ["one", "two"] {
            fs::write(tree.join(name), noise(1 << 20)).unwrap();
        }
        let can = mount.0.ends_with("xfs") || mount.0.ends_with("btrfs");
        assert_eq!(cloned(mount, "--reflink=auto", "auto"), if can { 2 } else { 0 }, "{can}");
        assert_eq!(cloned(mount, "--reflink=never", "never"), 0);
        let (status, out, err) = run(&mount.0, &["-r", "--reflink=always", "tree", "always"]);
        if can {
            assert_eq!((status, out, err), (Some(0), String::new(), String::new()));
            assert_eq!(fs::read(mount.0.join("always/one")).unwrap(), noise(1 << 20));
        } else {
            assert_eq!(status, Some(1));
            assert!(err.contains("failed to clone 'always/one' from 'tree/one': "), "{err}");
            // No file looks like a copy that did not happen.
            assert!(is_empty(&mount.0.join("always")));
        }
        for name in ["auto", "never"] {
            assert_eq!(describe(&mount.0.join(name), true), describe(&tree, true));
        }
    }
}

#[test]
fn one_file_system_ends_at_a_mount_point() {
    let base = tempfile::tempdir_in(place("cp-one")).unwrap();
    if !is_root() || !is_gnu() {
        eprintln!("skipped: only root mounts file systems");
        return;
    }
    let tree = base.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::write(tree.join("here"), "copied").unwrap();
    let Some(mount) = Mount::new(&tree.join("below"), "tmpfs", 4) else { return };
    fs::write(mount.0.join("elsewhere"), "not copied with -x").unwrap();
    for (flags, gnu, ours) in [("-ax", "gnu-x", "ours-x"), ("-a", "gnu-all", "ours-all")] {
        gnu_copies(base.path(), &[flags, "tree", gnu]);
        copies(base.path(), &[flags, "tree", ours]);
        let of = |name: &str| describe(&base.path().join(name), true);
        assert_eq!(of(ours), of(gnu));
    }
    assert!(is_empty(&base.path().join("ours-x/below/tmpfs")));
    assert!(base.path().join("ours-all/below/tmpfs/elsewhere").exists());
}

/// Occupies the file system but for this number of MiB, as cheaply as it can.
fn fill(mount: &Mount, mebibytes_left: u64) {
    let file = fs::File::create(mount.0.join("filler")).unwrap();
    // SAFETY: all fields may be zero.
    let mut space: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to `space`; the descriptor is open.
    assert_eq!(unsafe { libc::fstatvfs(file.as_raw_fd(), &mut space) }, 0);
    let occupied = space.f_bavail * space.f_frsize - (mebibytes_left << 20);
    // SAFETY: no pointer is passed; the descriptor is open.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, occupied as libc::off_t) };
    assert_eq!(done, 0, "{}: {}", mount.0.display(), std::io::Error::last_os_error());
}

/// Makes small files around one that does not fit on any of these file systems.
fn too_much(tree: &Path) -> Vec<String> {
    fs::create_dir_all(tree.join("sub")).unwrap();
    let mut names = vec!["big".to_owned()];
    let big = fs::File::create(tree.join("big")).unwrap();
    big.set_len(400 << 20).unwrap();
    for number in 0..20 {
        let name = format!("sub/{number}");
        fs::write(tree.join(&name), noise(64 << 10)).unwrap();
        names.push(name);
    }
    names
}

/// Whether the copy exists and has the bytes of the source.
fn are_same(source: &Path, copy: &Path) -> bool {
    let length = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
    length(source) == length(copy) && fs::read(source).unwrap() == fs::read(copy).unwrap()
}

#[test]
fn a_full_disk_leaves_whole_or_reported_files() {
    let (base, mounts) = mounts("cp-full");
    let tree = base.path().join("source");
    let names = too_much(&tree);
    for mount in &mounts {
        fill(mount, 24);
        for flags in [&["-a"][..], &["-r"], &["-a", "--fsync"]] {
            let copy = mount.0.join("copy");
            let arguments =
                [flags, &["--sparse=never", tree.to_str().unwrap(), copy.to_str().unwrap()]]
                    .concat();
            let (status, _, stderr) = run(base.path(), &arguments);
            assert_eq!(status, Some(1), "{arguments:?}: {stderr}");
            assert!(stderr.contains("No space left on device"), "{stderr}");
            for name in &names {
                let path = copy.join(name);
                let whole = are_same(&tree.join(name), &path);
                // The disk may also be full before the directory is made.
                let directory = path.parent().unwrap().display();
                let is_told = stderr.contains(&format!("'{}'", path.display()))
                    || stderr.contains(&format!("cannot create directory '{directory}'"));
                assert!(whole || is_told, "{arguments:?}: {name} is not whole: {stderr}");
                assert!(!(whole && is_told), "{arguments:?}: {name} is whole: {stderr}");
                if let (false, Ok(half)) = (whole, fs::metadata(&path)) {
                    // A program that compares times, such as `cp -u`, does not take it for a copy.
                    let source = fs::metadata(tree.join(name)).unwrap();
                    assert_ne!(half.modified().unwrap(), source.modified().unwrap());
                }
            }
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

#[test]
fn a_nearly_full_disk_is_written_in_place() {
    let (base, mounts) = mounts("cp-fits");
    let content = noise(41 << 20);
    fs::write(base.path().join("new"), &content[..40 << 20]).unwrap();
    fs::write(base.path().join("newer"), &content).unwrap();
    for mount in
        mounts.iter().filter(|mount| mount.0.ends_with("ext4") || mount.0.ends_with("tmpfs"))
    {
        let target = mount.0.join("target");
        fs::write(&target, &content[..39 << 20]).unwrap();
        let arguments = ["new", target.to_str().unwrap()];
        copies(base.path(), &arguments);
        assert!(fs::read(&target).unwrap() == content[..40 << 20]);
        // With --fsync the old file stays until the new one is safe.
        let (status, _, stderr) = run(base.path(), &["--fsync", "newer", arguments[1]]);
        assert_eq!(status, Some(1));
        assert!(stderr.contains("No space left on device"), "{stderr}");
        assert!(fs::read(&target).unwrap() == content[..40 << 20]);
        assert_eq!(
            fs::read_dir(&mount.0)
                .unwrap()
                .filter(|entry| {
                    entry.as_ref().unwrap().file_name().to_string_lossy().contains("cringle")
                })
                .count(),
            0
        );
    }
}
