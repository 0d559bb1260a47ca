//! Tests features that no flag reports, by using each once on its own ring or socket.
//!
//! Where a real use would need a lot of setup, the probe passes an invalid object: a kernel that
//! knows the request reports the object (`EBADF`, `ENOENT`, `EFAULT`), and one that does not
//! reports the request (`EINVAL`).

use super::Presence;
use crate::raw::{self, Params};
use cringle_report::machine::cache::page_bytes;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

const REGISTER_PBUF_STATUS: u32 = 26;
const REGISTER_NAPI: u32 = 27;
const REGISTER_CLOCK: u32 = 29;
const REGISTER_SEND_MSG_RING: u32 = 31;
const REGISTER_RESIZE_RINGS: u32 = 33;
const REGISTER_MEM_REGION: u32 = 34;
const REGISTER_QUERY: u32 = 35;

const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_ABS_TIMER: u32 = 1 << 5;
const PBUF_RING_INC: u16 = 2;

/// The descriptor of requests that need no ring.
const WITHOUT_RING: RawFd = -1;
/// An invalid descriptor.
const INVALID_FD: RawFd = i32::MAX;
/// An invalid address.
const INVALID_ADDRESS: u64 = 0;

/// No error: the request succeeds.
const NONE: i32 = 0;

/// Makes a request by a number. `argument` must be all that any kernel reads or writes for it.
fn register<T>(ring: RawFd, opcode: u32, mut argument: T, count: u32) -> io::Result<()> {
    // SAFETY: every probe below passes the structure of its opcode. Addresses in it are invalid or
    // of memory that outlives the ring, so that the kernel keeps no access to memory that is freed.
    unsafe { raw::register(ring, opcode, &raw mut argument, count) }.map(drop)
}

/// Tests a request to a new ring.
fn request(expected: i32, make: impl FnOnce(&IoUring) -> io::Result<()>) -> Presence {
    known(IoUring::new(1).and_then(|ring| make(&ring)), expected)
}

/// `Present` for success or for `expected`, which reports the invalid object; `Missing` if the
/// kernel does not know the request.
fn known(result: io::Result<()>, expected: i32) -> Presence {
    match result {
        Err(error) if error.raw_os_error() == Some(expected) => Presence::Present,
        result => Presence::by(result, libc::EINVAL),
    }
}

/// Registers the ring itself, with any free index.
pub(super) fn registered_ring() -> Presence {
    request(NONE, |ring| ring.submitter().register_ring_fd())
}

/// Registers one empty slot.
pub(super) fn sparse_files() -> Presence {
    request(NONE, |ring| ring.submitter().register_files_sparse(1))
}

fn buffers(flags: u16) -> Presence {
    let Ok(pages) = memmap2::MmapMut::map_anon(page_bytes() as usize) else {
        return Presence::Unknown;
    };
    let address = pages.as_ptr() as u64;
    // SAFETY: the kernel owns the pages until the ring is closed, which `request` does before they
    // are unmapped here.
    let register = |ring: &IoUring| unsafe {
        ring.submitter().register_buf_ring_with_flags(address, 1, 0, flags)
    };
    request(NONE, register)
}

pub(super) fn buffer_ring() -> Presence {
    buffers(0)
}

pub(super) fn incremental_buffers() -> Presence {
    buffers(PBUF_RING_INC)
}

/// Passes a `struct io_uring_buf_status` of a group that does not exist.
pub(super) fn buffer_status() -> Presence {
    let ask = |ring: &IoUring| register(ring.as_raw_fd(), REGISTER_PBUF_STATUS, [0u32; 10], 1);
    request(libc::ENOENT, ask)
}

/// Cancels an op that does not exist, without a timeout.
pub(super) fn sync_cancel() -> Presence {
    let none = types::CancelBuilder::user_data(1);
    request(libc::ENOENT, |ring| ring.submitter().register_sync_cancel(None, none))
}

/// Passes a `struct io_uring_napi` that turns busy polling off.
pub(super) fn napi() -> Presence {
    request(NONE, |ring| {
        let done = register(ring.as_raw_fd(), REGISTER_NAPI, [0u64; 2], 1);
        // The request is known, but this kernel was built without busy polling.
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => io::Error::from_raw_os_error(libc::EINVAL),
            _ => error,
        })
    })
}

/// Passes a `struct io_uring_clock_register`.
pub(super) fn clock() -> Presence {
    let clock = [libc::CLOCK_MONOTONIC as u32, 0, 0, 0];
    request(NONE, |ring| register(ring.as_raw_fd(), REGISTER_CLOCK, clock, 0))
}

/// Clones the buffers of an invalid ring.
pub(super) fn clone_buffers() -> Presence {
    request(libc::EBADF, |ring| ring.submitter().register_buffers_clone(INVALID_FD))
}

