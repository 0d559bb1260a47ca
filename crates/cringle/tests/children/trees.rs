//! Directories that are large, deep, or changed concurrently: memory, descriptors and stack stay
//! bounded, and nothing outside of a removed tree is affected.

use cringle::fs::{self, Dir};
use cringle_testing::child;
use cringle_testing::disk;
use cringle_testing::disk::{alone, directory, in_company, outside, solitary, unwinding};
use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn large_directory_is_read_in_a_bounded_buffer() {
    child::must_succeed("large_directory_is_read_in_a_bounded_buffer", || {
        let directory = directory();
        let large = directory.path().join("large");
        std::fs::create_dir(&large).unwrap();
        // Only names matter, and one file may have 65,000 of them.
        let half_of_them = child::scaled(10_000, 50_000);
        for half in 0..2 {
            let first = large.join(format!("{:06}", half * half_of_them));
            std::fs::write(&first, "").unwrap();
            for n in half * half_of_them + 1..(half + 1) * half_of_them {
                std::fs::hard_link(&first, large.join(format!("{n:06}"))).unwrap();
            }
        }
        alone(|| {
            // The stack, the pool and the buffers are allocated now.
            fs::read_dir("/proc/self").unwrap().for_each(drop);
            let before = child::status_kib("VmRSS");
            let mut seen = vec![0u8; 2 * half_of_them];
            let mut most = 0;
            for (n, entry) in fs::read_dir(&large).unwrap().enumerate() {
                let entry = entry.unwrap();
                assert!(entry.file_type().unwrap().is_file());
                let name = entry.file_name().into_string().unwrap();
                seen[name.parse::<usize>().unwrap()] += 1;
                if n % 2_000 == 0 {
                    most = most.max(child::status_kib("VmRSS"));
                }
            }
            assert!(seen.iter().all(|&times| times == 1));
            assert!(most < before + 2048, "{before} KiB grew to {most}");
            fs::remove_dir_all(&large).unwrap();
            assert!(!fs::exists(&large).unwrap());
        });
    });
}

/// Creates a tree that is deeper than a path, the number of descriptors and the stack allow.
#[test]
fn deep_tree_is_removed_with_64_descriptors() {
    child::must_succeed("deep_tree_is_removed_with_64_descriptors", || {
        child::limit(libc::RLIMIT_NOFILE, 64).unwrap();
        let directory = directory();
        for way in [outside, alone, solitary, unwinding] {
            way(|| {
                let root = directory.path().join("root");
                fs::create_dir(&root).unwrap();
                let mut dir = Dir::open(&root).unwrap();
                for level in 0..child::scaled(2_500, 10_000) {
                    dir.create_dir("d").unwrap();
                    if level % 100 == 0 {
                        dir.open_file_with("f", fs::File::options().write(true).create_new(true))
                            .unwrap();
                        dir.create_dir("e").unwrap();
                        dir.symlink("d", "l").unwrap();
                    }
                    dir = dir.open_dir("d").unwrap();
                }
                drop(dir);
                let before = child::Footprint::now().descriptors;
                fs::remove_dir_all(&root).unwrap();
                assert!(!fs::exists(&root).unwrap());
                assert_eq!(child::Footprint::now().descriptors, before);
            });
        }
    });
}

#[test]
fn path_of_maximal_depth_is_created_and_removed() {
    let directory = directory();
    for way in [outside, alone] {
        way(|| {
            let deep = directory.path().join("d/".repeat(1900));
            fs::create_dir_all(&deep).unwrap();
            fs::create_dir_all(&deep).unwrap();
            assert!(fs::metadata(&deep).unwrap().is_dir());
            fs::remove_dir_all(directory.path().join("d")).unwrap();
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        });
    }
}

/// Exchanges two names (`RENAME_EXCHANGE`).
fn exchange(one: &Path, other: &Path) {
    let [one, other] = [one, other].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    // SAFETY: the paths are C strings. The call may fail, if one of them is missing at the moment.
    unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
}

#[test]
fn directory_swapped_for_a_link_is_not_followed() {
    let directory = directory();
    let at = directory.path();
    let (tree, treasure, link) = (at.join("tree"), at.join("treasure"), at.join("link"));
    std::fs::create_dir_all(treasure.join("within")).unwrap();
    std::fs::write(treasure.join("gold"), "gold").unwrap();
    std::fs::write(treasure.join("within/silver"), "silver").unwrap();
    std::fs::create_dir(&tree).unwrap();
    let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        // Ends the thread even if the test fails.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _done = Done(&done);
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                exchange(&tree.join("d"), &link);
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        for way in [outside, solitary, alone, in_company] {
            way(|| {
                for round in 0..child::scaled(100, 400) {
                    // The name may refer to a directory now.
                    let _ = std::fs::remove_file(&link);
                    let _ = std::fs::remove_dir_all(&link);
                    let _ = std::os::unix::fs::symlink(&treasure, &link);
                    let _ = std::fs::create_dir_all(tree.join("d/e"));
                    for file in ["d/1", "d/e/2", "d/gold"] {
                        // Through the link, this would write into the protected directory.
                        if tree.join("d").symlink_metadata().is_ok_and(|m| m.is_dir())
                            && round % 2 == 0
                        {
                            let _ = std::fs::create_dir(tree.join(file));
                        }
                    }
                    // It may find the tree in any state, and return an error.
                    let _ = fs::remove_dir_all(&tree);
                    let _ = fs::create_dir(&tree);
                    let gold = std::fs::read_to_string(treasure.join("gold")).unwrap();
                    let silver = std::fs::read_to_string(treasure.join("within/silver")).unwrap();
                    assert_eq!((&*gold, &*silver), ("gold", "silver"));
                }
            });
        }
    });
    assert!(swaps.load(Ordering::Relaxed) > 0);
}

