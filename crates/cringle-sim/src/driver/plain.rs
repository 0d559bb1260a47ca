//! Plain calls of a simulated run, which its driver does not perform.

use super::with_here;
use cringle_driver::simulation::PlainCalls;
use cringle_driver::{FileOp, Op};
use std::ffi::{CStr, c_char};

/// What this simulation does with them.
pub(super) static CALLS: PlainCalls = PlainCalls { note, open };

/// Notes an op that was a plain call of this thread, if the thread is in a simulated run. Returns
/// the result of the op there.
fn note(op: &Op, result: i32) -> i32 {
    let noted = || match *op {
        Op::File(FileOp::Sync { fd, .. }) if result == 0 => with_here(|core| core.sync(fd, false)),
        _ if result > 0 && op.is_write() => {
            with_here(|core| core.note_plain_write(op, result)).map(|()| result)
        }
        _ => None,
    };
    noted().unwrap_or(result)
}

/// Opens a file of the simulation, if this thread is in a simulated run: fibers that unwind must
/// not reach the machine's files there.
///
/// # Safety
///
/// In a simulated run the path is a valid C string. Elsewhere it is left to the kernel: a program
/// may pass any address to an interposed `open`.
unsafe fn open(path: *const c_char, flags: i32, mode: u32) -> Option<i32> {
    with_here(|core| {
        // SAFETY: by the contract.
        let path = unsafe { CStr::from_ptr(path) };
        core.open(path, flags, mode)
    })
}
