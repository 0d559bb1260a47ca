//! The parts of `cringle::fs` beyond std: locks between processes, extended attributes, disk space
//! and holes, copies within the kernel, and directories that paths cannot leave.

use cringle::fs::{self, Advice, Dir, File, TryLockError};
use cringle::{cancel, fiber, time};
use cringle_testing::child;
use cringle_testing::disk;
use cringle_testing::disk::{alone, directory, essence, in_company, outside, solitary, unwinding};
use std::cell::Cell;
use std::ffi::CString;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Runs `f` in every situation, in which the calls behave the same.
const WAYS: [fn(&dyn Fn()); 5] =
    [|f| outside(f), |f| solitary(f), |f| alone(f), |f| in_company(f), |f| unwinding(f)];

// ----- locks -----

/// Calls `flock` on another open file, without waiting.
fn flock(file: &std::fs::File, how: i32) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

#[test]
fn locks_exclude_as_flock_does() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "").unwrap();
    for way in WAYS {
        way(&|| {
            let (one, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
            let theirs = std::fs::File::open(&path).unwrap();
            one.lock().unwrap();
            assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
            assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
            assert!(!flock(&theirs, libc::LOCK_SH));
            // The lock belongs to the open file, so its clones hold it too.
            one.try_clone().unwrap().try_lock().unwrap();
            one.unlock().unwrap();
            other.lock_shared().unwrap();
            one.try_lock_shared().unwrap();
            assert!(!flock(&theirs, libc::LOCK_EX));
            let e: io::Error = one.try_lock().unwrap_err().into();
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
            drop(other);
            one.lock().unwrap();
            drop(one);
            assert!(flock(&theirs, libc::LOCK_EX));
        });
    }
}

#[test]
fn lock_waiters_do_not_starve_the_holder() {
    child::must_succeed("lock_waiters_do_not_starve_the_holder", || {
        const WAITERS: usize = 300;
        // SAFETY: no pointers. If the holder starves, the child hangs, and the alarm kills it.
        unsafe { libc::alarm(300) };
        let directory = directory();
        let path = directory.path().join("file");
        std::fs::write(&path, "0").unwrap();
        cringle::Builder::new()
            .workers(2)
            .run(|| {
                let holder = File::open(&path).unwrap();
                holder.lock().unwrap();
                fiber::scope(|s| {
                    for _ in 0..WAITERS {
                        s.spawn(|| {
                            let mut file =
                                File::options().read(true).write(true).open(&path).unwrap();
                            file.lock().unwrap();
                            // A counter without atomics, which only the lock protects.
                            let mut text = String::new();
                            file.read_to_string(&mut text).unwrap();
                            let count: u32 = text.parse().unwrap();
                            fiber::yield_now();
                            file.write_all_at(format!("{}", count + 1).as_bytes(), 0).unwrap();
                            file.unlock().unwrap();
                        });
                    }
                    // The holder makes calls that need the pool, while all others wait.
                    for mode in 0..50 {
                        time::sleep(Duration::from_millis(1)).unwrap();
                        holder
                            .set_permissions(fs::Permissions::from_mode(0o600 | mode & 1))
                            .unwrap();
                        fs::read_dir(directory.path()).unwrap().for_each(drop);
                    }
                    // No thread waits for a lock.
                    assert!(child::Footprint::now().threads < 40);
                    holder.unlock().unwrap();
                });
                assert_eq!(fs::read_to_string(&path).unwrap(), WAITERS.to_string());
            })
            .unwrap();
    });
}

#[test]
fn readers_pass_a_waiting_writer_and_can_upgrade() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "").unwrap();
    let open = || File::open(&path).unwrap();
    alone(|| {
        let order = std::cell::RefCell::new(Vec::new());
        fiber::scope(|s| {
            let holder = open();
            holder.lock_shared().unwrap();
            s.spawn_local(|| {
                open().lock().unwrap();
                order.borrow_mut().push("writer");
            });
            fiber::sleep(Duration::from_millis(3));
            // As in the kernel, a waiting writer does not block readers. Otherwise two readers that
            // upgrade their locks would deadlock.
            open().lock_shared().unwrap();
            order.borrow_mut().push("reader");
        });
        assert_eq!(*order.borrow(), ["reader", "writer"]);
        // Each releases its shared lock while it waits for the exclusive one.
        let together = Cell::new(0);
        fiber::scope(|s| {
            for _ in 0..2 {
                s.spawn_local(|| {
                    let file = open();
                    file.lock_shared().unwrap();
                    together.set(together.get() + 1);
                    while together.get() < 2 {
                        fiber::yield_now();
                    }
                    file.lock().unwrap();
                });
            }
        });
    });
}

