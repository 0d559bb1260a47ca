//! Whether the completions of a file's operations can be polled for.

use cringle_driver::iopoll::{device_of, poll_queues};
use cringle_sys as sys;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The effect of [`BlockIoBuilder::iopoll`](super::BlockIoBuilder::iopoll) on a file. Its `Display`
/// text says how to make polling possible.
///
/// ```
/// use cringle::block::Polling;
///
/// // Reads through the page cache are not polled.
/// let file = cringle::fs::File::open("/proc/self/exe")?;
/// assert!(matches!(Polling::of(&file)?, Polling::Buffered));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Polling {
    /// The completions of reads and writes are polled for at this device.
    Polled(String),
    /// The file was opened without `O_DIRECT`.
    Buffered,
    /// This device has no polled queues.
    NoQueues(String),
    /// The file is not on a single block device (`tmpfs`, `btrfs`, a network file system).
    NoDevice,
}

impl Polling {
    /// Determines the effect from the file's flags and its device.
    ///
    /// ```
    /// use cringle::block::Polling;
    ///
    /// let file = cringle::fs::File::open("/proc/self/exe")?;
    /// println!("{}", Polling::of(&file)?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `fstat(2)`.
    pub fn of(file: &impl AsFd) -> io::Result<Polling> {
        let fd = file.as_fd().as_raw_fd();
        if sys::status_flags(fd) & libc::O_DIRECT == 0 {
            return Ok(Polling::Buffered);
        }
        Ok(match poll_queues(device_of(fd)?) {
            None => Polling::NoDevice,
            Some((name, true)) => Polling::Polled(name),
            Some((name, false)) => Polling::NoQueues(name),
        })
    }
}

impl fmt::Display for Polling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Polling::Polled(name) => write!(f, "completions are polled for at {name}"),
            Polling::Buffered => {
                f.write_str("completions are not polled for: open the file with O_DIRECT")
            }
            Polling::NoQueues(name) => write!(
                f,
                "{name} interrupts for each completion, because it has no queues to be polled: {} \
                 /sys/block/{name}/queue/io_poll is 1 then",
                remedy(name)
            ),
            Polling::NoDevice => f.write_str(
                "completions are not polled for: the file is not on a single block device",
            ),
        }
    }
}

fn remedy(name: &str) -> String {
    let module = match name {
        name if name.starts_with("nvme") => "nvme",
        name if name.starts_with("vd") => "virtio_blk",
        _ => {
            return "its driver does not offer them, as those of NVMe and virtio do.".to_owned();
        }
    };
    format!(
        "start the kernel with {module}.poll_queues=N on its command line, one for each processor \
         that polls; or put `options {module} poll_queues=N` into a file in /etc/modprobe.d, have \
         the initramfs rebuilt (`update-initramfs -u`, `dracut -f`), and restart."
    )
}
