//! The registered descriptor of the ring itself, which spares the kernel a look-up in each call.

use cringle_sys::syscall;
use std::os::fd::RawFd;

const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RingUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// Registers the descriptor; returns its index, or `None` if the kernel cannot.
pub(super) fn register_ring_fd(ring_fd: RawFd) -> Option<i32> {
    let mut update = RingUpdate { offset: u32::MAX, reserved: 0, data: ring_fd as u64 };
    // SAFETY: the kernel reads and writes the one structure that it is given, borrowed for the
    // call.
    let done =
        unsafe { syscall!(SYS_io_uring_register, ring_fd, REGISTER_RING_FDS, &raw mut update, 1) };
    (done == 1).then_some(update.offset as i32)
}

pub(super) fn unregister_ring_fd(ring_fd: RawFd, index: i32) {
    let update = RingUpdate { offset: index as u32, reserved: 0, data: 0 };
    // SAFETY: the kernel reads the one structure that it is given, borrowed for the call.
    unsafe {
        syscall!(SYS_io_uring_register, ring_fd, UNREGISTER_RING_FDS, &raw const update, 1);
    }
}