#[test]
fn deadline_ends_the_wait_for_a_lock() {
    let directory = directory();
    let path = directory.path().join("file");
    let holder = std::fs::File::create(&path).unwrap();
    assert!(flock(&holder, libc::LOCK_EX));
    alone(|| {
        let file = File::open(&path).unwrap();
        let limit = Duration::from_millis(30);
        for _ in 0..2 {
            let e = time::timeout(limit, || file.lock()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::TimedOut);
            let e = time::timeout(limit, || file.lock_shared()).unwrap_err();
            assert!(cancel::reason(&e).is_some());
        }
        // A second waiter is cancelled in the queue.
        fiber::scope(|s| {
            for _ in 0..3 {
                s.spawn_local(|| assert!(time::timeout(limit, || open_and_lock(&path)).is_err()));
            }
        });
        // A thread releases the lock without waking the fiber.
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                assert!(flock(&holder, libc::LOCK_UN));
            });
            file.lock().unwrap();
        });
        // A cancelled fiber releases its lock.
        fiber::scope(|s| {
            s.cancel();
            file.unlock().unwrap();
        });
        assert!(flock(&holder, libc::LOCK_EX));
    });
}

fn open_and_lock(path: &Path) -> io::Result<()> {
    File::open(path)?.lock()
}

// ----- extended attributes -----

fn kernels_xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let name = CString::new(name).unwrap();
    let mut value = vec![0u8; 1 << 16];
    // SAFETY: C strings, and a buffer of the given length.
    let len = unsafe {
        libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    value.truncate(usize::try_from(len).ok()?);
    Some(value)
}

#[test]
fn attributes_are_set_listed_and_removed() {
    let directory = directory();
    let path = directory.path().join("file");
    for way in WAYS {
        way(&|| {
            let file = File::create(&path).unwrap();
            if fs::set_xattr(&path, "user.probe", b"").is_err() {
                return eprintln!("this file system keeps no attributes");
            }
            fs::remove_xattr(&path, "user.probe").unwrap();
            assert_eq!(fs::get_xattr(&path, "user.none").unwrap(), None);
            let long = disk::pattern(3000);
            let values: [&[u8]; 4] = [b"", b"text", b"\0\xff\0", &long];
            for value in values {
                fs::set_xattr(&path, "user.a", value).unwrap();
                assert_eq!(kernels_xattr(&path, "user.a").as_deref(), Some(value));
                assert_eq!(fs::get_xattr(&path, "user.a").unwrap().as_deref(), Some(value));
                file.set_xattr("user.a", b"other").unwrap();
                file.set_xattr("user.a", value).unwrap();
                assert_eq!(file.get_xattr("user.a").unwrap().as_deref(), Some(value));
            }
            file.set_xattr("user.b", b"2").unwrap();
            for mut names in [fs::list_xattrs(&path).unwrap(), file.list_xattrs().unwrap()] {
                names.retain(|name| name.as_bytes().starts_with(b"user."));
                names.sort();
                assert_eq!(names, ["user.a", "user.b"]);
            }
            fs::remove_xattr(&path, "user.a").unwrap();
            file.remove_xattr("user.b").unwrap();
            assert_eq!(kernels_xattr(&path, "user.a"), None);
            let code = |result: io::Result<()>| result.unwrap_err().raw_os_error();
            assert_eq!(code(file.remove_xattr("user.b")), Some(libc::ENODATA));
            assert_eq!(code(fs::set_xattr("no/such", "user.a", b"")), Some(libc::ENOENT));
            assert_eq!(code(fs::get_xattr("no/such", "user.a").map(drop)), Some(libc::ENOENT));
            assert_eq!(code(fs::set_xattr(&path, "user.a", &[0; 70_000])), Some(libc::E2BIG));
            assert_eq!(code(fs::set_xattr(&path, "nonsense", b"")), Some(libc::EOPNOTSUPP));
            assert_eq!(code(fs::set_xattr(&path, "user.".repeat(60), b"")), Some(libc::ERANGE));
            let e = fs::get_xattr(&path, "user.a\0b").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            fs::remove_file(&path).unwrap();
        });
    }
}

// ----- space -----

