//! The three system calls of io_uring, without a library, to see whether and how the kernel answers
//! them.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

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
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    pub sq_off: Offsets,
    pub cq_off: Offsets,
}

/// The offsets of a queue's fields, which only a process that maps the ring needs, and the address
/// for `NO_MMAP`.
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

    /// The submission queue's entries and the parameters of the driver's rings, by default and
    /// without optional features.
    pub(crate) fn of_the_driver() -> (u32, Params) {
        let (sq_entries, cq_entries) = cringle::Builder::new().queue_entries();
        let flags = SETUP_CQSIZE | SETUP_CLAMP;
        (sq_entries, Params { flags, cq_entries, ..Params::default() })
    }
}

pub(crate) fn setup(entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
    assert!(
        params.flags & SETUP_NO_MMAP == 0 || params.cq_off.user_addr != 0,
        "NO_MMAP needs the address of the caller's memory"
    );
    // SAFETY: the call reads and writes only `params`, which outlives it. With NO_MMAP the kernel
    // also uses the caller's memory, which the one such caller (`features::probes::no_mmap`) unmaps
    // after it has closed the ring.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut *params) };
    let fd = result(fd)?;
    // SAFETY: the descriptor is newly opened, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How often, and after which pauses, to retry when locked memory is short: half a second in total.
const FREEING_ROUNDS: u32 = 100;
const FREEING_PAUSE: Duration = Duration::from_millis(5);

/// Creates a ring, and retries for a while if locked memory is short, as the driver does: the
/// kernel releases the locked memory of a closed ring with a delay.
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
    // SAFETY: the call submits nothing, waits for nothing and passes no memory.
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
/// `argument` points to `count` values of the type that this opcode reads or writes, and they live
/// as long as the kernel uses them.
pub(crate) unsafe fn register<T>(
    ring: RawFd,
    opcode: u32,
    argument: *mut T,
    count: u32,
) -> io::Result<i32> {
    // SAFETY: the caller keeps this function's contract.
    result(unsafe { libc::syscall(libc::SYS_io_uring_register, ring, opcode, argument, count) })
}

fn result(code: libc::c_long) -> io::Result<i32> {
    match i32::try_from(code) {
        Ok(code) if code >= 0 => Ok(code),
        _ => Err(io::Error::last_os_error()),
    }
}
