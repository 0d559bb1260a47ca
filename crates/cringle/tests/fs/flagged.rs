//! Reads and writes with flags of the kernel.

use cringle::block::AlignedBuf;
use cringle::fs::{Direct, File, OpenOptions, ReadFlags, WriteFlags, copy_range};
use cringle_testing::disk::{
    alone, cached_pages, directory, everywhere, in_company, make_cold, outside, pattern, solitary,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Seek};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const LEN: usize = 1 << 16;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Whether the file system knows the flag. Its refusal has words.
fn knows<T>(result: &io::Result<T>, what: &str) -> bool {
    match result {
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            assert!(e.to_string().contains("does not support"), "{what}: {e}");
            eprintln!("skipped: {what}: {e}");
            false
        }
        _ => true,
    }
}

#[test]
fn reads_and_writes_do_what_they_do_without_flags() {
    let directory = directory();
    let path = directory.path().join("file");
    let mut file = open(&path);
    let content = pattern(LEN);
    let writes = [
        WriteFlags::default(),
        WriteFlags::DSYNC,
        WriteFlags::SYNC,
        WriteFlags::HIPRI,
        WriteFlags::DONTCACHE,
        WriteFlags::DSYNC | WriteFlags::DONTCACHE,
    ];
    let reads = [ReadFlags::default(), ReadFlags::HIPRI, ReadFlags::DONTCACHE];
    everywhere(|| {
        for flags in writes {
            let what = format!("{flags:?}");
            file.set_len(0).unwrap();
            let (left, right) = content.split_at(1001);
            let slices = [IoSlice::new(left), IoSlice::new(right)];
            let result = file.write_vectored_at_with(&slices, 7, flags);
            if !knows(&result, &what) {
                continue;
            }
            assert_eq!(result.unwrap(), LEN, "{what}");
            assert_eq!(file.write_at_with(b"rope", 3, flags).unwrap(), 4, "{what}");
            assert_eq!(file.write_at_with(b"", 3, flags).unwrap(), 0, "{what}");
            let found = std::fs::read(&path).unwrap();
            assert!(found[..7] == *b"\0\0\0rope" && found[7..] == content, "{what}");
        }
        file.set_len(0).unwrap();
        file.write_all_at(&content, 7).unwrap();
        for flags in reads {
            let what = format!("{flags:?}");
            let (mut left, mut right) = (vec![0; 1001], vec![0; LEN]);
            let mut slices = [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)];
            let result = file.read_vectored_at_with(&mut slices, 7, flags);
            if !knows(&result, &what) {
                continue;
            }
            assert_eq!(result.unwrap(), LEN, "{what}");
            assert!(left == content[..1001] && right[..LEN - 1001] == content[1001..], "{what}");
            assert_eq!(file.read_at_with(&mut right, LEN as u64 + 7, flags).unwrap(), 0, "{what}");
            assert_eq!(file.read_at_with(&mut [], 7, flags).unwrap(), 0, "{what}");
        }
    });
    assert_eq!(file.stream_position().unwrap(), 0, "the cursor has moved");
}

#[test]
fn read_that_may_not_wait_returns_what_is_cached() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(LEN)).unwrap();
    let file = open(&path);
    for way in [outside, solitary, alone, in_company] {
        way(|| {
            make_cold(&file);
            let mut buf = vec![0; LEN];
            let cold = file.read_at_with(&mut buf, 0, ReadFlags::NOWAIT);
            if !knows(&cold, "NOWAIT") {
                return;
            }
            // A file system in memory holds everything.
            assert!(cold.is_ok() || cold.unwrap_err().kind() == ErrorKind::WouldBlock);
            file.read_exact_at(&mut buf, 0).unwrap();
            let warm = file.read_at_with(&mut buf, 0, ReadFlags::NOWAIT).unwrap();
            assert!(warm == LEN && buf == pattern(LEN));
        });
    }
}

/// The kernel leaves pages in the cache that it cannot drop at once, for example while it moves
/// them in memory. That is rare, so most of the files must not be cached.
#[test]
fn pages_are_dropped_after_a_read_that_asks_for_it() {
    const FILES: usize = 16;
    let directory = directory();
    let files = Vec::from_iter((0..FILES).map(|n| {
        let path = directory.path().join(n.to_string());
        std::fs::write(&path, pattern(LEN)).unwrap();
        open(&path)
    }));
    let mut buf = vec![0; LEN];
    make_cold(&files[0]);
    if !knows(&files[0].read_at_with(&mut buf, 0, ReadFlags::DONTCACHE), "DONTCACHE") {
        return;
    }
    files.iter().for_each(make_cold);
    if files.iter().all(|file| cached_pages(file) > 0) {
        return eprintln!("skipped: the file system is in memory");
    }
    let is_cached_after = |file: &File, flags| {
        make_cold(file);
        let mut buf = vec![0; LEN];
        assert_eq!(file.read_at_with(&mut buf, 0, flags).unwrap(), LEN);
        assert!(buf == pattern(LEN));
        cached_pages(file) > 0
    };
    for way in [solitary, alone, in_company] {
        way(|| {
            let count = |flags| files.iter().filter(|file| is_cached_after(file, flags)).count();
            let cached = count(ReadFlags::DONTCACHE);
            assert!(cached < FILES / 2, "{cached} of {FILES} files are still cached");
            let cached = count(ReadFlags::default());
            assert!(cached > FILES / 2, "an ordinary read has cached {cached} of {FILES} files");
        });
    }
}

