//! Cancellation of file system calls: a cancelled fiber's calls fail, completed calls return their
//! results, and no descriptor leaks.

use cringle::fs::{self, Dir, File, Permissions};
use cringle::os::unix::fs::{chown, symlink};
use cringle::{cancel, fiber};
use cringle_testing::child;
use cringle_testing::disk::{alone, directory};
use cringle_testing::terminal;
use cringle_testing::tools::readable_bytes;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[test]
fn calls_of_a_cancelled_fiber_fail_without_effect() {
    let directory = directory();
    let at = directory.path();
    let (file, new) = (at.join("file"), at.join("new"));
    std::fs::write(&file, "text").unwrap();
    std::fs::create_dir(at.join("dir")).unwrap();
    let before = std::fs::metadata(&file).unwrap().permissions().mode();
    alone(|| {
        let dir = Dir::open(at).unwrap();
        let open = File::open(&file).unwrap();
        let shared = File::from(std::fs::File::open(&file).unwrap());
        fiber::scope(|s| {
            s.cancel();
            let refused: [(&str, io::Result<()>); 37] = [
                ("read at a shared cursor", (&shared).read(&mut [0; 4]).map(drop)),
                ("write at a shared cursor", (&shared).write(b"text").map(drop)),
                ("seek of a shared cursor", (&shared).rewind()),
                ("read", fs::read(&file).map(drop)),
                ("read_to_string", fs::read_to_string(&file).map(drop)),
                ("write", fs::write(&new, "text")),
                ("copy", fs::copy(&file, &new).map(drop)),
                ("rename", fs::rename(&file, &new)),
                ("rename_noreplace", fs::rename_noreplace(&file, &new)),
                ("hard_link", fs::hard_link(&file, &new)),
                ("symlink", symlink("x", &new)),
                ("remove_file", fs::remove_file(&file)),
                ("remove_dir", fs::remove_dir(at.join("dir"))),
                ("remove_dir_all", fs::remove_dir_all(at.join("dir"))),
                ("create_dir", fs::create_dir(&new)),
                ("create_dir_all", fs::create_dir_all(&new)),
                ("read_dir", fs::read_dir(at).map(drop)),
                ("metadata", fs::metadata(&file).map(drop)),
                ("symlink_metadata", fs::symlink_metadata(&file).map(drop)),
                ("exists", fs::exists(&file).map(drop)),
                ("set_permissions", fs::set_permissions(&file, Permissions::from_mode(0o600))),
                ("canonicalize", fs::canonicalize(&file).map(drop)),
                ("read_link", fs::read_link(&file).map(drop)),
                ("chown", chown(&file, None, None)),
                ("set_xattr", fs::set_xattr(&file, "user.a", b"1")),
                ("get_xattr", fs::get_xattr(&file, "user.a").map(drop)),
                ("list_xattrs", fs::list_xattrs(&file).map(drop)),
                ("allocate", open.allocate(0, 1)),
                ("sync_range", open.sync_range(0, 1)),
                ("seek_data", open.seek_data(0).map(drop)),
                ("set_times", open.set_times(fs::FileTimes::new())),
                ("lock", open.lock()),
                ("try_lock", open.try_lock().map_err(io::Error::from)),
                ("Dir::open", Dir::open(at).map(drop)),
                ("Dir::open_file", dir.open_file("file").map(drop)),
                ("Dir::create_dir", dir.create_dir("new")),
                ("Dir::rename", dir.rename("file", &dir, "new")),
            ];
            for (name, result) in refused {
                let e = result.expect_err(name);
                assert!(cancel::reason(&e).is_some(), "{name}: {e}");
            }
            // The call has not changed it.
            fiber::protect(|| assert_eq!(fs::read(&file).unwrap(), b"text"));
        });
    });
    let mut names: Vec<_> =
        std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["dir", "file"]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode(), before);
}

/// A terminal takes the bytes that it has room for, and a write waits for room for the rest. A
/// cancel ends that wait.
#[test]
fn cancel_ends_a_write_to_a_full_terminal() {
    let (ours, theirs) = terminal::terminal();
    let theirs = File::from(theirs);
    let ring = cringle::Builder::new().driver(cringle::runtime::DriverChoice::Uring).workers(1);
    let written = ring.run(|| {
        fiber::scope(|s| {
            let writes = s.spawn_local(|| {
                let first = (&theirs).write(&[b'z'; 1 << 20]);
                (first, (&theirs).write(b"z"))
            });
            // The write has begun, and cannot end, because the terminal has no room for all bytes.
            while readable_bytes(&ours) == 0 {
                fiber::yield_now();
            }
            s.cancel();
            writes.join().unwrap()
        })
    });
    let (first, second) = written.unwrap();
    match first {
        Ok(count) => assert!((1..1 << 20).contains(&count), "{count}"),
        Err(e) => assert!(cancel::reason(&e).is_some(), "{e}"),
    }
    assert!(cancel::reason(&second.unwrap_err()).is_some());
}

