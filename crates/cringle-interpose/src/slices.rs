//! The buffers of a call: the caller's `iovec`s, and what is left of them.

use cringle_driver::op::AT_CURSOR;
use cringle_driver::{Op, Target, Way};
use cringle_sys::{MAX_RW_BYTES, raw};
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

/// The buffers that a call has yet to fill or to write.
pub(super) struct Slices {
    first: *const iovec,
    count: usize,
    /// The only buffer of a `read` or a `write`.
    one: iovec,
    /// The rest of several buffers.
    rest: Vec<iovec>,
}

impl Slices {
    /// One buffer. The kernel transfers at most [`MAX_RW_BYTES`] by one call.
    pub(super) fn one(buf: *mut c_void, len: usize) -> Slices {
        let one = iovec { iov_base: buf, iov_len: len.min(MAX_RW_BYTES) };
        Slices { first: std::ptr::null(), count: 1, one, rest: Vec::new() }
    }

    /// The buffers of a `readv` or a `writev`, which only the kernel has looked at.
    ///
    /// A number that the kernel refuses stays one that it refuses.
    pub(super) fn many(first: *const iovec, count: c_int) -> Slices {
        let one = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Slices { first, count: count as usize, one, rest: Vec::new() }
    }

    fn start(&self) -> *const iovec {
        if !self.rest.is_empty() {
            self.rest.as_ptr()
        } else if self.first.is_null() && self.count == 1 {
            &raw const self.one
        } else {
            self.first
        }
    }

    /// The address and the number of the remaining buffers.
    pub(super) fn parts(&self) -> (*const iovec, usize) {
        let is_rest = !self.rest.is_empty();
        (self.start(), if is_rest { self.rest.len() } else { self.count })
    }

    fn is_one(&self) -> bool {
        self.first.is_null() && self.count == 1
    }

    /// The length of the only buffer. `None` if the caller's array has not been looked at.
    pub(super) fn only_len(&self) -> Option<usize> {
        self.is_one().then_some(self.one.iov_len)
    }

    /// The number of bytes.
    ///
    /// # Safety
    ///
    /// The kernel has accepted the buffers, so the array is readable.
    pub(super) unsafe fn len(&self) -> usize {
        let (first, count) = self.parts();
        if count == 0 {
            return 0;
        }
        // SAFETY: by the contract.
        let slices = unsafe { std::slice::from_raw_parts(first, count) };
        slices.iter().map(|slice| slice.iov_len).sum::<usize>().min(MAX_RW_BYTES)
    }

    /// Removes the first `done` bytes.
    ///
    /// # Safety
    ///
    /// As for [`len`](Self::len), and there are as many bytes.
    pub(super) unsafe fn advance(&mut self, done: usize) {
        // SAFETY: by the contract, the address stays within the buffer or at its end.
        let skip = |slice: &mut iovec, bytes: usize| unsafe {
            slice.iov_base = slice.iov_base.byte_add(bytes);
            slice.iov_len -= bytes;
        };
        if self.is_one() {
            return skip(&mut self.one, done);
        }
        let (first, count) = self.parts();
        // SAFETY: by the contract.
        let slices = unsafe { std::slice::from_raw_parts(first, count) };
        let mut left = done;
        let mut rest = Vec::with_capacity(count);
        for slice in slices {
            let mut slice = *slice;
            let bytes = left.min(slice.iov_len);
            left -= bytes;
            skip(&mut slice, bytes);
            if slice.iov_len > 0 {
                rest.push(slice);
            }
        }
        (self.count, self.rest) = (rest.len(), rest);
    }

    /// Calls `preadv2` or `pwritev2`. An `offset` of −1 is the cursor.
    ///
    /// # Safety
    ///
    /// The buffers come from the interposed call.
    pub(super) unsafe fn call(&self, fd: RawFd, offset: i64, flags: c_int, write: bool) -> isize {
        let (first, count) = self.parts();
        let number = if write { libc::SYS_pwritev2 } else { libc::SYS_preadv2 };
        // On 64-bit machines the low half of the offset is all of it.
        let arguments = [fd as usize, first as usize, count, offset as usize, 0, flags as usize];
        // SAFETY: by the contract.
        unsafe { raw::call(number, arguments) }
    }

    /// The op that transfers the buffers.
    pub(super) fn op(&self, fd: RawFd, offset: Option<u64>, write: bool) -> Op {
        let offset = offset.unwrap_or(AT_CURSOR);
        let (start, len) = (self.one.iov_base.cast::<u8>(), self.one.iov_len as u32);
        match (self.is_one(), write) {
            (true, true) => Op::write(Target::fd(fd), start, len, offset),
            (true, false) => Op::read(Target::fd(fd), start, len, offset),
            (false, _) => {
                let (slices, count) = self.parts();
                let way = if write { Way::Write } else { Way::Read };
                Op::slices(way, fd, slices, count as u32, offset, 0)
            }
        }
    }
}