#[test]
fn allocate_punch_hole_and_seek_data_work() {
    const BLOCK: u64 = 64 << 10;
    let directory = directory();
    let path = directory.path().join("file");
    for way in WAYS {
        way(&|| {
            let mut file = File::options().read(true).write(true).create(true).open(&path).unwrap();
            if file.allocate(0, 4 * BLOCK).is_err() {
                return eprintln!("this file system cannot allocate");
            }
            let known = file.metadata().unwrap();
            assert_eq!((known.len(), known.blocks() * 512 >= 4 * BLOCK), (4 * BLOCK, true));
            file.write_all_at(&disk::pattern(4 * BLOCK as usize), 0).unwrap();
            file.seek(SeekFrom::Start(7)).unwrap();
            assert_eq!(file.seek_hole(0).unwrap(), Some(4 * BLOCK));
            file.punch_hole(BLOCK, 2 * BLOCK).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 4 * BLOCK);
            file.sync_all().unwrap();
            assert_eq!(file.seek_hole(0).unwrap(), Some(BLOCK));
            assert_eq!(file.seek_data(BLOCK).unwrap(), Some(3 * BLOCK));
            assert_eq!(file.seek_data(4 * BLOCK).unwrap(), None);
            assert_eq!(file.seek_hole(4 * BLOCK).unwrap(), None);
            assert_eq!(file.stream_position().unwrap(), 7, "the cursor stays");
            let mut bytes = vec![1; BLOCK as usize];
            file.read_exact_at(&mut bytes, 2 * BLOCK).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0));
            for len in [0, 1, BLOCK, 5 << 30] {
                file.sync_range(0, len).unwrap();
                for advice in [Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::Normal] {
                    file.advise(advice, 0, len).unwrap();
                }
            }
            let code = |result: io::Result<()>| result.unwrap_err().raw_os_error();
            assert_eq!(code(file.allocate(0, 0)), Some(libc::EINVAL));
            assert_eq!(code(file.allocate(u64::MAX, 1)), Some(libc::EINVAL));
            let huge = code(file.allocate(0, 1 << 60));
            assert!(matches!(huge, Some(libc::EFBIG | libc::ENOSPC)), "{huge:?}");
            assert_eq!(code(File::open(&path).unwrap().allocate(0, 1)), Some(libc::EBADF));
            assert_eq!(file.seek_data(u64::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(code(file.sync_range(u64::MAX, 1)), Some(libc::EINVAL));
            fs::remove_file(&path).unwrap();
        });
    }
}

#[test]
fn ranges_are_copied_within_the_kernel() {
    let directory = directory();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let bytes = disk::pattern(100_000);
    std::fs::write(&from, &bytes).unwrap();
    for way in WAYS {
        way(&|| {
            let (source, mut target) = (File::open(&from).unwrap(), File::create(&to).unwrap());
            let mut done = 0;
            while done < 50_000 {
                let count =
                    fs::copy_range(&source, 20_000 + done, &target, done, 50_000 - done as usize);
                done += count.unwrap() as u64;
            }
            assert_eq!(target.stream_position().unwrap(), 0);
            assert!(std::fs::read(&to).unwrap() == bytes[20_000..70_000]);
            assert_eq!(fs::copy_range(&source, 100_000, &target, 0, 10).unwrap(), 0);
            let e = fs::copy_range(&source, u64::MAX, &target, 0, 10).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            let e = fs::copy_range(&target, 0, &source, 0, 10).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EBADF));
            match target.reflink_from(&source) {
                Ok(()) => assert!(std::fs::read(&to).unwrap() == bytes),
                Err(e) => {
                    let codes = [libc::EOPNOTSUPP, libc::EXDEV, libc::EINVAL, libc::ENOTTY];
                    assert!(codes.contains(&e.raw_os_error().unwrap()), "{e}");
                }
            }
            target.flush().unwrap();
        });
    }
}

// ----- directories that paths cannot leave -----

