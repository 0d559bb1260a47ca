//! The words for an `errno`: what it means here, and what to do.

use std::ffi::c_int;
use std::io;

/// Returns the meaning and the remedy of a result.
pub(crate) fn of_result(result: i64) -> String {
    if result == i64::from(crate::abi::CRINGLE_PENDING) {
        return "pending: the submission has not ended".into();
    }
    let errno = match c_int::try_from(result) {
        Ok(0..) => return format!("success: {result}"),
        Ok(errno) if errno > -4096 => -errno,
        _ if result > 0 => return format!("success: {result}"),
        _ => return format!("{result} is no result of this library"),
    };
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    match remedy(errno) {
        Some(remedy) => format!("{text}: {remedy}"),
        None => text.into(),
    }
}

fn remedy(errno: c_int) -> Option<&'static str> {
    Some(match errno {
        libc::EBADF => {
            "the engine is closed, or the descriptor is not open for this operation; use a number \
             that is open, and close it after the submission has ended"
        }
        libc::ESRCH => {
            "the engine was opened before fork, or the submission has ended; after fork, open an \
             engine in the child"
        }
        libc::EINVAL => {
            "an argument is out of range, or a direct read or write is not aligned; \
             cringle_last_error names it for a call, and cringle_op_error for a result"
        }
        libc::EFAULT => {
            "the buffer is not memory of the process, or not within the registered buffer; check \
             `buf` and `len`"
        }
        libc::EDEADLK => {
            "a callback cannot wait for its own engine; use cringle_submit_cb there, and close the \
             engine on another thread"
        }
        libc::E2BIG => "split the submission, or install a newer library",
        libc::ECANCELED => "the submission was cancelled before this operation was performed",
        libc::ENOMEM => "memory or locked memory is short; raise `ulimit -l` or free memory",
        libc::EMFILE => "close descriptors, or raise `ulimit -n`",
        libc::ENFILE => "the system has no free descriptors; raise the sysctl fs.file-max",
        libc::EAGAIN => "no thread could be started; raise `ulimit -u`",
        libc::ESPIPE => {
            "the file has no offsets: a pipe, a socket or a terminal; use read or write"
        }
        libc::EPERM => "the kernel or a filter refuses it; `cringle doctor` names what does",
        libc::EFBIG => {
            "the file would exceed the limit of file sizes; raise RLIMIT_FSIZE (`ulimit -f`), or \
             use a file system with larger files"
        }
        libc::ENOSPC => "the file system is full; free space",
        libc::EIO => "the device or the file system failed; see the kernel's log",
        libc::EISDIR => "the descriptor is a directory; open a file",
        libc::EOPNOTSUPP | libc::ENOSYS => {
            "the file system, the kernel or the driver does not support the operation"
        }
        libc::ENOTRECOVERABLE => {
            "a bug of the library, whose message is on standard error; report it. Operations may \
             have been performed"
        }
        _ => return None,
    })
}
