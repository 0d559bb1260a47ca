//! The files that a benchmark reads and writes.
//!
//! In a directory the benchmark makes its own: anonymous files (`O_TMPFILE`), so that
//! nothing is left behind however the process ends, killed included. They are opened anew,
//! with `O_DIRECT` or without, through `/proc/self/fd`. A file or a device that exists is
//! only read, unless `--destroy` gave it up.

use super::content;
use crate::progress::Progress;
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

pub struct Target {
    pub files: Vec<TestFile>,
    /// Usable bytes of each file.
    pub file_bytes: u64,
    /// The path that was asked for.
    pub path: PathBuf,
    pub kind: Kind,
    /// The seed of the content, when we wrote it.
    pub seed: Option<u64>,
    /// Bytes that were asked for and are not there.
    pub missing_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ours, in a directory.
    Temporary,
    File,
    BlockDevice,
}

pub struct TestFile(pub File);

impl TestFile {
    /// A new open file description of the same file.
    pub fn open(&self, direct: bool, write: bool) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(if direct { libc::O_DIRECT } else { 0 })
            .open(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// A name under which another process (fio) finds it while we live.
    pub fn name_for_others(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// What the command line says about the target.
pub struct TargetSpec {
    pub path: PathBuf,
    /// In all files together.
    pub size: Option<u64>,
    pub files: usize,
    pub block: u64,
    pub seed: u64,
    pub writes: bool,
    pub destroy: bool,
    /// Only empty files are needed (logs).
    pub empty: bool,
}

impl Target {
    pub fn prepare(spec: &TargetSpec, progress: &Progress) -> Result<Target, Failure> {
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
        if target.file_bytes < spec.block {
            return fail(format!(
                "{} has room for {}, less than one block of {}",
                path.display(),
                units::size(target.file_bytes),
                units::size(spec.block)
            ));
        }
        if target.seed.is_some() && !spec.empty {
            target.fill(progress)?;
        }
        Ok(target)
    }

    fn temporary(spec: &TargetSpec) -> Result<Target, Failure> {
        let in_directory = |error| {
            let place = spec.path.display();
            Failure::failed(format!("cannot make a temporary file in {place}: {error}"))
        };
        let files: Result<Vec<_>, _> = (0..spec.files)
            .map(|_| tempfile::tempfile_in(&spec.path).map(TestFile).map_err(in_directory))
            .collect();
        let total = spec.size.unwrap_or(DEFAULT_BYTES);
        let free = storage::free_bytes(&spec.path)?;
        if !spec.empty && total > free {
            // Found out before: a file that fills the disk is in the way of everyone else.
            return fail(format!(
                "{} has {} free and the test file needs {}: choose a smaller --size",
                spec.path.display(),
                units::size(free),
                units::size(total)
            ));
        }
        let each = total / spec.files as u64;
        Ok(Target {
            files: files?,
            file_bytes: each / spec.block * spec.block,
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
                "{path} exists and this benchmark writes: its content would be lost. Give a \
                 directory (a temporary file is made there), or --destroy if you mean it"
            )));
        }
        if spec.files != 1 {
            return Err(Failure::usage(format!("--files needs a directory, and {path} is none")));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(spec.writes)
            .open(&spec.path)
            .map_err(|error| Failure::failed(format!("cannot open {path}: {error}")))?;
        let there = if device { device_bytes(&file)? } else { file_bytes(&file)? };
        let asked = match spec.size {
            None if device && spec.writes => DEFAULT_BYTES,
            None => there,
            Some(size) => size,
        };
        Ok(Target {
            files: vec![TestFile(file)],
            file_bytes: asked.min(there) / spec.block * spec.block,
            path: spec.path.clone(),
            kind: if device { Kind::BlockDevice } else { Kind::File },
            seed: spec.writes.then_some(spec.seed),
            missing_bytes: asked.saturating_sub(there),
        })
    }

    /// Writes the content that reads will expect, and waits until it is on the device.
    pub fn fill(&self, progress: &Progress) -> Result<(), Failure> {
        let Some(seed) = self.seed else { return Ok(()) };
        let total = self.file_bytes * self.files.len() as u64;
        let bar = progress.bytes(total, "writing the test file");
        let mut chunk = vec![0u8; CHUNK];
        for (number, file) in self.files.iter().enumerate() {
            let mut offset = 0;
            while offset < self.file_bytes {
                let part = CHUNK.min((self.file_bytes - offset) as usize);
                content::fill(&mut chunk[..part], seed, number as u32, offset);
                file.0.write_all_at(&chunk[..part], offset).map_err(|e| self.not_written(&e))?;
                offset += part as u64;
                bar.inc(part as u64);
            }
            file.0.sync_data().map_err(|error| self.not_written(&error))?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn not_written(&self, error: &io::Error) -> Failure {
        let total = units::size(self.file_bytes * self.files.len() as u64);
        let place = self.path.display();
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull => "; a smaller --size needs less room",
            _ => "",
        };
        Failure::failed(format!(
            "cannot write {total} for the benchmark at {place}: {error}{remedy}"
        ))
    }

    /// The files' names for a child process, as fio's `filename` wants them.
    pub fn names_for_others(&self) -> String {
        self.files.iter().map(TestFile::name_for_others).collect::<Vec<_>>().join(":")
    }
}

fn missing(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    let text = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{shown} does not exist; give a directory (a temporary file is made there), a file \
             or a block device"
        ),
        _ => format!("cannot look at {shown}: {error}"),
    };
    Failure::failed(text)
}

fn file_bytes(file: &File) -> Result<u64, Failure> {
    Ok(file.metadata()?.len())
}

/// Refuses what cannot be read at an offset, and may keep who opens it waiting for ever.
pub fn must_have_offsets(path: &Path, kind: fs::FileType) -> Result<(), Failure> {
    let what = match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() => "a character device",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!(
        "{} is {what}: give a directory, a file or a block device",
        path.display()
    )))
}

/// A device's metadata says 0; its end is where seeking to the end leads.
fn device_bytes(mut file: &File) -> Result<u64, Failure> {
    use std::io::Seek;
    Ok(file.seek(io::SeekFrom::End(0))?)
}
