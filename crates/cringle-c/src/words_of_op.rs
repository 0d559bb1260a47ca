//! The words for the result of an operation: what was asked of which file, and why it failed.

use crate::abi::*;
use crate::engine::Engine;
use crate::words;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};

/// Describes an operation and its result.
pub(crate) fn of_op(engine: Option<&Engine>, op: &cringle_op, result: i64) -> String {
    let what = match op.kind {
        CRINGLE_READ | CRINGLE_READ_FULL => {
            format!("read of {} bytes at offset {}", op.len, op.offset)
        }
        CRINGLE_WRITE | CRINGLE_WRITE_FULL => {
            format!("write of {} bytes at offset {}", op.len, op.offset)
        }
        CRINGLE_FSYNC => "fsync".into(),
        CRINGLE_FDATASYNC => "fdatasync".into(),
        other => return format!("operation of kind {other}: no kind that this version knows"),
    };
    let is_registered = op.flags & CRINGLE_OP_REGISTERED_FILE != 0;
    let name = if is_registered { "registered file" } else { "descriptor" };
    let why = match result {
        _ if result == -i64::from(libc::EINVAL) => {
            let refused = "the kernel refuses it for this file: see its file system, or its driver";
            Some(invalid(engine, op).unwrap_or_else(|| refused.into()))
        }
        _ if is_registered && result == -i64::from(libc::EBADF) => {
            Some("no file is registered with this number, or it is not open for this".into())
        }
        _ => None,
    };
    let why = why.unwrap_or_else(|| words::of_result(result));
    format!("{what}, {name} {}: {why}", op.fd)
}

/// Returns what is wrong with the arguments of an operation.
fn invalid(engine: Option<&Engine>, op: &cringle_op) -> Option<String> {
    let known = CRINGLE_OP_REGISTERED_FILE | CRINGLE_OP_REGISTERED_BUFFER;
    if op.flags & !known != 0 {
        return Some(format!("flags {:#x} has bits that this version does not know", op.flags));
    }
    if op.reserved != [0; 2] {
        return Some("`reserved` is not 0: set the whole structure to 0 first".into());
    }
    let has_buffer = op.flags & CRINGLE_OP_REGISTERED_BUFFER != 0;
    let is_sync = matches!(op.kind, CRINGLE_FSYNC | CRINGLE_FDATASYNC);
    if has_buffer && is_sync {
        return Some("a sync has no buffer: clear CRINGLE_OP_REGISTERED_BUFFER".into());
    }
    if !has_buffer && op.buffer != 0 {
        return Some("`buffer` is not 0, but CRINGLE_OP_REGISTERED_BUFFER is not set".into());
    }
    if is_sync {
        return Some("the file does not support a sync: a special file, or one below /proc".into());
    }
    if op.offset > i64::MAX as u64 {
        return Some("the offset is larger than 2⁶³ - 1".into());
    }
    if op.offset.saturating_add(op.len) > i64::MAX as u64 {
        return Some("offset + length is larger than 2⁶³ - 1".into());
    }
    match op.flags & CRINGLE_OP_REGISTERED_FILE {
        0 => misaligned(op.fd, op),
        _ => misaligned(engine?.registered.tables().files.get(op.fd)?.as_raw_fd(), op),
    }
}

/// Returns which parts of a direct read or write are not aligned.
fn misaligned(fd: RawFd, op: &cringle_op) -> Option<String> {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_DIRECT == 0 {
        return None;
    }
    let values = [
        (format!("the buffer's address {:#x}", op.buf.addr()), op.buf.addr() as u64),
        (format!("the length {}", op.len), op.len),
        (format!("the offset {}", op.offset), op.offset),
    ];
    let Some((memory, disk)) = alignment(fd) else {
        let values = values.map(|(words, _)| words).join(", ");
        return Some(format!(
            "it is direct, and the kernel does not report which alignment the file needs, usually \
             512 or 4096 bytes: {values} must be multiples; align them, or open the file without \
             O_DIRECT"
        ));
    };
    let wrong = |((words, value), unit): ((String, u64), u32)| {
        let is_aligned = value.is_multiple_of(u64::from(unit));
        (!is_aligned).then(|| format!("{words} is not a multiple of {unit}"))
    };
    let parts = values.into_iter().zip([memory, disk, disk]);
    let wrong: Vec<String> = parts.filter_map(wrong).collect();
    let list = || format!("{}; align it, or open the file without O_DIRECT", wrong.join(", "));
    (!wrong.is_empty()).then(list)
}

/// Returns the alignment of direct I/O of memory, and of lengths and offsets, in bytes; `None`
/// where the kernel does not report it.
fn alignment(fd: RawFd) -> Option<(u32, u32)> {
    let mut out = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the structure is borrowed for the call; all zero is valid.
    let out = unsafe {
        let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
        libc::statx(fd, c"".as_ptr(), flags, mask, out.as_mut_ptr());
        out.assume_init()
    };
    let (memory, disk) = (out.stx_dio_mem_align.max(1), out.stx_dio_offset_align);
    (disk > 0).then_some((memory, disk))
}