/// Passes a submission entry that sends a message to an invalid ring.
pub(super) fn send_msg_ring() -> Presence {
    let mut entry = [0u32; 16];
    entry[0] = u32::from(opcode::MsgRingData::CODE);
    entry[1] = INVALID_FD as u32;
    match register(WITHOUT_RING, REGISTER_SEND_MSG_RING, entry, 1) {
        // A kernel without requests that need no ring reports the descriptor instead.
        Err(error) if error.raw_os_error() == Some(libc::EBADF) && !works_without_ring() => {
            Presence::Missing
        }
        done => known(done, libc::EBADF),
    }
}

/// Returns whether the kernel reads requests without a ring: it reports an unknown one by `EINVAL`.
fn works_without_ring() -> bool {
    let unknown = u32::from(u16::MAX >> 1);
    let result = register(WITHOUT_RING, unknown, 0u64, 0);
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Passes an empty list of queries.
pub(super) fn query() -> Presence {
    let nothing = std::ptr::null_mut::<u8>();
    // SAFETY: the list is empty, so that the kernel reads and writes no memory.
    let done = unsafe { raw::register(WITHOUT_RING, REGISTER_QUERY, nothing, 0) }.map(drop);
    match done {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Presence::Missing,
        done => Presence::by(done, libc::EINVAL),
    }
}

/// Makes the queues of a ring larger.
pub(super) fn resize() -> Presence {
    let flags = SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN;
    let attempt = raw::setup(1, &mut Params::with_flags(flags)).and_then(|ring| {
        register(ring.as_raw_fd(), REGISTER_RESIZE_RINGS, Params::of_size(4, 8), 1)
    });
    Presence::by(attempt, libc::EINVAL)
}

/// Passes a `struct io_uring_mem_region_reg` with an invalid address of its description.
pub(super) fn memory_region() -> Presence {
    let region = [INVALID_ADDRESS, 0, 0, 0];
    let ask = |ring: &IoUring| register(ring.as_raw_fd(), REGISTER_MEM_REGION, region, 1);
    request(libc::EFAULT, ask)
}

/// Enters a ring with the flag for absolute timeouts.
pub(super) fn absolute_timer() -> Presence {
    let flags = ENTER_GETEVENTS | ENTER_ABS_TIMER;
    request(NONE, |ring| raw::enter(ring.as_raw_fd(), flags).map(drop))
}

/// Creates a ring in this process's memory: one page for the entries, one for the queues.
pub(super) fn no_mmap() -> Presence {
    let attempt = || {
        let page = page_bytes();
        let pages = memmap2::MmapMut::map_anon(2 * page as usize)?;
        let mut params = Params::with_flags(raw::SETUP_NO_MMAP);
        params.cq_off.user_addr = pages.as_ptr() as u64;
        params.sq_off.user_addr = pages.as_ptr() as u64 + page;
        // The ring is closed before the pages are unmapped.
        raw::setup(1, &mut params).map(drop)
    };
    Presence::by(attempt(), libc::EINVAL)
}

/// Submits one op and returns its result.
fn op(entry: &squeue::Entry) -> io::Result<i32> {
    let mut ring = IoUring::new(1)?;
    // SAFETY: descriptors and memory of the op outlive this call, which returns after its
    // completion (I1).
    unsafe { ring.submission().push(entry).map_err(io::Error::other)? };
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().map(|cqe| cqe.result());
    result.ok_or_else(|| io::Error::other("no completion"))
}

/// Tests a flag of a socket op on a pipe: a kernel that knows the flag reports that a pipe is not a
/// socket, and one that does not reports the flag by `EINVAL`. (With an invalid descriptor, kernels
/// before 5.18 would report that first.)
fn flagged(entry: impl FnOnce(types::Fd) -> squeue::Entry) -> Presence {
    let Ok((pipe, _writer)) = io::pipe() else { return Presence::Unknown };
    match op(&entry(types::Fd(pipe.as_raw_fd()))) {
        Ok(result) if result == -libc::ENOTSOCK => Presence::Present,
        Ok(result) if result == -libc::EINVAL => Presence::Missing,
        _ => Presence::Unknown,
    }
}

pub(super) fn multishot_accept() -> Presence {
    flagged(|pipe| opcode::AcceptMulti::new(pipe).build())
}

pub(super) fn multishot_recv() -> Presence {
    flagged(|pipe| opcode::RecvMulti::new(pipe, 0).build())
}

pub(super) fn socket_options() -> Presence {
    let Ok((socket, _peer)) = std::os::unix::net::UnixStream::pair() else {
        return Presence::Unknown;
    };
    let on: libc::c_int = 1;
    let (level, option) = (libc::SOL_SOCKET as u32, libc::SO_KEEPALIVE as u32);
    let size = size_of_val(&on) as u32;
    let fd = types::Fd(socket.as_raw_fd());
    let entry = opcode::SetSockOpt::new(fd, level, option, (&raw const on).cast(), size).build();
    match op(&entry) {
        Ok(0) => Presence::Present,
        Ok(result) if [-libc::EOPNOTSUPP, -libc::EINVAL].contains(&result) => Presence::Missing,
        _ => Presence::Unknown,
    }
}
