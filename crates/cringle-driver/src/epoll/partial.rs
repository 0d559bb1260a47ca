//! Transfers that continue after a short count: reads of files at an offset, and sends and receives
//! with `MSG_WAITALL`. As on a ring, they end when everything is moved.

use super::flight::Flight;
use crate::{Memory, Op, SocketMemory, Way};

/// The slices that are left of a transfer, and a message that names them.
pub(super) struct Remainder {
    slices: Vec<libc::iovec>,
    message: libc::msghdr,
    /// The caller's message of a receive, whose flags report on all parts; null for other ops.
    original: *mut libc::msghdr,
}

impl Flight {
    /// Reduces the op to the bytes after the first `count`. Returns whether any are left.
    ///
    /// # Safety
    ///
    /// I1: what the op points to is valid, and the op has moved `count` bytes.
    pub(super) unsafe fn advance(&mut self, count: u32) -> bool {
        self.done += count;
        let moved = count as usize;
        // SAFETY: by the contract, the buffers have at least `count` bytes. A vector of slices or a
        // message in `self.rest`, to which the op may point, is replaced only after it was read.
        unsafe {
            match &mut self.op {
                Op::Transfer(transfer) => {
                    transfer.offset += u64::from(count);
                    let Memory::Slices { slices, count: all } = transfer.memory() else {
                        return transfer.skip(count);
                    };
                    let rest = Remainder::of(slices, all as usize, moved);
                    let (slices, left) = (rest.slices.as_ptr(), rest.slices.len() as u32);
                    *transfer = transfer.with_memory(Memory::Slices { slices, count: left });
                    self.rest = Some(Box::new(rest));
                    left > 0
                }
                Op::Socket(transfer) => {
                    let SocketMemory::Message(message) = transfer.memory() else {
                        return transfer.skip(count);
                    };
                    let mut rest = Remainder::of_message(message, moved);
                    if transfer.way == Way::Read {
                        let before = self.rest.as_ref();
                        rest.original = before.map_or(message, |before| before.original);
                    }
                    *transfer = transfer.with_memory(SocketMemory::Message(&raw mut rest.message));
                    let is_left = !rest.slices.is_empty();
                    self.rest = Some(rest);
                    is_left
                }
                _ => unreachable!("only transfers that move everything continue"),
            }
        }
    }
}

impl Remainder {
    /// Adds the flags of a later part to the flags of the caller's message.
    ///
    /// # Safety
    ///
    /// I1: the caller's message is valid.
    pub(super) unsafe fn report_flags(&self) {
        if !self.original.is_null() {
            // SAFETY: by the contract; the frame that owns the message waits for the op.
            unsafe { (*self.original).msg_flags |= self.message.msg_flags };
        }
    }

    /// The slices of a message after the first `moved` bytes.
    ///
    /// # Safety
    ///
    /// The message and its slices are valid.
    unsafe fn of_message(message: *const libc::msghdr, moved: usize) -> Box<Remainder> {
        // SAFETY: by the contract.
        let rest = unsafe { Remainder::of((*message).msg_iov, (*message).msg_iovlen as _, moved) };
        let mut rest = Box::new(rest);
        rest.message.msg_iov = rest.slices.as_mut_ptr();
        rest.message.msg_iovlen = rest.slices.len() as _;
        rest
    }

    /// The slices after the first `moved` bytes.
    ///
    /// # Safety
    ///
    /// `slices` points to `count` valid slices; it may be null if there are none.
    unsafe fn of(slices: *const libc::iovec, count: usize, mut moved: usize) -> Remainder {
        let all = match count {
            0 => &[],
            // SAFETY: by the contract.
            _ => unsafe { std::slice::from_raw_parts(slices, count) },
        };
        let mut slices = Vec::with_capacity(count);
        for slice in all {
            let skipped = moved.min(slice.iov_len);
            moved -= skipped;
            if skipped < slice.iov_len {
                slices.push(libc::iovec {
                    iov_base: slice.iov_base.wrapping_byte_add(skipped),
                    iov_len: slice.iov_len - skipped,
                });
            }
        }
        // SAFETY: a `msghdr` may be all-zero.
        let message = unsafe { std::mem::zeroed() };
        Remainder { slices, message, original: std::ptr::null_mut() }
    }
}
