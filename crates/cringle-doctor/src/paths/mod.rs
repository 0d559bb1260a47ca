//! Examines a path: its mount, its device, and what its file system supports.
//!
//! The probes use a temporary file without a name, which disappears with the process.

mod probes;

use cringle_report::failure::Failure;
use cringle_report::machine::read;
use cringle_report::machine::storage::Storage;
use serde::{Serialize, Serializer};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What lies under a path.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathReport {
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    #[serde(serialize_with = "as_text_if_any")]
    pub mount_point: Option<PathBuf>,
    pub filesystem: String,
    /// If the file system is in memory, which one it is.
    pub in_memory: Option<String>,
    pub device: Option<String>,
    pub model: Option<String>,
    pub scheduler: Option<String>,
    pub rotational: Option<bool>,
    /// Whether a temporary file could be created there.
    pub writable: bool,
    pub not_writable_because: Option<String>,
    pub direct: Capability,
    pub direct_alignment: Option<Alignment>,
    pub nowait_reads: Capability,
    pub nowait_writes: Capability,
    pub reflink: Capability,
    pub polled: Capability,
}

/// JSON has no bytes: what is not UTF-8 in a path is replaced.
pub(crate) fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(serializer)
}

fn as_text_if_any<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// The result of a probe.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Capability {
    #[serde(rename = "state")]
    pub support: Support,
    /// The consequence, or why the result is unknown.
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

/// The alignment that direct reads need.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Alignment {
    /// The alignment of the buffer's address.
    pub memory_bytes: Option<u64>,
    /// The alignment of offsets and lengths.
    pub offset_bytes: u64,
    /// The source: `statx` or `tried`.
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

/// Why a probe is unknown without a temporary file; `not_writable_because` has the error.
const NEEDS_A_FILE: &str = "it needs a temporary file";

/// The files that the probes use.
struct Subject {
    /// The file to read: the path itself or the temporary file.
    file: io::Result<File>,
    /// The file to write, and a second one to share its blocks.
    temporary: io::Result<(File, File)>,
}

pub(crate) fn examine(path: &Path) -> Result<PathReport, Failure> {
    let refused = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "; give an existing directory, file or block device",
            _ => "",
        };
        Failure::failed(format!("{}: cannot examine it: {error}{remedy}", path.display()))
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
            None => Err(io::Error::other("the path is not a directory, so nothing is written")),
        };
        let own = || match &temporary {
            Ok((file, _)) => file.try_clone(),
            Err(_) => Err(io::Error::other(NEEDS_A_FILE)),
        };
        let opened = || {
            let explain = |error| io::Error::other(format!("cannot open it: {error}"));
            File::open(path).map_err(explain)
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
    if direct.support != Support::Yes {
        return (direct, alignment);
    }
    let file = subject.file.as_ref().ok();
    let detail = match (storage.in_memory(), file.and_then(|f| storage.direct_writes_are_cached(f)))
    {
        (Some(memory), _) => format!("accepted, but this is {memory}"),
        (None, Some(writes)) => format!("{}, but only reads: {writes}", direct.detail),
        _ => return (direct, alignment),
    };
    (Capability::yes(detail), alignment)
}

/// Reports whether the device has queues that are polled instead of raising interrupts, which some
/// drivers create when a module parameter asks for them.
fn polled(storage: &Storage) -> Capability {
    let Some(device) = &storage.device else { return Capability::unknown("no device is known") };
    let module = match device.name.get(..2) {
        Some("nv") => "nvme",
        Some("vd") => "virtio_blk",
        _ => "",
    };
    match device.polled {
        Some(true) => Capability::yes("the device has poll queues"),
        None => Capability::unknown("the kernel does not report it"),
        Some(false) if module.is_empty() => {
            Capability::no("no poll queues; NVMe devices can have them (nvme.poll_queues)")
        }
        Some(false) => {
            let now = read(format!("/sys/module/{module}/parameters/poll_queues"));
            Capability::no(without_queues(module, now.as_deref()))
        }
    }
}

/// Explains why a device has no poll queues, given the value of its driver's parameter.
fn without_queues(module: &str, asked: Option<&str>) -> String {
    match asked {
        Some(some) if some != "0" => format!(
            "{module}.poll_queues is {some}, but this device has too few queues: one must raise \
             interrupts"
        ),
        asked => format!(
            "{module}.poll_queues is {}; boot with {module}.poll_queues=N, a few per device",
            asked.unwrap_or("unknown")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_parameter_is_suggested_only_if_unset() {
        for never_asked in [None, Some("0")] {
            assert!(without_queues("nvme", never_asked).contains("boot with nvme.poll_queues=N"));
        }
        let asked = without_queues("nvme", Some("2"));
        assert!(asked.contains("is 2, but this device has too few"), "{asked}");
        assert!(!asked.contains("boot with"), "{asked}");
    }
}
