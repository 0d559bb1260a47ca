//! What a file with `Direct::Bounce` refuses, and by which errors.

use super::bounce::open;
use cringle::block::Batch;
use cringle::fs::{Direct, OpenOptions};
use cringle_testing::disk::*;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The advice for a file that takes only aligned requests is none for a file that takes any.
#[test]
fn batch_has_the_kernels_error_near_the_largest_offset() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(file) = open(&path) else { return };
    everywhere(|| {
        let (mut read, offset) = ([0; 5], i64::MAX as u64 - 1);
        let mut batch = Batch::new();
        batch.read(&file, &mut read, offset);
        batch.write(&file, b"bytes", offset);
        for result in batch.submit() {
            let e = result.unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EINVAL), "{e}");
        }
    });
}

#[test]
fn files_that_cannot_bounce_are_refused_with_words() {
    let directory = directory();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    for way in [solitary, alone] {
        way(|| {
            let mut options = OpenOptions::new();
            let options = options.direct(Direct::Bounce);
            let append = options.clone().append(true).create(true).open(directory.path().join("a"));
            let text = append.unwrap_err().to_string();
            assert!(text.contains("cannot append") && text.contains("at an offset"), "{text}");
            assert!(!directory.path().join("a").exists());
            let mut appends = options.clone();
            appends.write(true).create(true).truncate(false).custom_flags(libc::O_APPEND);
            let text = appends.open(directory.path().join("a")).unwrap_err().to_string();
            assert!(text.contains("cannot append"), "{text}");
            assert!(!directory.path().join("a").exists());
            let mut names_only = options.clone();
            let names_only = names_only.read(true).custom_flags(libc::O_PATH);
            let text = names_only.open("/etc/passwd").unwrap_err().to_string();
            assert!(text.contains("without O_PATH"), "{text}");
            for refused in [&fifo, Path::new("/proc/version"), Path::new("/dev/null")] {
                let mut options = options.clone();
                options.read(true).write(refused == fifo).custom_flags(libc::O_NONBLOCK);
                let e = options.open(refused).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidInput, "{refused:?}: {e}");
                assert!(e.to_string().contains("refuses O_DIRECT"), "{refused:?}: {e}");
            }
            let e = options.clone().read(true).open("/no/such/file").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::NotFound);
        });
    }
}

/// The kernel refuses the memory, and no reference to it is made. NULL alone is refused for a file
/// that bounces.
#[test]
fn batch_of_memory_that_cannot_be_accessed_fails() {
    let directory = directory();
    let path = directory.path().join("file");
    let Some(bounced) = open(&path) else { return };
    let opened = |flags: i32| {
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        (file.unwrap(), [0, 4096, usize::MAX & !4095].as_slice())
    };
    let files =
        [opened(0), opened(libc::O_DSYNC), opened(libc::O_DIRECT | libc::O_SYNC), (bounced, &[0])];
    everywhere(|| {
        for (at, (file, addresses)) in files.iter().enumerate() {
            for (&address, len) in
                addresses.iter().flat_map(|it| [0, 4096, usize::MAX].map(|len| (it, len)))
            {
                let memory = std::ptr::without_provenance_mut(address);
                let mut batch = Batch::new();
                // SAFETY: the contract of both: the memory cannot be accessed, or is NULL.
                let ids = unsafe {
                    [batch.read_raw(file, memory, len, 0), batch.write_raw(file, memory, len, 0)]
                };
                let results = batch.submit();
                let (read, written) = (results.get(ids[0]), results.get(ids[1]));
                let what = format!("file {at}, {len} bytes at {address:#x}");
                // The kernel checks an address beyond those of programs even for no bytes.
                let is_nothing = len == 0 && address <= 4096;
                let expected = if is_nothing { Ok(0) } else { Err(Some(libc::EFAULT)) };
                assert_eq!(written.map_err(|e| e.raw_os_error()), expected, "write, {what}");
                // The file is empty, so the kernel may return its end instead.
                assert!(!read.is_ok_and(|count| count > 0), "read, {what}");
            }
            // No write-back has failed.
            file.write_at(&[], 0).unwrap();
            file.sync_all().unwrap();
        }
    });
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}
