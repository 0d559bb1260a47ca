//! Features that no flag tells of: each is used once, on a ring or a socket of its own.
//!
//! Where a use would need much, it is asked for something that is not there: a kernel that knows the
//! request complains of that (`EBADF`, `ENOENT`, `EFAULT`), one that does not, of the request (`EINVAL`).

use super::Presence;
use crate::raw::{self, Params};
use cringle_report::machine::cache::page_bytes;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const REGISTER_FILES2: u32 = 13;
const REGISTER_RING_FDS: u32 = 20;
const REGISTER_PBUF_RING: u32 = 22;
const REGISTER_SYNC_CANCEL: u32 = 24;
const REGISTER_PBUF_STATUS: u32 = 26;
const REGISTER_NAPI: u32 = 27;
const REGISTER_CLOCK: u32 = 29;
const REGISTER_CLONE_BUFFERS: u32 = 30;
const REGISTER_SEND_MSG_RING: u32 = 31;
const REGISTER_RESIZE_RINGS: u32 = 33;
const REGISTER_MEM_REGION: u32 = 34;
const REGISTER_QUERY: u32 = 35;

const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_ABS_TIMER: u32 = 1 << 5;
const RSRC_REGISTER_SPARSE: u32 = 1;
const PBUF_RING_INC: u16 = 2;

/// No ring: these are asked of the kernel alone.
const BLIND: RawFd = -1;
/// A descriptor that is none.
const NONE: RawFd = i32::MAX;
/// An address that is none.
const NOWHERE: u64 = 0;

/// Asks a fresh ring, or the one named. `argument` has all that any kernel reads or writes of it.
fn asked<T>(ring: Option<RawFd>, opcode: u32, mut argument: T, count: u32) -> io::Result<()> {
    let fresh = ring.is_none().then(|| plain(0)).transpose()?;
    let ring = ring.or_else(|| fresh.as_ref().map(AsRawFd::as_raw_fd)).unwrap_or(BLIND);
    // SAFETY: each try below gives the structure that its opcode wants, in which no address is of
    // memory that the kernel could keep or write to when this frame is gone.
    unsafe { raw::register(ring, opcode, &raw mut argument, count) }.map(drop)
}

fn plain(flags: u32) -> io::Result<OwnedFd> {
    raw::setup(1, &mut Params::with_flags(flags))
}

/// There if it was done, or failed by `complaint`; missing if the request is not known.
fn known(result: io::Result<()>, complaint: i32) -> Presence {
    match result {
        Err(error) if error.raw_os_error() == Some(complaint) => Presence::Present,
        result => Presence::by(result, libc::EINVAL),
    }
}

/// `struct io_uring_rsrc_update`: any free index, and the ring itself.
pub(super) fn registered_ring() -> Presence {
    let attempt = || {
        let ring = plain(0)?;
        let update = [u64::from(u32::MAX), ring.as_raw_fd() as u64];
        asked(Some(ring.as_raw_fd()), REGISTER_RING_FDS, update, 1)
    };
    Presence::by(attempt(), libc::EINVAL)
}

/// `struct io_uring_rsrc_register`: one empty place.
pub(super) fn sparse_files() -> Presence {
    let (number, flags) = (1u32, RSRC_REGISTER_SPARSE);
    let request = [u64::from(number) | u64::from(flags) << 32, 0, 0, 0];
    let size = size_of_val(&request) as u32;
    Presence::by(asked(None, REGISTER_FILES2, request, size), libc::EINVAL)
}

/// `struct io_uring_buf_reg`.
#[repr(C)]
struct BufferRing {
    address: u64,
    entries: u32,
    group: u16,
    flags: u16,
    reserved: [u64; 3],
}

fn buffers(flags: u16) -> Presence {
    let attempt = || {
        // The pages are the kernel's until the ring is closed, which is before they are given back.
        let pages = memmap2::MmapMut::map_anon(page_bytes() as usize)?;
        let ring = plain(0)?;
        let address = pages.as_ptr() as u64;
        let request = BufferRing { address, entries: 1, group: 0, flags, reserved: [0; 3] };
        let done = asked(Some(ring.as_raw_fd()), REGISTER_PBUF_RING, request, 1);
        drop(ring);
        done
    };
    Presence::by(attempt(), libc::EINVAL)
}

pub(super) fn buffer_ring() -> Presence {
    buffers(0)
}

pub(super) fn incremental_buffers() -> Presence {
    buffers(PBUF_RING_INC)
}

/// `struct io_uring_buf_status` of a group that is not there.
pub(super) fn buffer_status() -> Presence {
    known(asked(None, REGISTER_PBUF_STATUS, [0u32; 10], 1), libc::ENOENT)
}

