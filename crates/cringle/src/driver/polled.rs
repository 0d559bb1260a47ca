//! Which files have completions that can be looked for at the device, and the choice of their ops.
//!
//! It takes `O_DIRECT` and a device with queues to be polled. The choice is a hint: a driver without a
//! polled ring does not see it, and what the kernel will not poll it answers by `EOPNOTSUPP`.

use super::{Driver, OpSlot};
use std::io;
use std::os::fd::RawFd;

/// What `EOPNOTSUPP` means here.
pub(crate) const NOT_POLLED: i32 = -libc::EOPNOTSUPP;

impl Driver {
    /// Marks those of the ops that a ring of its own can poll for; whether there are any.
    #[inline]
    pub(crate) fn choose_polled(&mut self, slots: &mut [OpSlot]) -> bool {
        match self {
            Driver::Uring(driver) => driver.choose_polled(slots),
            _ => false,
        }
    }
}

/// The number of the device that a file is on, or that it is.
pub(crate) fn device_of(fd: RawFd) -> io::Result<u64> {
    let stat = crate::sys::fstat(fd).ok_or_else(io::Error::last_os_error)?;
    let is_device = stat.st_mode & libc::S_IFMT == libc::S_IFBLK;
    Ok(if is_device { stat.st_rdev } else { stat.st_dev })
}

/// A block device's name, and whether it has queues to be polled; `None` for what is no block device.
pub(crate) fn poll_queues(device: u64) -> Option<(String, bool)> {
    let place = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let place = std::fs::canonicalize(place).ok()?;
    // A partition has no queues; its disk is the directory above.
    let mut disks = [place.as_path(), place.parent()?].into_iter();
    let (disk, text) = disks
        .find_map(|disk| Some((disk, std::fs::read_to_string(disk.join("queue/io_poll")).ok()?)))?;
    let name = disk.file_name()?.to_string_lossy().into_owned();
    Some((name, text.trim() == "1"))
}
