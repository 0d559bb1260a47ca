//! The three calls of io_uring, bare: what is asked is whether and how the kernel answers them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Of the driver's rings, unless its builder says otherwise: entries of the two queues.
pub(crate) const DRIVER_SQ_ENTRIES: u32 = 256;
pub(crate) const DRIVER_CQ_ENTRIES: u32 = 4096;

pub(crate) const SETUP_CQSIZE: u32 = 1 << 3;
pub(crate) const SETUP_CLAMP: u32 = 1 << 4;
pub(crate) const SETUP_NO_MMAP: u32 = 1 << 14;

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    pub features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    pub sq_off: Offsets,
    pub cq_off: Offsets,
}

/// Eight numbers that matter to who maps the ring, and where `NO_MMAP` is to put it.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Offsets {
    fields: [u32; 8],
    pub user_addr: u64,
}

const _: () = assert!(size_of::<Params>() == 120, "the kernel's struct io_uring_params");

impl Params {
    pub(crate) fn with_flags(flags: u32) -> Params {
        Params { flags, ..Params::default() }
    }

    pub(crate) fn of_size(sq_entries: u32, cq_entries: u32) -> Params {
        Params { sq_entries, cq_entries, ..Params::default() }
    }

    /// As the driver asks for it, without what it may lack.
    pub(crate) fn of_the_driver() -> Params {
        let flags = SETUP_CQSIZE | SETUP_CLAMP;
        Params { flags, cq_entries: DRIVER_CQ_ENTRIES, ..Params::default() }
    }
}

pub(crate) fn setup(entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
    assert!(params.flags & SETUP_NO_MMAP == 0 || params.cq_off.user_addr != 0, "whose memory?");
    // SAFETY: the parameters outlive the call, which reads and writes that one structure. Where they
    // name memory (NO_MMAP), it is the caller's, who keeps it until the ring is closed.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut *params) };
    let fd = result(fd)?;
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// For how long the memory of closed rings is waited for: half a second in all.
const FREEING_ROUNDS: u32 = 100;
const FREEING_PAUSE: Duration = Duration::from_millis(5);

/// The kernel gives back the locked memory of a closed ring some time after it was closed: where it says
/// that there is none, it is asked again for a while, as the driver does.
pub(crate) fn setup_when_freed(entries: u32, params: &Params) -> io::Result<OwnedFd> {
    let mut rounds = 0;
    loop {
        match setup(entries, &mut params.clone()) {
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && rounds < FREEING_ROUNDS => {
                rounds += 1;
                std::thread::sleep(FREEING_PAUSE);
            }
            result => return result,
        }
    }
}

pub(crate) fn enter(ring: RawFd, flags: u32) -> io::Result<i32> {
    let (submit, complete) = (0, 0);
    // SAFETY: nothing is submitted or waited for, and no memory is lent.
    result(unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            ring,
            submit,
            complete,
            flags,
            std::ptr::null::<u8>(),
            0,
        )
    })
}

/// # Safety
///
/// `argument` is what this opcode wants, `count` of them, for as long as it wants it.
pub(crate) unsafe fn register<T>(
    ring: RawFd,
    opcode: u32,
    argument: *mut T,
    count: u32,
) -> io::Result<i32> {
    // SAFETY: the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_io_uring_register, ring, opcode, argument, count) })
}

fn result(code: libc::c_long) -> io::Result<i32> {
    match i32::try_from(code) {
        Ok(code) if code >= 0 => Ok(code),
        _ => Err(io::Error::last_os_error()),
    }
}

const REGISTER_PROBE: u32 = 8;
const OPS: usize = 256;
const OP_SUPPORTED: u16 = 1;

/// Which opcodes a ring knows: `struct io_uring_probe`.
#[repr(C)]
pub(crate) struct Ops {
    last_op: u8,
    len: u8,
    reserved: [u16; 7],
    ops: [Op; OPS],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Op {
    code: u8,
    reserved: u8,
    flags: u16,
    reserved_too: u32,
}

impl Ops {
    pub(crate) fn of(ring: &OwnedFd) -> io::Result<Box<Ops>> {
        let none = Ops { last_op: 0, len: 0, reserved: [0; 7], ops: [Op::default(); OPS] };
        let mut ops = Box::new(none);
        // SAFETY: zeroes, and room for as many opcodes as are named; it outlives the call.
        unsafe { register(ring.as_raw_fd(), REGISTER_PROBE, &raw mut *ops, OPS as u32)? };
        Ok(ops)
    }

    pub(crate) fn has(&self, code: u8) -> bool {
        code <= self.last_op && self.ops[code as usize].flags & OP_SUPPORTED != 0
    }
}

const _: () = assert!(size_of::<Ops>() == 16 + 8 * OPS, "the kernel's struct io_uring_probe");
