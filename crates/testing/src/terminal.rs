//! Pseudoterminals for tests.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Creates a terminal. Returns its two ends, the test's first.
pub fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut::<libc::c_char>();
    // SAFETY: the call writes two new descriptors, which have no other owner. The null pointers
    // request no name and the default settings.
    unsafe {
        assert_eq!(libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()), 0);
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}

/// Creates a terminal in raw mode, which passes all bytes unchanged.
pub fn raw_terminal() -> (OwnedFd, OwnedFd) {
    let (ours, theirs) = terminal();
    // SAFETY: the call changes only the structure.
    change(&theirs, |settings| unsafe { libc::cfmakeraw(settings) });
    (ours, theirs)
}

/// Sets `VMIN` and `VTIME`, which say when a read returns.
pub fn set_timing(terminal: &OwnedFd, bytes: u8, tenths: u8) {
    change(terminal, |settings| {
        (settings.c_cc[libc::VMIN], settings.c_cc[libc::VTIME]) = (bytes, tenths);
    });
}

fn change(terminal: &OwnedFd, change: impl FnOnce(&mut libc::termios)) {
    let fd = terminal.as_raw_fd();
    // SAFETY: the pointers are to a structure of this frame; all-zero is a valid value of it.
    unsafe {
        let mut settings = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(fd, &mut settings), 0);
        change(&mut settings);
        assert_eq!(libc::tcsetattr(fd, libc::TCSANOW, &settings), 0);
    }
}
