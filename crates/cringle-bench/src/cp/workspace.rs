//! The directory that holds the trees and copies, and that is removed at the end.

use super::Table;
use super::args::CpArgs;
use super::trees::Shape;
use crate::rounds::Progress;
use crate::target::require_space;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::storage;
use cringle_report::units;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often removal is retried: a child that was killed may create a last file meanwhile.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Workspace {
    /// Absolute; empty once removed.
    path: PathBuf,
    /// The open directory, to sync its file system.
    pub(super) directory: File,
}

impl Workspace {
    /// Creates a workspace below `parent`.
    pub(super) fn make(parent: &Path) -> Result<Workspace, Failure> {
        let cannot = |error: io::Error| {
            Failure::failed(format!("{}: cannot create a directory: {error}", parent.display()))
        };
        let absolute = fs::canonicalize(parent).map_err(cannot)?;
        let made = tempfile::Builder::new().prefix("cringle-cp-").tempdir_in(absolute);
        // The whole error would name the directory that does not exist.
        let path = made.map_err(|error| cannot(error.kind().into()))?.keep();
        let directory = File::open(&path).map_err(cannot);
        let workspace = directory.map(|directory| Workspace { path: path.clone(), directory });
        if workspace.is_err() {
            let _ = fs::remove_dir(&path);
        }
        let workspace = workspace?;
        fs::create_dir(workspace.path.join("copies")).map_err(cannot)?;
        Ok(workspace)
    }

    pub(super) fn source(&self, shape: &Shape) -> PathBuf {
        self.path.join(format!("tree-{}-{}", shape.files, shape.file_bytes))
    }

    /// Returns the path of the copy with this number.
    pub(super) fn fresh(&self, serial: u64) -> PathBuf {
        self.path.join("copies").join(serial.to_string())
    }

    pub(super) fn remove(mut self, progress: &Progress) -> Result<(), Failure> {
        let bar = progress.runs(1);
        bar.set_message("removing what was made");
        bar.tick();
        let path = std::mem::take(&mut self.path);
        let removed = remove(&path);
        bar.finish_and_clear();
        removed.map_err(|error| {
            Failure::failed(format!(
                "{}: cannot remove: {error}; remove it by hand",
                path.display()
            ))
        })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = remove(&self.path) {
            let path = self.path.display();
            cringle_report::complain(&format!("cringle: {path}: cannot remove: {error}"));
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(()) => return Ok(()),
            failed => last = failed,
        }
        std::thread::sleep(PAUSE);
    }
    last
}

/// Fails if the file system has too little space for the trees and all copies. Nothing has been
/// created yet.
pub(super) fn check_space(args: &CpArgs, tables: &[Table]) -> Result<(), Failure> {
    let (bytes, inodes) = needed(args, tables);
    let shown = args.directory.display();
    let cannot = |error: io::Error| Failure::failed(format!("{shown}: cannot examine: {error}"));
    let remedy = "choose fewer --files, --tools, --tree or --repeat, or another DIRECTORY";
    require_space(&args.directory, bytes, "the trees and their copies need about", remedy)?;
    match storage::free_inodes(&args.directory).map_err(cannot)? {
        Some(free) if free < inodes => fail(format!(
            "{shown}: too few inodes: the trees and their copies need {}, and {} are free; \
            {remedy}",
            units::count(inodes as f64),
            units::count(free as f64)
        )),
        _ => Ok(()),
    }
}

/// Returns the bytes and inodes that the trees and copies need.
pub(super) fn needed(args: &CpArgs, tables: &[Table]) -> (u64, u64) {
    let (mut bytes, mut inodes) = (0u64, 0u64);
    for table in tables {
        let shape = &table.case.shape;
        let copies = (table.lines.len() * args.rounds.total()) as u64;
        // Copies that are emptied exist one at a time. Two are counted, because some file systems
        // free space with a delay.
        let at_once = if shape.is_emptied() { copies.min(2) } else { copies };
        bytes = bytes.saturating_add(shape.space().saturating_mul(at_once + 1));
        inodes = inodes.saturating_add(shape.inodes().saturating_mul(copies + 1));
    }
    (bytes.saturating_add(bytes / 16), inodes)
}
