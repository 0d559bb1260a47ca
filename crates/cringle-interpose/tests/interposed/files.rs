//! Files, directories, pipes, the standard streams.

use crate::{check, own};
use cringle::fs::{self, Dir, File, OpenOptions};
use cringle::{fiber, io as fiber_io};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;

/// Calls `f` with the path of a new directory.
pub(crate) fn in_directory(f: impl FnOnce(&Path)) {
    let directory = own(|| tempfile::tempdir().unwrap());
    f(directory.path());
    own(|| directory.close().unwrap());
}

fn read_and_write(directory: &Path) {
    let path = directory.join("file");
    let options = || OpenOptions::new().read(true).write(true).create(true).clone();
    let mut file = options().open(&path).unwrap();
    file.write_all(&[7; 10_000]).unwrap();
    file.write_vectored(&[IoSlice::new(b"rope "), IoSlice::new(b"strands")]).unwrap();
    file.write_all_at(b"sail", 100).unwrap();
    file.write_vectored_at(&[IoSlice::new(b"a"), IoSlice::new(b"b")], 200).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut buf = vec![0; 4096];
    file.read_exact(&mut buf).unwrap();
    let [mut one, mut two] = [[0; 10]; 2];
    file.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]).unwrap();
    file.read_vectored_at(&mut [IoSliceMut::new(&mut one)], 100).unwrap();
    file.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
    assert_eq!(file.write_at(&[], 0).unwrap(), 0);
    assert!(file.read_at(&mut buf, u64::MAX).is_err());
    file.set_len(1 << 20).unwrap();
    assert!(file.set_len(u64::MAX).is_err());
    file.allocate(0, 1 << 20).unwrap();
    file.punch_hole(0, 4096).unwrap();
    file.seek_data(0).unwrap();
    file.sync_range(0, 4096).unwrap();
    drop(format!("{file:?} {file:#?}"));
    let mut clone = file.try_clone().unwrap();
    clone.stream_position().unwrap();
    drop(clone);
    let lent = file.as_fd().as_raw_fd();
    assert!(lent > 2);
    file.read_exact(&mut buf).unwrap();
    file.write_all(&buf).unwrap();
    file.close().unwrap();
    let mut appended = OpenOptions::new().append(true).open(&path).unwrap();
    appended.write_all(&buf).unwrap();
    drop(appended);
    if let Ok(direct) = options().custom_flags(libc::O_DIRECT).open(&path) {
        let mut page = cringle::block::AlignedBuf::new(4096);
        direct.read_at(&mut page, 0).unwrap();
        let _ = direct.read_at(&mut buf[1..100], 1);
    }
    // std's types close their descriptors themselves.
    let std = OwnedFd::from(File::open(&path).unwrap());
    own(|| drop(std));
    fs::write(directory.join("other"), &buf).unwrap();
    fs::copy(directory.join("other"), directory.join("third")).unwrap();
    assert_eq!(fs::read(directory.join("third")).unwrap().len(), buf.len());
    assert!(File::open(directory.join("missing")).is_err());
    assert!(File::open("nul\0").is_err());
    assert!(OpenOptions::new().open(&path).is_err());
}

fn odd_files() {
    fs::read_to_string("/proc/self/stat").unwrap();
    File::open("/dev/zero").unwrap().read_exact(&mut [0; 100]).unwrap();
    OpenOptions::new().write(true).open("/dev/null").unwrap().write_all(b"gone").unwrap();
    assert!(File::open("/").unwrap().read(&mut [0]).is_err());
    if let Ok((mut near, far)) = own(pseudoterminal) {
        let far = &far;
        fiber::scope(|s| {
            s.spawn_local(move || (&mut &*far).write_all(b"line\n").unwrap());
            near.read(&mut [0; 100]).unwrap();
        });
    }
}

fn pseudoterminal() -> std::io::Result<(File, File)> {
    let near = std::fs::File::options().read(true).write(true).open("/dev/ptmx")?;
    let (unlock, mut number) = (0, 0);
    // SAFETY: by the contract of `ioctl`: the integers are borrowed for the calls.
    unsafe {
        libc::ioctl(near.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock);
        libc::ioctl(near.as_raw_fd(), libc::TIOCGPTN, &raw mut number);
    }
    let far = std::fs::File::options().read(true).write(true).open(format!("/dev/pts/{number}"))?;
    Ok((near.into(), far.into()))
}

