//! The page cache.

use common::file::{open, size_of};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Evicts the file, and checks that none of its pages is left.
pub(crate) fn evict(path: &Path) {
    let file = open(path, false).expect("the object exists");
    // SAFETY: no pointers.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0);
    let pages = pages_in_memory(&file, size_of(path).expect("the object exists") as usize);
    assert_eq!(pages, 0, "the file has been written back, and no other program reads it");
}

fn pages_in_memory(file: &std::fs::File, bytes: usize) -> usize {
    let mut in_memory = vec![0_u8; bytes.div_ceil(4096)];
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing accesses. `mincore`
    // writes a byte for each of its pages. The mapping ends here.
    unsafe {
        let (fd, start) = (file.as_raw_fd(), std::ptr::null_mut());
        let start = libc::mmap(start, bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mincore(start, bytes, in_memory.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(start, bytes), 0);
    }
    in_memory.iter().filter(|&&page| page & 1 != 0).count()
}