#[test]
fn link_to_a_directory_is_removed_itself() {
    let directory = directory();
    let at = directory.path();
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            std::fs::create_dir_all(at.join("kept/inner")).unwrap();
            std::os::unix::fs::symlink("kept", at.join("link")).unwrap();
            std::fs::create_dir(at.join("tree")).unwrap();
            std::os::unix::fs::symlink("../kept", at.join("tree/link")).unwrap();
            fs::remove_dir_all(at.join("link")).unwrap();
            fs::remove_dir_all(at.join("tree")).unwrap();
            assert!(at.join("kept/inner").is_dir());
            assert!(at.join("link").symlink_metadata().is_err());
        });
    }
}

#[test]
fn every_valid_name_is_listed() {
    let directory = directory();
    let names: BTreeSet<OsString> = (1..=255u8)
        .filter(|&byte| byte != b'/')
        .map(|byte| OsString::from_vec(vec![b'-', byte, byte]))
        .chain((1..=255).step_by(17).map(|len| OsString::from_vec(vec![0xf0; len])))
        .collect();
    for way in [outside, solitary, alone, in_company, unwinding] {
        way(|| {
            for name in &names {
                fs::write(directory.path().join(name), name.as_bytes()).unwrap();
            }
            let read: BTreeSet<OsString> = fs::read_dir(directory.path())
                .unwrap()
                .map(|entry| {
                    let entry = entry.unwrap();
                    assert_eq!(fs::read(entry.path()).unwrap(), entry.file_name().as_bytes());
                    entry.file_name()
                })
                .collect();
            assert_eq!(read, names);
            for name in &names {
                fs::remove_file(directory.path().join(name)).unwrap();
            }
        });
    }
}

#[test]
fn directory_removed_during_a_listing_ends_it() {
    let directory = directory();
    let path = directory.path().join("gone");
    for way in [outside, solitary, alone, unwinding] {
        way(|| {
            fs::create_dir(&path).unwrap();
            let mut entries = fs::read_dir(&path).unwrap();
            fs::remove_dir(&path).unwrap();
            assert!(entries.next().is_none());
            assert!(entries.next().is_none());
        });
    }
}

#[test]
fn entry_metadata_follows_a_renamed_directory() {
    let directory = directory();
    let (before, after) = (directory.path().join("before"), directory.path().join("after"));
    std::fs::create_dir(&before).unwrap();
    std::fs::write(before.join("file"), "four").unwrap();
    alone(|| {
        let entry = fs::read_dir(&before).unwrap().next().unwrap().unwrap();
        fs::rename(&before, &after).unwrap();
        assert_eq!(entry.metadata().unwrap().len(), 4);
        assert_eq!(entry.path(), before.join("file"));
    });
}

#[test]
fn permission_errors_match_std() {
    child::must_succeed("permission_errors_match_std", || {
        let directory = directory();
        let at = directory.path();
        let locked = at.join("locked");
        std::fs::create_dir_all(locked.join("inner")).unwrap();
        std::fs::write(locked.join("file"), "text").unwrap();
        let mode = |path: &Path, mode| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(at, 0o755);
        mode(&locked, 0o000);
        let is_root = std::fs::metadata(at).unwrap().uid() == 0;
        // SAFETY: no pointers; this process runs only this test.
        if is_root && unsafe { libc::seteuid(65534) } != 0 {
            return eprintln!("skipped: this root cannot become another user");
        }
        macro_rules! answers {
            ($fs:path) => {{
                use $fs as fs;
                let none = |result: std::io::Result<()>| disk::essence(&result.unwrap_err());
                [
                    none(fs::read_dir(&locked).map(drop)),
                    none(fs::read(locked.join("file")).map(drop)),
                    none(fs::metadata(locked.join("file")).map(drop)),
                    none(fs::exists(locked.join("file")).map(drop)),
                    none(fs::remove_file(locked.join("file"))),
                    none(fs::remove_dir(locked.join("inner"))),
                    none(fs::remove_dir_all(&locked)),
                    none(fs::create_dir(locked.join("new"))),
                    none(fs::create_dir_all(locked.join("new/newer"))),
                    none(fs::rename(locked.join("file"), locked.join("other"))),
                    none(fs::hard_link(locked.join("file"), locked.join("other"))),
                    none(fs::canonicalize(locked.join("file")).map(drop)),
                    none(fs::copy(locked.join("file"), "/dev/null").map(drop)),
                ]
            }};
        }
        let expected = answers!(std::fs);
        for way in [outside, solitary, alone, in_company, unwinding] {
            assert_eq!(way(|| answers!(cringle::fs)), expected);
        }
        // The owner of the directory removes it.
        // SAFETY: as above.
        unsafe { libc::seteuid(0) };
        mode(&locked, 0o700);
    });
}