fn names(directory: &Path) {
    let below = directory.join("a/b/c");
    fs::create_dir_all(&below).unwrap();
    let file = below.join("file");
    fs::write(&file, b"text").unwrap();
    fs::hard_link(&file, below.join("hard")).unwrap();
    cringle::os::unix::fs::symlink(&file, below.join("soft")).unwrap();
    fs::rename(below.join("hard"), below.join("renamed")).unwrap();
    fs::read_link(below.join("soft")).unwrap();
    fs::canonicalize(&file).unwrap();
    for entry in fs::read_dir(&below).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    fs::metadata(&file).unwrap();
    fs::symlink_metadata(below.join("soft")).unwrap();
    assert!(!fs::exists(below.join("missing")).unwrap());
    fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_times(&file, fs::FileTimes::new().set_modified(SystemTime::now())).unwrap();
    let _ = fs::set_xattr(&file, "user.color", b"red");
    let _ = fs::get_xattr(&file, "user.color");
    let _ = fs::list_xattrs(&file);
    let _ = fs::remove_xattr(&file, "user.color");
    let dir = Dir::open(&below).unwrap();
    dir.open_file("file").unwrap();
    dir.try_clone().unwrap().create_dir("d").unwrap();
    dir.open_dir("d").unwrap().sync_all().unwrap();
    dir.rename("renamed", &dir, "again").unwrap();
    dir.remove_file("again").unwrap();
    assert!(dir.open_file("../file").is_err());
    drop(dir);
    fs::remove_dir_all(directory.join("a")).unwrap();
}

fn locks(directory: &Path) {
    let path = directory.join("lock");
    let (one, two) = (File::create(&path).unwrap(), File::create(&path).unwrap());
    one.lock().unwrap();
    assert!(two.try_lock().is_err());
    fiber::scope(|s| {
        s.spawn_local(|| two.lock().unwrap());
        fiber::yield_now();
        one.unlock().unwrap();
    });
    two.unlock().unwrap();
}

fn fifos(directory: &Path) {
    let path = directory.join("fifo");
    own(|| {
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: by the contract of `mkfifo`: the path is a C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    });
    fiber::scope(|s| {
        let reader = s.spawn_local(|| fs::read(&path).unwrap());
        OpenOptions::new().write(true).open(&path).unwrap().write_all(&[7; 100_000]).unwrap();
        assert_eq!(reader.join().unwrap().len(), 100_000);
    });
}

fn pipes_and_streams() {
    let (mut reader, mut writer) = fiber_io::pipe().unwrap();
    fiber::scope(|s| {
        s.spawn_local(|| {
            writer.write_all(&[7; 200_000]).unwrap();
            writer.try_clone().unwrap().write_all(b"end").unwrap();
            drop(writer);
        });
        fiber_io::ready(&reader, fiber_io::Interest::READABLE).unwrap();
        assert_eq!(fiber_io::copy(&mut reader, &mut std::io::sink()).unwrap(), 200_003);
    });
    drop(fiber_io::stdin().lock());
    fiber_io::stdout().flush().unwrap();
    fiber_io::stderr().write_all(b"").unwrap();
    fiber_io::stderr().lock().write_all(b"[a line on standard error]\n").unwrap();
}

/// A destructor that writes while its fiber unwinds.
struct WritesOnDrop(File);

impl Drop for WritesOnDrop {
    fn drop(&mut self) {
        self.0.write_all(b"unwinding").unwrap();
        self.0.write_all_at(b"unwinding", 0).unwrap();
        self.0.read_at(&mut [0; 4], 0).unwrap();
        self.0.sync_all().unwrap();
    }
}

fn unwinding(directory: &Path) {
    let path = directory.join("unwinding");
    let result = fiber::catch_unwind(|| {
        let options = OpenOptions::new().read(true).write(true).create(true).open(&path);
        let _writes = WritesOnDrop(options.unwrap());
        fiber::resume_unwind(Box::new("on purpose"));
    });
    assert!(result.is_err());
    fs::remove_file(&path).unwrap();
}

#[test]
fn file_calls_pass_no_interposed_function() {
    check(|| in_directory(read_and_write));
    check(|| in_directory(names));
    check(|| in_directory(locks));
    check(|| in_directory(unwinding));
    check(odd_files);
}

#[test]
fn pipe_calls_pass_no_interposed_function() {
    check(|| in_directory(fifos));
    check(pipes_and_streams);
}