#[test]
fn place_of_a_write_is_that_of_its_flag() {
    let directory = directory();
    let path = directory.path().join("file");
    everywhere(|| {
        std::fs::write(&path, "rope").unwrap();
        let file = open(&path);
        assert_eq!(file.write_at_with(b" of", 0, WriteFlags::APPEND).unwrap(), 3);
        let log = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(log.write_at_with(b" strands", 0, WriteFlags::DSYNC).unwrap(), 8);
        assert_eq!(std::fs::read(&path).unwrap(), b"rope of strands");
        let first = log.write_at_with(b"R", 0, WriteFlags::NOAPPEND);
        if knows(&first, "NOAPPEND") {
            assert_eq!(first.unwrap(), 1);
            assert_eq!(std::fs::read(&path).unwrap(), b"Rope of strands");
        }
    });
}

#[test]
fn atomic_write_keeps_to_its_limits_or_is_refused_with_words() {
    let directory = directory();
    let path = directory.path().join("file");
    let buffered = open(&path);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let direct = options.direct(Direct::Aligned).open(&path);
    let bytes = AlignedBuf::new(4096);
    everywhere(|| {
        assert_eq!(buffered.atomic_write_limits().unwrap(), None);
        let refused = buffered.write_at_with(&bytes, 0, WriteFlags::ATOMIC).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("O_DIRECT"), "{refused}");
        let Ok(direct) = &direct else { return };
        let result = direct.write_at_with(&bytes, 0, WriteFlags::ATOMIC);
        match direct.atomic_write_limits().unwrap() {
            Some(limits) if (limits.least..=limits.most).contains(&4096) => {
                assert_eq!(result.unwrap(), 4096);
                let odd = direct.write_at_with(&bytes[..1536], 0, WriteFlags::ATOMIC).unwrap_err();
                assert!(odd.to_string().contains("a power of two"), "{odd}");
            }
            _ => assert_eq!(result.unwrap_err().kind(), ErrorKind::Unsupported),
        }
    });
}

/// A refusal to wait is no failure of the disk.
#[test]
fn write_that_would_wait_spoils_no_sync() {
    let directory = directory();
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).direct(Direct::Aligned);
    let Ok(file) = options.open(directory.path().join("file")) else { return };
    let bytes = AlignedBuf::new(4096);
    everywhere(|| {
        file.set_len(0).unwrap();
        let result = file.write_at_with(&bytes, 0, WriteFlags::NOWAIT | WriteFlags::DSYNC);
        if let Err(e) = result {
            // What extends a file may wait.
            assert!(matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Unsupported), "{e}");
        }
        file.sync_data().unwrap();
    });
}

/// A copy that the kernel refuses writes nothing, and another way of copying follows.
#[test]
fn copy_to_a_synced_file_from_another_file_system_spoils_nothing() {
    let directory = directory();
    let path = directory.path().join("log");
    everywhere(|| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DSYNC);
        let mut log = options.open(&path).unwrap();
        let version = std::fs::read("/proc/version").unwrap();
        let copied = cringle::io::copy(&mut File::open("/proc/version").unwrap(), &mut log);
        assert_eq!(copied.unwrap(), version.len() as u64);
        assert_eq!(std::fs::read(&path).unwrap(), version);
        for source in ["/proc/version", "/"] {
            let source = File::open(source).unwrap();
            assert!(copy_range(&source, 0, &log, 0, 10).is_err());
            log.write_all_at(b"text", 0).unwrap();
            log.sync_data().unwrap();
        }
    });
}

#[test]
fn misuse_is_refused() {
    let directory = directory();
    let path = directory.path().join("file");
    let file = open(&path);
    let (reader, _writer) = io::pipe().unwrap();
    let pipe = File::from(std::os::fd::OwnedFd::from(reader));
    let bounced = OpenOptions::new().read(true).direct(Direct::Bounce).open(&path);
    everywhere(|| {
        let buf = &mut [0; 8];
        let error = file.read_at_with(buf, 1 << 63, ReadFlags::HIPRI).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        let error = file.write_at_with(buf, 1 << 63, WriteFlags::DSYNC).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        let error = pipe.read_at_with(buf, 0, ReadFlags::NOWAIT).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESPIPE));
        let Ok(bounced) = &bounced else { return };
        let error = bounced.read_at_with(buf, 0, ReadFlags::HIPRI).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("Direct::Aligned"), "{error}");
    });
}
