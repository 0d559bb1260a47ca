//! The date and time of a report.

use std::mem::MaybeUninit;

/// Returns the current time, as `2026-11-21 19:40 UTC`.
pub(super) fn now() -> Option<String> {
    let mut now = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: `time` accepts a null pointer; `gmtime_r` reads `seconds` and writes to `now`, and
    // both outlive the call. All zeroes is a valid `tm`.
    let now = unsafe {
        let seconds = libc::time(std::ptr::null_mut());
        let result = libc::gmtime_r(&seconds, now.as_mut_ptr());
        (!result.is_null()).then(|| now.assume_init())?
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
