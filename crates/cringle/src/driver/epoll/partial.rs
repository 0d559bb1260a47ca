//! Going on where a transfer has stopped: of reads of files at an offset, and of sends and receives with
//! `MSG_WAITALL`, which are over when everything is moved, as on the ring.

use super::flight::Flight;
use crate::driver::Op;

/// Slices that are left, and a message that names them.
pub(super) struct Remainder {
    slices: Vec<libc::iovec>,
    message: libc::msghdr,
    /// The message that is received: its flags are those of all parts.
    first: *mut libc::msghdr,
}

impl Flight {
    /// So many bytes were moved. Whether any are left.
    ///
    /// # Safety
    ///
    /// I1: what the op points to is there. It has moved so many bytes.
    pub(super) unsafe fn advance(&mut self, count: u32) -> bool {
        self.done += count;
        let moved = count as usize;
        // SAFETY: by the contract, so many bytes lie behind the pointers.
        unsafe {
            match &mut self.op {
                Op::Read { buf, len, offset, .. } | Op::ReadFixed { buf, len, offset, .. } => {
                    (*buf, *len) = (buf.add(moved), *len - count);
                    *offset += u64::from(count);
                    *len > 0
                }
                Op::Recv { buf, len, .. } => {
                    (*buf, *len) = (buf.add(moved), *len - count);
                    *len > 0
                }
                Op::Send { buf, len, .. } | Op::SendZc { buf, len, .. } => {
                    (*buf, *len) = (buf.add(moved), *len - count);
                    *len > 0
                }
                Op::ReadVectored { slices, count: n, offset, .. } => {
                    let rest = Remainder::of(*slices, *n as usize, moved);
                    (*slices, *n) = (rest.slices.as_ptr(), rest.slices.len() as u32);
                    *offset += u64::from(count);
                    self.rest = Some(Box::new(rest));
                    *n > 0
                }
                Op::SendMsg { message, .. } => {
                    let mut rest = Box::new(Remainder::of(
                        (**message).msg_iov,
                        (**message).msg_iovlen as _,
                        moved,
                    ));
                    rest.name_slices();
                    *message = &raw const rest.message;
                    let left = !rest.slices.is_empty();
                    self.rest = Some(rest);
                    left
                }
                Op::RecvMsg { message, .. } => {
                    let mut rest = Box::new(Remainder::of(
                        (**message).msg_iov,
                        (**message).msg_iovlen as _,
                        moved,
                    ));
                    rest.name_slices();
                    rest.first = self.rest.as_ref().map_or(*message, |before| before.first);
                    *message = &raw mut rest.message;
                    let left = !rest.slices.is_empty();
                    self.rest = Some(rest);
                    left
                }
                _ => unreachable!("an op that goes on until everything is moved"),
            }
        }
    }
}

impl Remainder {
    /// A later part of a message has come.
    ///
    /// # Safety
    ///
    /// I1: the message that is received is there.
    pub(super) unsafe fn report_flags(&self) {
        if !self.first.is_null() {
            // SAFETY: by the contract; the fibers that wait do not touch it.
            unsafe { (*self.first).msg_flags |= self.message.msg_flags };
        }
    }
}

impl Remainder {
    /// # Safety
    ///
    /// There are so many slices.
    unsafe fn of(slices: *const libc::iovec, count: usize, mut moved: usize) -> Remainder {
        let all = match count {
            // They may be named by a null pointer.
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
        // SAFETY: all of it may be zero.
        let message = unsafe { std::mem::zeroed() };
        Remainder { slices, message, first: std::ptr::null_mut() }
    }

    fn name_slices(&mut self) {
        self.message.msg_iov = self.slices.as_mut_ptr();
        self.message.msg_iovlen = self.slices.len() as _;
    }
}
