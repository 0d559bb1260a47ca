//! Raw ring entries: any opcode, filled in by the caller. (Feature `raw`.)
//!
//! ```
//! use cringle::ring::{self, opcode};
//!
//! cringle::run(|| {
//!     // SAFETY: a no-op has no pointers.
//!     let result = unsafe { ring::submit(&opcode::Nop::new().build()) };
//!     assert_eq!(result.unwrap(), 0);
//! });
//! ```

mod bare;

use crate::fiber::op::perform;
use cringle_core::here::{Driver, driver};
use cringle_core::worker::Current;
use cringle_driver::Op;
use std::io;

pub use bare::BareRing;
pub use io_uring::{opcode, squeue, types};

/// `IO_DRAIN`, `IO_LINK`, `IO_HARDLINK`, `BUFFER_SELECT` and `CQE_SKIP_SUCCESS`: they would break
/// the rule that each entry has exactly one completion for its own fiber (**I5**).
const REFUSED_FLAGS: u8 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6;

/// Submits an entry that the caller has filled in to this worker's ring, waits for its completion,
/// and returns the result. Only the calling fiber waits. The entry's `user_data` is replaced.
///
/// ```
/// use cringle::ring::{self, opcode};
///
/// cringle::run(|| {
///     // SAFETY: a no-op has no pointers.
///     let result = unsafe { ring::submit(&opcode::Nop::new().build()) };
///     assert_eq!(result.unwrap(), 0);
/// });
/// ```
///
/// # Safety
///
/// The memory that the entry points to stays valid until this call returns, and may be written as
/// the opcode documents. A descriptor in the entry stays open. The operation has exactly one
/// completion: it is not multishot.
///
/// # Errors
///
/// The operation's own; `PermissionDenied` if the runtime
/// [restricts its rings](https://docs.rs/cringle/latest/cringle/struct.Builder.html#method.restrict_rings)
/// and has no op of this kind; `Unsupported` outside of a fiber and if the worker has no ring;
/// `InvalidInput` for an entry with one of the flags `IO_DRAIN`, `IO_LINK`, `IO_HARDLINK`,
/// `BUFFER_SELECT` and `CQE_SKIP_SUCCESS`, or one that is recognised as multishot;
/// [`Cancelled`](cringle_core::cancelled::Cancelled) if the fiber is cancelled.
///
/// # Cancellation
///
/// The operation is cancelled in the kernel, and the call waits for its completion.
pub unsafe fn submit(entry: &squeue::Entry) -> io::Result<usize> {
    let Some(current) = Current::get() else {
        let text =
            "a raw entry needs the ring of a worker: call ring::submit inside of cringle::run";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    };
    let parts = Parts::of(entry);
    if parts.flags & REFUSED_FLAGS != 0 {
        let text = "links, drains, skipped completions and buffer selection cannot be used with \
                    ring::submit: one entry has one completion";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if parts.is_multishot() {
        let text = "multishot entries cannot be used with ring::submit: one entry has one result";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if let Driver::Epoll(why) = driver() {
        let text = format!("a raw entry needs the ring of a worker, which has none: {why}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    perform(current, Op::Raw(entry))
}

/// The fields of an entry that matter here, which are private in the `io-uring` crate.
struct Parts {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    len: u32,
}

impl Parts {
    fn of(entry: &squeue::Entry) -> Parts {
        // SAFETY: the entry is borrowed. It is a `struct io_uring_sqe`, 64 bytes of plain data, as
        // the assertion at the end of the file checks.
        let bytes: [u8; 64] = unsafe { std::ptr::from_ref(entry).cast::<[u8; 64]>().read() };
        Parts {
            opcode: bytes[0],
            flags: bytes[1],
            ioprio: u16::from_ne_bytes([bytes[2], bytes[3]]),
            len: u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]),
        }
    }

    fn is_multishot(&self) -> bool {
        const RECV_MULTISHOT: u16 = 1 << 1;
        const ACCEPT_MULTISHOT: u16 = 1;
        const POLL_ADD_MULTI: u32 = 1;
        const READ_MULTISHOT: u8 = 49;
        match self.opcode {
            opcode::Recv::CODE | opcode::RecvMsg::CODE => self.ioprio & RECV_MULTISHOT != 0,
            opcode::Accept::CODE => self.ioprio & ACCEPT_MULTISHOT != 0,
            opcode::PollAdd::CODE => self.len & POLL_ADD_MULTI != 0,
            READ_MULTISHOT => true,
            _ => false,
        }
    }
}

const _: () = assert!(size_of::<squeue::Entry>() == 64);
