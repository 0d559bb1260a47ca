//! The three system calls of io_uring, without a library, to see whether and how the kernel answers
//! them.

use cringle_report::machine::cache::page_bytes;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) const SETUP_CQSIZE: u32 = 1 << 3;
pub(crate) const SETUP_CLAMP: u32 = 1 << 4;
pub(crate) const SETUP_NO_MMAP: u32 = 1 << 14;
pub(crate) const SETUP_NO_SQARRAY: u32 = 1 << 16;

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

    /// The parameters that the kernel would return for a ring of the driver's size.
    pub(crate) fn expected() -> Params {
        let (sq_entries, cq_entries) = cringle::Builder::new().queue_entries();
        let flags = SETUP_CQSIZE | SETUP_CLAMP | SETUP_NO_SQARRAY;
        let (sq_entries, cq_entries) =
            (sq_entries.next_power_of_two(), cq_entries.next_power_of_two());
        let mut params = Params { sq_entries, cq_entries, flags, ..Params::default() };
        params.cq_off.fields[CQES] = 64;
        params
    }

    /// The size of a ring with these parameters, which the kernel has returned: two mappings of
    /// whole pages. One has the completion queue and, after it, the array of indexes if there is
    /// one; the other has the entries of the submission queue.
    pub(crate) fn ring_bytes(&self) -> u64 {
        const CQE_BYTES: u64 = 16;
        const SQE_BYTES: u64 = 64;
        const INDEX_BYTES: u64 = 4;
        let (sq_entries, cq_entries) = (u64::from(self.sq_entries), u64::from(self.cq_entries));
        let queues = u64::from(self.cq_off.fields[CQES]) + cq_entries * CQE_BYTES;
        let indexes = match self.flags & SETUP_NO_SQARRAY {
            0 => u64::from(self.sq_off.fields[INDEXES]) + sq_entries * INDEX_BYTES,
            _ => 0,
        };
        let in_pages = |bytes: u64| bytes.next_multiple_of(page_bytes());
        in_pages(queues.max(indexes)) + in_pages(sq_entries * SQE_BYTES)
    }
}

/// The places of two offsets: of the completions, and of the indexes of submissions.
const CQES: usize = 5;
const INDEXES: usize = 6;

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
pub(crate) fn setup_when_freed(entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
    let mut rounds = 0;
    loop {
        match setup(entries, params) {
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && rounds < FREEING_ROUNDS => {
                rounds += 1;
                std::thread::sleep(FREEING_PAUSE);
            }
            result => return result,
        }
    }
}

/// Creates a ring of the driver's size by this function, and returns it with its parameters.
pub(crate) fn setup_of_the_driver(
    setup: fn(u32, &mut Params) -> io::Result<OwnedFd>,
) -> io::Result<(OwnedFd, Params)> {
    let (sq_entries, cq_entries) = cringle::Builder::new().queue_entries();
    let with = |feature| {
        let flags = SETUP_CQSIZE | SETUP_CLAMP | feature;
        let mut params = Params { flags, cq_entries, ..Params::default() };
        setup(sq_entries, &mut params).map(|ring| (ring, params))
    };
    match with(SETUP_NO_SQARRAY) {
        // Before Linux 6.6.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => with(0),
        result => result,
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
