//! Which files allow their completions to be polled for at the device, and which ops do.
//!
//! Polling needs `O_DIRECT` and a device with poll queues. The mark on an op is a hint: a driver
//! without a polled ring ignores it, and the kernel answers `EOPNOTSUPP` where it cannot poll.

use super::{Driver, OpSlot};
use cringle_sys::plainly;
use std::io;
use std::os::fd::RawFd;

/// The result of an op on the polled ring that the kernel cannot poll for.
pub const NOT_POLLED: i32 = -libc::EOPNOTSUPP;

impl Driver {
    /// Marks the ops that the driver's polled ring can perform. Returns whether there are any.
    #[inline]
    pub fn mark_polled(&mut self, slots: &mut [OpSlot]) -> bool {
        match self {
            Driver::Uring(driver) => driver.mark_polled(slots),
            Driver::Epoll(_) | Driver::Simulated(_) => false,
        }
    }
}

/// The number of the device that a file lies on, or of the block device that it is.
pub fn device_of(fd: RawFd) -> io::Result<u64> {
    let stat = cringle_sys::fstat(fd).ok_or_else(io::Error::last_os_error)?;
    let is_device = stat.st_mode & libc::S_IFMT == libc::S_IFBLK;
    Ok(if is_device { stat.st_rdev } else { stat.st_dev })
}

/// The name of a block device and whether it has poll queues; `None` if it is no block device.
pub fn poll_queues(device: u64) -> Option<(String, bool)> {
    plainly(|| look_up(device))
}

fn look_up(device: u64) -> Option<(String, bool)> {
    let link = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let directory = std::fs::canonicalize(link).ok()?;
    // A partition has no queues of its own; its disk is the directory above.
    let mut disks = [directory.as_path(), directory.parent()?].into_iter();
    let (disk, text) = disks
        .find_map(|disk| Some((disk, std::fs::read_to_string(disk.join("queue/io_poll")).ok()?)))?;
    let name = disk.file_name()?.to_string_lossy().into_owned();
    Some((name, text.trim() == "1"))
}
