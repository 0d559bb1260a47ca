//! Errors of ring set-up: the probable cause, and the remedy.

use cringle_sys as sys;
use std::io;
use std::path::Path;

/// Adds the probable cause and the remedy to an error of ring set-up.
pub(super) fn explain(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "the kernel has no io_uring, or a seccomp filter hides it: use Linux 6.1 or newer, and \
             allow io_uring_setup, io_uring_enter and io_uring_register"
                .to_owned()
        }
        Some(libc::EPERM | libc::EACCES) => {
            let by = denied_by(super::seccomp_probe::is_filtered(), &Switch::read());
            format!("io_uring is denied: by {by}")
        }
        Some(libc::ENOMEM) => "there is no memory for a ring, or not enough of it may be \
             locked (`cringle doctor` prints which): raise RLIMIT_MEMLOCK (`ulimit -l`), or ask \
             for fewer workers or a smaller Builder::in_flight_limit"
            .to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => {
            "no file descriptor is left for a ring: raise RLIMIT_NOFILE (`ulimit -n`)".to_owned()
        }
        Some(libc::EINVAL) => "the kernel refuses these ring sizes: Builder::ring_entries is at \
             most 32768 and Builder::in_flight_limit at most 65535"
            .to_owned(),
        _ => return error,
    };
    let text = format!("cannot make an io_uring: {error}; {remedy}");
    sys::explained(error, text)
}

/// The sysctl `kernel.io_uring_disabled`.
#[derive(Debug, PartialEq)]
enum Switch {
    /// It is 0, or this kernel has none (before Linux 6.6).
    Allows,
    /// It has this value; at 1, it denies io_uring to unprivileged processes only.
    Denies(String),
    Unknown,
}

impl Switch {
    fn read() -> Switch {
        let settings = Path::new("/proc/sys/kernel");
        match std::fs::read_to_string(settings.join("io_uring_disabled")) {
            Ok(text) if text.trim() == "0" => Switch::Allows,
            Ok(text) => Switch::Denies(text.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && settings.exists() => {
                Switch::Allows
            }
            Err(_) => Switch::Unknown,
        }
    }
}

fn denied_by(is_filtered: bool, switch: &Switch) -> String {
    let filter = "a seccomp filter (Docker's default profile: run with one that allows the three \
                  io_uring calls)";
    let sysctl = match switch {
        Switch::Allows => None,
        Switch::Denies(value) => Some(value.as_str()),
        Switch::Unknown => Some("unknown"),
    };
    let sysctl =
        sysctl.map(|here| format!("`sysctl kernel.io_uring_disabled` (here: {here}; 0 allows it)"));
    match (is_filtered, sysctl) {
        (true, Some(sysctl)) => format!("{filter} or by {sysctl}"),
        (true, None) => filter.to_owned(),
        (false, Some(sysctl)) => sysctl,
        (false, None) => "a security module, as there is neither a seccomp filter nor \
                          `sysctl kernel.io_uring_disabled`"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_only_possible_causes() {
        let off = Switch::Denies("2".into());
        let names = |is_filtered, switch| {
            let text = denied_by(is_filtered, switch);
            ["Docker", "(here: 2; 0 allows it)", "here: unknown", "security module"]
                .map(|words| text.contains(words))
        };
        assert_eq!(names(true, &Switch::Allows), [true, false, false, false]);
        assert_eq!(names(true, &off), [true, true, false, false]);
        assert_eq!(names(true, &Switch::Unknown), [true, false, true, false]);
        assert_eq!(names(false, &off), [false, true, false, false]);
        assert_eq!(names(false, &Switch::Unknown), [false, false, true, false]);
        assert_eq!(names(false, &Switch::Allows), [false, false, false, true]);
    }
}
