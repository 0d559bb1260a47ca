//! What a path gives: its mount, its device, and what its file system lets be done with a file.
//!
//! The file is a temporary one without a name, so that it is gone when the process is.

mod probes;

use super::kernel::read;
use cringle_report::failure::Failure;
use cringle_report::machine::storage::Storage;
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathReport {
    pub path: PathBuf,
    pub mount_point: Option<PathBuf>,
    pub filesystem: String,
    /// Why it is memory and no disk.
    pub in_memory: Option<String>,
    pub device: Option<String>,
    pub model: Option<String>,
    pub scheduler: Option<String>,
    pub rotational: Option<bool>,
    /// Whether a temporary file could be made there, and why not.
    pub writable: bool,
    pub not_writable_because: Option<String>,
    pub direct: Capability,
    pub direct_alignment: Option<Alignment>,
    pub nowait_reads: Capability,
    pub nowait_writes: Capability,
    pub reflink: Capability,
    pub polled: Capability,
}

/// Whether something can be done, by having done it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Capability {
    #[serde(rename = "state")]
    pub support: Support,
    /// What that means, or why it is unknown.
    #[serde(rename = "words")]
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Support {
    Yes,
    No,
    Unknown,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Alignment {
    /// Of the buffer.
    pub memory_bytes: Option<u64>,
    pub offset_bytes: u64,
    /// `statx`, or `tried`.
    pub by: &'static str,
}

impl Capability {
    fn yes(detail: impl Into<String>) -> Capability {
        Capability { support: Support::Yes, detail: detail.into() }
    }

    fn no(detail: impl Into<String>) -> Capability {
        Capability { support: Support::No, detail: detail.into() }
    }

    fn unknown(detail: impl Into<String>) -> Capability {
        Capability { support: Support::Unknown, detail: detail.into() }
    }
}

/// Of what is unknown where none can be made; why not is told beside it.
const NEEDS_A_FILE: &str = "it needs a temporary file";

/// What is tried on.
struct Subject {
    /// To read from: the path itself, or the temporary file.
    file: io::Result<File>,
    /// To write to, and another to share its blocks.
    temporary: io::Result<(File, File)>,
}

pub(crate) fn examine(path: &Path) -> Result<PathReport, Failure> {
    let refused = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "; give a directory, a file or a block device that is there",
            _ => "",
        };
        Failure::failed(format!("cannot look at {}: {error}{remedy}", path.display()))
    };
    let metadata = fs::metadata(path).map_err(refused)?;
    cringle_bench::target::must_have_offsets(path, metadata.file_type())?;
    let storage = Storage::under(path).map_err(refused)?;
    let kind = metadata.file_type();
    let directory = if metadata.is_dir() { Some(path) } else { None };
    let subject = Subject::of(path, directory, metadata.is_file() || kind.is_block_device());
    Ok(described(path, &storage, &subject))
}

impl Subject {
    fn of(path: &Path, directory: Option<&Path>, readable: bool) -> Subject {
        let temporary = match directory {
            Some(directory) => probes::temporary(directory),
            None => Err(io::Error::other("it is no directory, so nothing is written")),
        };
        let own = || match &temporary {
            Ok((file, _)) => file.try_clone(),
            Err(_) => Err(io::Error::other(NEEDS_A_FILE)),
        };
        let opened = || {
            let named = |error| io::Error::other(format!("it cannot be opened: {error}"));
            File::open(path).map_err(named)
        };
        let file = if readable { opened() } else { own() };
        Subject { file, temporary }
    }
}

fn described(path: &Path, storage: &Storage, subject: &Subject) -> PathReport {
    let device = storage.device.as_ref();
    let why = subject.temporary.as_ref().err().map(io::Error::to_string);
    let (direct, direct_alignment) = direct(storage, subject);
    let written = |attempt: fn(&File, &File) -> Capability| match &subject.temporary {
        Ok((file, other)) => attempt(file, other),
        Err(_) => Capability::unknown(NEEDS_A_FILE),
    };
    PathReport {
        path: path.into(),
        mount_point: storage.mount_point.clone(),
        filesystem: storage.filesystem.clone(),
        in_memory: storage.in_memory(),
        device: device.map(|device| device.name.clone()),
        model: device.and_then(|device| device.model.clone()),
        scheduler: device.and_then(|device| device.scheduler.clone()),
        rotational: device.and_then(|device| device.rotational),
        writable: why.is_none(),
        not_writable_because: why,
        direct,
        direct_alignment,
        nowait_reads: readable(subject, probes::nowait_read),
        nowait_writes: written(|file, _| probes::nowait_write(file)),
        reflink: written(probes::reflink),
        polled: polled(storage),
    }
}

fn readable(subject: &Subject, attempt: impl FnOnce(&File) -> Capability) -> Capability {
    match &subject.file {
        Ok(file) => attempt(file),
        Err(error) => Capability::unknown(error.to_string()),
    }
}

fn direct(storage: &Storage, subject: &Subject) -> (Capability, Option<Alignment>) {
    let mut alignment = None;
    let direct = readable(subject, |file| {
        let (tried, found) = probes::direct(file);
        alignment = found;
        tried
    });
    match (storage.in_memory(), direct.support) {
        (Some(memory), Support::Yes) => {
            (Capability::yes(format!("accepted, but this is {memory}")), alignment)
        }
        _ => (direct, alignment),
    }
}

/// Queues that are polled instead of interrupting: some drivers make them, when they are asked to.
fn polled(storage: &Storage) -> Capability {
    let Some(device) = &storage.device else { return Capability::unknown("no device is known") };
    let module = match device.name.get(..2) {
        Some("nv") => "nvme",
        Some("vd") => "virtio_blk",
        _ => "",
    };
    match device.polled {
        Some(true) => Capability::yes("the device has poll queues"),
        None => Capability::unknown("the kernel does not say"),
        Some(false) if module.is_empty() => {
            Capability::no("no poll queues; NVMe devices can have them (nvme.poll_queues)")
        }
        Some(false) => {
            let now = read(format!("/sys/module/{module}/parameters/poll_queues"));
            Capability::no(without_queues(module, now.as_deref()))
        }
    }
}

/// Why there are none though the driver could make them, by what it was asked for.
fn without_queues(module: &str, asked: Option<&str>) -> String {
    match asked {
        Some(some) if some != "0" => format!(
            "{module}.poll_queues is {some}, but this device has too few queues: one has to \
             interrupt"
        ),
        asked => format!(
            "{module}.poll_queues is {}; boot with {module}.poll_queues=N, a few for each device",
            asked.unwrap_or("unknown")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_were_asked_for_are_not_to_be_asked_for_again() {
        for never_asked in [None, Some("0")] {
            assert!(without_queues("nvme", never_asked).contains("boot with nvme.poll_queues=N"));
        }
        let asked = without_queues("nvme", Some("2"));
        assert!(asked.contains("is 2, but this device has too few"), "{asked}");
        assert!(!asked.contains("boot with"), "{asked}");
    }
}
