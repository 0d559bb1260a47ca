//! Direct I/O with memory of the program that maps a file, of which pages are lost.

use cringle::block::SigbusHandler;
use cringle::fs::{Direct, OpenOptions};
use cringle_testing::disk::{directory, everywhere, pattern};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;

/// Returns memory whose access raises SIGBUS: the file that it maps has been truncated.
fn lost_memory(len: usize) -> &'static mut [u8] {
    let file = tempfile::tempfile().unwrap();
    file.set_len(len as u64).unwrap();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, which is never removed, and to which no other reference exists.
    let memory = unsafe {
        let start = libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(start.cast(), len)
    };
    file.set_len(0).unwrap();
    memory
}

#[test]
fn vectored_call_with_lost_memory_returns_an_error() {
    SigbusHandler::install().unwrap();
    let directory = directory();
    let path = directory.path().join("file");
    everywhere(|| {
        std::fs::write(&path, pattern(20_000)).unwrap();
        let mut options = OpenOptions::new();
        let file = match options.read(true).write(true).direct(Direct::Bounce).open(&path) {
            Ok(file) => file,
            Err(e) => return eprintln!("skipped: {e}"),
        };
        let (mut intact, lost) = ([1; 100], lost_memory(8192));
        let mut bufs = [IoSliceMut::new(&mut intact), IoSliceMut::new(lost)];
        let read = file.read_vectored_at(&mut bufs, 10).unwrap_err();
        assert_eq!(read.raw_os_error(), Some(libc::EFAULT), "{read}");
        let written = file.write_vectored_at(&[IoSlice::new(&[1; 100]), IoSlice::new(lost)], 10);
        let written = written.unwrap_err();
        assert_eq!(written.raw_os_error(), Some(libc::EFAULT), "{written}");
        assert!(std::fs::read(&path).unwrap() == pattern(20_000));
    });
}