#[test]
fn paths_cannot_leave_their_directory() {
    let directory = directory();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("in/deep")).unwrap();
    std::fs::create_dir(directory.path().join("out")).unwrap();
    std::fs::write(directory.path().join("out/file"), "out").unwrap();
    std::fs::write(root.join("file"), "in").unwrap();
    let link = |says: &str, name: &str| std::os::unix::fs::symlink(says, root.join(name)).unwrap();
    link("../out", "up");
    link("../../out", "in/up");
    link("in/deep", "down");
    link("/proc/self/root", "absolute");
    link("../file", "in/file");
    for way in WAYS {
        way(&|| {
            let dir = Dir::open(&root).unwrap();
            let outside =
                ["..", "../out/file", "up", "up/file", "in/up/file", "absolute/tmp", "/tmp"];
            let beyond = |result: io::Result<()>, path: &str| {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EXDEV), "{path}");
            };
            // An absolute path is refused also if it leads into the directory.
            let inside = root.join("file");
            beyond(dir.open_file(&inside).map(drop), inside.to_str().unwrap());
            for path in outside {
                beyond(dir.open_dir(path).map(drop), path);
                beyond(dir.open_file(path).map(drop), path);
                beyond(dir.metadata(path).map(drop), path);
                beyond(dir.exists(path).map(drop), path);
                beyond(dir.read_dir(path).map(drop), path);
                let new = &format!("{path}/new");
                let create = dir.open_file_with(new, File::options().write(true).create(true));
                beyond(create.map(drop), new);
                beyond(dir.create_dir(new), new);
                beyond(dir.create_dir(format!("{new}/")), new);
                beyond(dir.remove_file(new), new);
                beyond(dir.remove_dir(new), new);
                beyond(dir.remove_dir_all(new), new);
                beyond(dir.rename(new, &dir, "file2"), new);
                beyond(dir.rename("file", &dir, new), new);
                beyond(dir.hard_link("file", &dir, new), new);
                beyond(dir.hard_link(new, &dir, "file2"), new);
                beyond(dir.symlink("x", new), new);
                beyond(dir.read_link(new).map(drop), new);
                beyond(dir.symlink_metadata(new).map(drop), new);
            }
            // Within the directory, every path works.
            let text = |path: &str| {
                let mut text = String::new();
                dir.open_file(path).unwrap().read_to_string(&mut text).unwrap();
                text
            };
            for path in ["file", "./file", "in/../file", "down/../../file", "in/file"] {
                assert_eq!(text(path), "in", "{path}");
            }
            assert!(dir.symlink_metadata("up").unwrap().is_symlink());
            assert_eq!(dir.read_link("up").unwrap(), Path::new("../out"));
            dir.create_dir("down/new/").unwrap();
            dir.hard_link("file", &dir, "down/new/link").unwrap();
            let inner = dir.open_dir("down").unwrap();
            inner.rename("new/link", &dir, "in/moved").unwrap();
            assert_eq!(text("in/moved"), "in");
            inner.symlink("..", "back").unwrap();
            assert_eq!(essence(&inner.open_dir("back").unwrap_err()).1, Some(libc::EXDEV));
            assert!(dir.open_dir("down/back").is_ok());
            dir.remove_file("in/moved").unwrap();
            inner.remove_file("back").unwrap();
            assert_eq!(inner.read_dir(".").unwrap().count(), 1);
            inner.remove_dir("new").unwrap();
            dir.sync_all().unwrap();
            let code = |result: io::Result<()>| result.unwrap_err().raw_os_error();
            assert_eq!(code(dir.remove_dir("in/.")), Some(libc::EINVAL));
            assert_eq!(code(dir.remove_dir("")), Some(libc::ENOENT));
            assert_eq!(code(dir.remove_file("file/")), Some(libc::ENOTDIR));
            assert_eq!(code(dir.create_dir("in")), Some(libc::EEXIST));
            assert_eq!(code(dir.remove_dir("in")), Some(libc::ENOTEMPTY));
            let e = dir.open_file("nul\0inside").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
            // Removes a tree that contains links out of it, and nothing else.
            dir.create_dir("tree").unwrap();
            dir.symlink("../../out", "tree/up").unwrap();
            dir.remove_dir_all("tree").unwrap();
            dir.symlink("../out", "tree").unwrap();
            dir.remove_dir_all("tree").unwrap();
            let kept = std::fs::read_to_string(directory.path().join("out/file")).unwrap();
            assert_eq!(kept, "out");
        });
    }
}

#[test]
fn fifo_open_through_dir_waits_for_its_peer() {
    let directory = directory();
    disk::make_fifo(&directory.path().join("fifo"));
    alone(|| {
        let dir = Dir::open(directory.path()).unwrap();
        fiber::scope(|s| {
            s.spawn_local(|| {
                let options = File::options().write(true).clone();
                dir.open_file_with("fifo", &options).unwrap().write_all(b"through").unwrap();
            });
            let mut text = String::new();
            dir.open_file("fifo").unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "through");
        });
    });
}

#[test]
fn statx_returns_the_requested_fields() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "four").unwrap();
    for way in WAYS {
        way(&|| {
            let mask = libc::STATX_SIZE | libc::STATX_MNT_ID | libc::STATX_DIOALIGN;
            for known in [
                fs::statx(&path, 0, mask).unwrap(),
                File::open(&path).unwrap().statx(mask).unwrap(),
            ] {
                assert_eq!(known.len(), 4);
                assert!(known.statx_mask() & libc::STATX_SIZE != 0);
                assert!(known.mount_id().is_some());
                let _ = (known.attributes(), known.direct_io_alignment());
            }
            let known = fs::metadata(&path).unwrap();
            let theirs = std::fs::metadata(&path).unwrap();
            use cringle::os::linux::fs::MetadataExt as Linux;
            assert_eq!((known.st_ino(), known.st_dev()), (theirs.ino(), theirs.dev()));
            let e = fs::statx(&path, -1, mask).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
        });
    }
}

#[test]
fn file_can_be_a_childs_standard_input() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let file = alone(|| File::open(&path).unwrap());
    let output = std::process::Command::new("cat").stdin(file).output().unwrap();
    assert_eq!(output.stdout, b"text");
}