/// `struct io_uring_sync_cancel_reg` for an op that is not there; without a limit of time.
#[repr(C)]
struct SyncCancel {
    address: u64,
    fd: i32,
    flags: u32,
    timeout: [i64; 2],
    reserved: [u64; 4],
}

pub(super) fn sync_cancel() -> Presence {
    let request =
        SyncCancel { address: 1, fd: NONE, flags: 0, timeout: [-1, -1], reserved: [0; 4] };
    known(asked(None, REGISTER_SYNC_CANCEL, request, 1), libc::ENOENT)
}

/// `struct io_uring_napi`, off.
pub(super) fn napi() -> Presence {
    match asked(None, REGISTER_NAPI, [0u64; 2], 1) {
        // Known, and this kernel has no busy polling.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Presence::Missing,
        done => Presence::by(done, libc::EINVAL),
    }
}

/// `struct io_uring_clock_register`.
pub(super) fn clock() -> Presence {
    let request = [libc::CLOCK_MONOTONIC as u32, 0, 0, 0];
    Presence::by(asked(None, REGISTER_CLOCK, request, 0), libc::EINVAL)
}

/// `struct io_uring_clone_buffers`, from no ring.
pub(super) fn clone_buffers() -> Presence {
    let mut request = [0u32; 8];
    request[0] = NONE as u32;
    known(asked(None, REGISTER_CLONE_BUFFERS, request, 1), libc::EBADF)
}

/// A submission entry that sends a message to no ring.
pub(super) fn send_msg_ring() -> Presence {
    let mut entry = [0u32; 16];
    entry[0] = u32::from(opcode::MsgRingData::CODE);
    entry[1] = NONE as u32;
    match asked(Some(BLIND), REGISTER_SEND_MSG_RING, entry, 1) {
        // Kernels without it want a ring for everything.
        Err(error) if error.raw_os_error() == Some(libc::EBADF) && !query_is_blind() => {
            Presence::Missing
        }
        done => known(done, libc::EBADF),
    }
}

/// Whether requests without a ring are read at all: then one that is not known is `EINVAL`.
fn query_is_blind() -> bool {
    let unknown = u32::from(u16::MAX >> 1);
    let asked = asked(Some(BLIND), unknown, 0u64, 0);
    asked.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// Its list of questions is empty.
pub(super) fn query() -> Presence {
    let nothing = std::ptr::null_mut::<u8>();
    // SAFETY: there is no question, so that nothing is read or written.
    let done = unsafe { raw::register(BLIND, REGISTER_QUERY, nothing, 0) }.map(drop);
    match done {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Presence::Missing,
        done => Presence::by(done, libc::EINVAL),
    }
}

pub(super) fn resize() -> Presence {
    let attempt = || {
        let ring = plain(SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN)?;
        let larger = Params::of_size(4, 8);
        asked(Some(ring.as_raw_fd()), REGISTER_RESIZE_RINGS, larger, 1)
    };
    Presence::by(attempt(), libc::EINVAL)
}

/// `struct io_uring_mem_region_reg` with a description that is nowhere.
pub(super) fn memory_region() -> Presence {
    let request = [NOWHERE, 0, 0, 0];
    known(asked(None, REGISTER_MEM_REGION, request, 1), libc::EFAULT)
}

pub(super) fn absolute_timer() -> Presence {
    let attempt = || {
        let ring = plain(0)?;
        raw::enter(ring.as_raw_fd(), ENTER_GETEVENTS | ENTER_ABS_TIMER).map(drop)
    };
    Presence::by(attempt(), libc::EINVAL)
}

/// One page for the entries, one for the queues.
pub(super) fn no_mmap() -> Presence {
    let attempt = || {
        let page = page_bytes();
        let pages = memmap2::MmapMut::map_anon(2 * page as usize)?;
        let mut params = Params::with_flags(raw::SETUP_NO_MMAP);
        params.cq_off.user_addr = pages.as_ptr() as u64;
        params.sq_off.user_addr = pages.as_ptr() as u64 + page;
        // Closed before the pages are given back.
        raw::setup(1, &mut params).map(drop)
    };
    Presence::by(attempt(), libc::EINVAL)
}

/// What becomes of one op.
fn op(entry: &squeue::Entry) -> io::Result<i32> {
    let mut ring = IoUring::new(1)?;
    // SAFETY: what the op names or lends outlives this call, which ends with the op's completion.
    unsafe { ring.submission().push(entry).map_err(io::Error::other)? };
    ring.submit_and_wait(1)?;
    let result = ring.completion().next().map(|cqe| cqe.result());
    result.ok_or_else(|| io::Error::other("no completion"))
}

/// Of a pipe who knows the flag says that it is no socket, and who does not, that the flag is `EINVAL`. (Of
/// a descriptor that is none, kernels before 5.18 would say so first.)
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