#[test]
fn cancelled_listing_first_returns_buffered_entries() {
    let directory = directory();
    for n in 0..3000 {
        std::fs::write(directory.path().join(format!("{n:0100}")), "").unwrap();
    }
    alone(|| {
        fiber::scope(|s| {
            let mut entries = fs::read_dir(directory.path()).unwrap();
            entries.next().unwrap().unwrap();
            s.cancel();
            let read = entries.by_ref().take_while(|entry| entry.is_ok()).count();
            assert!(read > 10 && read < 2990, "{read}");
            assert!(entries.next().is_none());
        });
    });
}

/// Cancels calls at random moments: no descriptor stays open, no call hangs, and each call that
/// reports success has taken effect.
#[test]
fn cancels_at_any_moment_leak_no_descriptor() {
    child::must_succeed("cancels_at_any_moment_leak_no_descriptor", || {
        let directory = directory();
        let at = directory.path();
        for n in 0..50 {
            std::fs::write(at.join(format!("file{n}")), "text").unwrap();
        }
        alone(|| {
            fs::read_dir(at).unwrap().for_each(drop);
            let before = child::Footprint::now().descriptors;
            for round in 0..300u32 {
                fiber::scope(|s| {
                    for n in 0..8 {
                        let root = at.join(format!("tree{n}"));
                        let file = at.join(format!("file{n}"));
                        s.spawn_local(move || -> io::Result<()> {
                            loop {
                                let dir = Dir::open(file.parent().unwrap())?;
                                dir.open_file(file.file_name().unwrap())?.try_lock()?;
                                match fs::create_dir(&root) {
                                    // A cancelled call may have taken effect.
                                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                                    made => made?,
                                }
                                fs::create_dir_all(root.join("a/b"))?;
                                fs::copy(&file, root.join("a/copy"))?;
                                for entry in fs::read_dir(&root)? {
                                    entry?.metadata()?;
                                }
                                fs::remove_dir_all(&root)?;
                                assert!(
                                    !root.exists(),
                                    "`remove_dir_all` succeeded, but the directory exists"
                                );
                            }
                        });
                    }
                    match round % 3 {
                        0 => (0..round).for_each(|_| fiber::yield_now()),
                        _ => fiber::sleep(Duration::from_micros(u64::from(round) * 7)),
                    }
                    s.cancel();
                });
                if round % 50 == 0 {
                    assert_eq!(child::Footprint::now().descriptors, before, "round {round}");
                }
            }
            assert_eq!(child::Footprint::now().descriptors, before);
        });
    });
}

/// Repeats every kind of call and counts the open descriptors.
#[test]
fn opening_and_closing_leaks_no_descriptor() {
    child::must_succeed("opening_and_closing_leaks_no_descriptor", || {
        let directory = directory();
        let at = directory.path();
        let round = || {
            let tree = at.join("tree");
            fs::create_dir_all(tree.join("a/b")).unwrap();
            fs::write(tree.join("file"), "text").unwrap();
            fs::copy(tree.join("file"), tree.join("a/copy")).unwrap();
            assert!(fs::copy(tree.join("missing"), tree.join("x")).is_err());
            assert!(fs::copy(&tree, tree.join("x")).is_err());
            let mut half = fs::read_dir(&tree).unwrap();
            let entry = half.next().unwrap().unwrap();
            drop(half);
            entry.metadata().unwrap();
            assert!(Dir::open(&tree).unwrap().open_file("../file").is_err());
            let dir = Dir::open(&tree).unwrap().open_dir("a/b").unwrap();
            assert!(dir.create_dir("c/d").is_err());
            fs::remove_dir_all(&tree).unwrap();
        };
        let counted = || {
            round();
            let before = child::Footprint::now().descriptors;
            (0..200).for_each(|_| round());
            assert_eq!(child::Footprint::now().descriptors, before);
        };
        counted();
        alone(counted);
    });
}
