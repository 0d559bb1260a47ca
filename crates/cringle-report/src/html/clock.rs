//! The time of day, for who reads a report later.

use std::mem::MaybeUninit;

/// `2026-11-21 19:40 UTC`.
pub(super) fn now() -> Option<String> {
    let mut now = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: `time` may be given no place for its result; `gmtime_r` reads the one number and writes the
    // one `tm`, both of which outlive the call; all zeroes is a valid `tm`.
    let now = unsafe {
        let seconds = libc::time(std::ptr::null_mut());
        let given = libc::gmtime_r(&seconds, now.as_mut_ptr());
        (!given.is_null()).then(|| now.assume_init())?
    };
    Some(format!(
        "{}-{:02}-{:02} {:02}:{:02} UTC",
        now.tm_year + 1900,
        now.tm_mon + 1,
        now.tm_mday,
        now.tm_hour,
        now.tm_min
    ))
}
