//! The file that a benchmark reads and writes.
//!
//! In a directory the benchmark creates a file without a name (`O_TMPFILE`), which vanishes with
//! the process, even if it is killed. It is reopened, with or without `O_DIRECT`, through
//! `/proc/self/fd`. An existing file or device is only read, unless `--destroy` is given.

use super::content;
use crate::rounds::Progress;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::storage;
use cringle_report::units;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const DEFAULT_BYTES: u64 = 1 << 30;
const CHUNK: usize = 1 << 20;

pub(crate) struct Target {
    pub(crate) file: TestFile,
    /// Usable bytes of the file, a multiple of the block size.
    pub(crate) file_bytes: u64,
    /// The path on the command line.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// The seed of the content, if the benchmark wrote it.
    pub(crate) seed: Option<u64>,
    /// The bytes by which an existing file is smaller than requested.
    pub(crate) missing_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Created by the benchmark in a directory.
    Temporary,
    File,
    BlockDevice,
}

pub(crate) struct TestFile(pub(crate) File);

impl TestFile {
    /// Opens the file again, with an open file description of its own.
    pub(crate) fn open(&self, direct: bool, write: bool) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(if direct { libc::O_DIRECT } else { 0 })
            .open(self.own_name())
    }

    /// Returns a name for this process.
    pub(crate) fn own_name(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// Returns a name for other processes (fio), valid while this process is running.
    pub(crate) fn name_for_others(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// The requirements of the command line.
#[derive(Default)]
pub(crate) struct TargetSpec {
    pub(crate) path: PathBuf,
    pub(crate) size: Option<u64>,
    pub(crate) block: u64,
    pub(crate) seed: u64,
    pub(crate) writes: bool,
    pub(crate) destroy: bool,
    /// Whether the file stays empty (a log).
    pub(crate) empty: bool,
}

impl Target {
    /// Opens or creates the file, and fills it if it creates it.
    pub(crate) fn prepare(spec: &TargetSpec, progress: &Progress) -> Result<Target, Failure> {
        let path = &spec.path;
        let metadata = fs::metadata(path).map_err(|error| missing(path, &error))?;
        must_have_offsets(path, metadata.file_type())?;
        if spec.size.is_some_and(|size| size < spec.block) {
            return Err(Failure::usage("--size is less than one --block"));
        }
        let target = if metadata.is_dir() {
            Target::temporary(spec)?
        } else {
            Target::existing(spec, metadata.file_type().is_block_device())?
        };
        target.must_hold(spec.block)?;
        if target.seed.is_some() && !spec.empty {
            target.fill(progress)?;
        }
        Ok(target)
    }

    /// Fails if the file is smaller than a block.
    fn must_hold(&self, block: u64) -> Result<(), Failure> {
        if self.file_bytes >= block {
            return Ok(());
        }
        fail(format!(
            "{}: too small: it holds {}, less than one block of {}",
            self.path.display(),
            units::size(self.file_bytes),
            units::size(block)
        ))
    }

    fn temporary(spec: &TargetSpec) -> Result<Target, Failure> {
        let path = spec.path.display();
        let file = tempfile::tempfile_in(&spec.path)
            .map_err(Failure::because(format_args!("{path}: cannot create a temporary file")))?;
        let total = spec.size.unwrap_or(DEFAULT_BYTES);
        if !spec.empty {
            require_space(&spec.path, total, "the test file needs", "choose a smaller --size")?;
        }
        Ok(Target {
            file: TestFile(file),
            file_bytes: total / spec.block * spec.block,
            path: spec.path.clone(),
            kind: Kind::Temporary,
            seed: Some(spec.seed),
            missing_bytes: 0,
        })
    }

    fn existing(spec: &TargetSpec, device: bool) -> Result<Target, Failure> {
        let path = spec.path.display();
        if spec.writes && !spec.destroy {
            return Err(Failure::usage(format!(
                "{path}: exists, and this benchmark would overwrite it; give a directory (for a \
                 temporary file), or --destroy"
            )));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(spec.writes)
            .open(&spec.path)
            .map_err(Failure::because(format_args!("{path}: cannot open")))?;
        let present = if device { end_of(&file)? } else { file.metadata()?.len() };
        let requested = match spec.size {
            None if device && spec.writes => DEFAULT_BYTES,
            None => present,
            Some(size) => size,
        };
        Ok(Target {
            file: TestFile(file),
            file_bytes: requested.min(present) / spec.block * spec.block,
            path: spec.path.clone(),
            kind: if device { Kind::BlockDevice } else { Kind::File },
            seed: spec.writes.then_some(spec.seed),
            missing_bytes: requested.saturating_sub(present),
        })
    }

    /// Writes the content that reads expect, and waits until it is on the device.
    pub(crate) fn fill(&self, progress: &Progress) -> Result<(), Failure> {
        let Some(seed) = self.seed else { return Ok(()) };
        let bar = progress.bytes(self.file_bytes, "writing the test file");
        let mut chunk = vec![0u8; CHUNK];
        let mut offset = 0;
        while offset < self.file_bytes {
            let part = CHUNK.min((self.file_bytes - offset) as usize);
            content::fill(&mut chunk[..part], seed, 0, offset);
            self.file.0.write_all_at(&chunk[..part], offset).map_err(|e| self.not_written(&e))?;
            offset += part as u64;
            bar.inc(part as u64);
        }
        self.file.0.sync_data().map_err(|error| self.not_written(&error))?;
        bar.finish_and_clear();
        Ok(())
    }

    fn not_written(&self, error: &io::Error) -> Failure {
        let total = units::size(self.file_bytes);
        let path = self.path.display();
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull => "; choose a smaller --size",
            _ => "",
        };
        Failure::failed(format!("{path}: cannot write {total} of test data: {error}{remedy}"))
    }
}

fn missing(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    let text = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{shown}: does not exist; give a directory (for a temporary file), a file or a block \
             device"
        ),
        _ => format!("{shown}: cannot examine: {error}"),
    };
    Failure::failed(text)
}

/// Fails if a file system has too little space. This is checked before anything is written, because
/// a full disk disturbs every program on the machine.
pub(crate) fn require_space(
    directory: &Path,
    bytes: u64,
    what_needs: &str,
    remedy: &str,
) -> Result<(), Failure> {
    let shown = directory.display();
    let free = storage::free_bytes(directory)
        .map_err(Failure::because(format_args!("{shown}: cannot examine")))?;
    if bytes <= free {
        return Ok(());
    }
    fail(format!(
        "{shown}: too little space: {} are free and {what_needs} {}; {remedy}",
        units::size(free),
        units::size(bytes)
    ))
}

/// Refuses FIFOs, sockets and character devices: they cannot be read at an offset, and an open may
/// block for ever.
pub fn must_have_offsets(path: &Path, kind: fs::FileType) -> Result<(), Failure> {
    let name = match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() => "a character device",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{}: is {name}; give a directory, a file or a block device",
        path.display()
    )))
}

/// Returns the offset of the end, by seeking: the metadata of a block device reports 0.
pub(crate) fn end_of(mut file: &File) -> io::Result<u64> {
    use std::io::Seek;
    file.seek(io::SeekFrom::End(0))
}
