//! The mapping of a file for reading, and which of its pages are in memory.

use super::{mapped_copy, raw, syscall};
use std::io;
use std::os::fd::RawFd;

/// A range of a file that is mapped for reading, and shared with the page cache.
///
/// Its memory is read only by [`Mapping::copy`]: no reference to it exists (**I16**).
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` from `offset`, a multiple of the page size. `bytes` is not 0.
    pub fn new(fd: RawFd, bytes: usize, offset: u64) -> io::Result<Mapping> {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        let offset =
            i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: by the contract of `mmap`: a new mapping at an address of the kernel's choice
        // replaces none.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { address: address as usize, bytes })
    }

    /// Returns the size of the mapping.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `len` bytes from the offset `from` of the mapping, and returns how many of them: see
    /// [`mapped_copy::copy`].
    ///
    /// # Safety
    ///
    /// `to` is valid for a write of `len` bytes, or is a writable mapping of a file.
    #[inline]
    pub unsafe fn copy(&self, from: usize, to: *mut u8, len: usize) -> usize {
        assert!(from <= self.bytes && len <= self.bytes - from, "I16: a copy of mapped bytes");
        // SAFETY: I16. The range is mapped until `self` is dropped; and by the contract.
        unsafe { mapped_copy::copy(self.address + from, to, len) }
    }

    /// Starts to load the begin of a range into the processor's cache. For bytes that are not
    /// mapped it does nothing.
    #[inline]
    pub fn prefetch(&self, from: usize) {
        mapped_copy::prefetch(self.address.wrapping_add(from));
    }

    /// Stores for each page from the offset `from`, a multiple of the page size, whether it is in
    /// memory: bit 0 of a byte (`mincore`).
    pub fn residency(&self, from: usize, pages: &mut [u8]) -> io::Result<()> {
        let bytes = pages.len() * page_bytes();
        assert!(from + bytes <= self.bytes.next_multiple_of(page_bytes()), "I16: mapped pages");
        let address = (self.address + from) as *mut libc::c_void;
        // SAFETY: the contract of `mincore`: it writes a byte for each page. The pages are mapped
        // until `self` is dropped (I16), and are not accessed.
        match unsafe { libc::mincore(address, bytes, pages.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Enters pages into the process's page table, so that an access to them is no page fault
    /// (`MADV_POPULATE_READ`, Linux 5.14). Waits for the disk if a page is not in memory.
    pub fn populate(&self, from: usize, bytes: usize) -> io::Result<()> {
        const MADV_POPULATE_READ: libc::c_int = 22;
        assert!(from + bytes <= self.bytes.next_multiple_of(page_bytes()), "I16: mapped pages");
        let address = self.address + from;
        // SAFETY: by the contract of `madvise`: this advice changes no memory. The pages are mapped
        // until `self` is dropped (I16).
        let result = unsafe { syscall!(SYS_madvise, address, bytes, MADV_POPULATE_READ) };
        raw::result_of(result).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: I16. The mapping belongs to this value, and no copy reads it any more.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.bytes) };
    }
}

/// Returns the size of a page of memory.
pub fn page_bytes() -> usize {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Returns the number of pages of a range that the page cache has (`cachestat`, Linux 6.5). It
/// counts pages that are still being read. `None` if the kernel does not report it.
pub fn cached_pages(fd: RawFd, offset: u64, bytes: u64) -> Option<u64> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let (range, mut counts) = ([offset, bytes], [0u64; 5]);
    // SAFETY: both arrays are borrowed for the call, which reads the first and fills the second.
    let result = unsafe {
        raw::call(
            SYS_CACHESTAT,
            [fd as usize, range.as_ptr() as usize, counts.as_mut_ptr() as usize, 0],
        )
    };
    (result == 0).then_some(counts[0])
}
