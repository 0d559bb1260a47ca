//! The status of files, and of the descriptors with which the process was started.

use cringle_command::startup;
use rustix::fs::{self, AtFlags, Stat, Statx, StatxFlags};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

fn at_flags(follow: bool) -> AtFlags {
    if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

/// Returns the status of a name. Fails for `/dev/stdin` and the like if the process was started
/// without that descriptor.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &CStr, follow: bool) -> io::Result<Stat> {
    let stat = fs::statat(dir, name, at_flags(follow))?;
    closed_descriptor(dir, name, &stat).map_or(Ok(stat), |fd| Err(closed_error(fd)))
}

/// Returns the descriptor of 0 to 2 that this name stands for, if it was closed at the start. (A
/// [socket](startup::replace_closed) is in its place.)
fn closed_descriptor(dir: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> Option<RawFd> {
    let mut closed = startup::closed().peekable();
    closed.peek()?;
    let is_socket = |text: CString| text.to_bytes().starts_with(b"socket:[");
    let end = match kind(stat) {
        libc::S_IFSOCK => id(stat),
        // The name itself in `/proc/self/fd`, which leads there without a path.
        libc::S_IFLNK if fs::readlinkat(dir, name, Vec::new()).is_ok_and(is_socket) => {
            id(&fs::statat(dir, name, AtFlags::empty()).ok()?)
        }
        _ => return None,
    };
    closed.find(|fd| id_of_number(*fd) == Some(end))
}

fn closed_error(fd: RawFd) -> io::Error {
    let name = ["input", "output", "error"][fd as usize];
    io::Error::other(format!("standard {name} is closed"))
}

/// Reads from standard input.
pub(crate) fn read_standard_input(buffer: &mut [u8]) -> io::Result<usize> {
    match startup::is_closed(libc::STDIN_FILENO) {
        true => Err(closed_error(libc::STDIN_FILENO)),
        false => super::read(io::stdin().as_fd(), buffer),
    }
}

pub(crate) fn stat_of(fd: impl AsFd) -> io::Result<Stat> {
    Ok(fs::fstat(fd)?)
}

/// Of `linux/stat.h`, since Linux 6.8: a number that no later mount gets.
pub(crate) const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Returns the status of a name with the number of its mount.
pub(crate) fn statx_at(dir: BorrowedFd<'_>, name: &CStr, follow: bool) -> io::Result<Statx> {
    Ok(fs::statx(dir, name, at_flags(follow), WITH_MOUNT)?)
}

/// Returns the same of an open file.
pub(crate) fn statx_of(fd: BorrowedFd<'_>) -> io::Result<Statx> {
    Ok(fs::statx(fd, c"", AtFlags::EMPTY_PATH, WITH_MOUNT)?)
}

const WITH_MOUNT: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID).union(MNT_ID_UNIQUE);

/// Returns the identity of the file that has this number now, if any.
///
/// It is a raw call, because another thread may close the descriptor, so that it cannot be
/// borrowed.
pub(crate) fn id_of_number(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: all-zero bytes are a valid value of this struct of integers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` outlives the call. A number that is not open is an error of the call.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some((stat.st_dev, stat.st_ino))
}

pub(crate) fn kind(stat: &Stat) -> u32 {
    stat.st_mode & libc::S_IFMT
}

pub(crate) fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Returns whether both files exist and are the same one.
pub(crate) fn same(one: io::Result<Stat>, other: io::Result<Stat>) -> bool {
    matches!((one, other), (Ok(one), Ok(other)) if id(&one) == id(&other))
}
