//! The directory in which everything is made, and from which nothing survives.

use super::Block;
use super::args::CpArgs;
use super::trees::Shape;
use crate::progress::Progress;
use cringle_report::failure::{Failure, fail};
use cringle_report::machine::storage;
use cringle_report::units;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FIO_FILE: u64 = 256 << 20;
/// How often removal is tried again, for children that were killed may still make a file.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Workspace {
    /// Absolute; empty once removed.
    path: PathBuf,
    /// For syncs of its file system.
    pub(super) directory: File,
}

impl Workspace {
    pub(super) fn make(place: &Path) -> Result<Workspace, Failure> {
        let cannot = |error: io::Error| {
            Failure::failed(format!("cannot make a directory in {}: {error}", place.display()))
        };
        let place = fs::canonicalize(place).map_err(cannot)?;
        let made = tempfile::Builder::new().prefix("cringle-cp-").tempdir_in(place);
        let path = made.map_err(cannot)?.keep();
        let directory = File::open(&path).map_err(cannot);
        let workspace = directory.map(|directory| Workspace { path: path.clone(), directory });
        if workspace.is_err() {
            let _ = fs::remove_dir(&path);
        }
        let workspace = workspace?;
        fs::create_dir(workspace.path.join("copies")).map_err(cannot)?;
        Ok(workspace)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn source(&self, shape: &Shape) -> PathBuf {
        self.path.join(format!("tree-{}-{}", shape.files, shape.file_bytes))
    }

    /// A place that was never used.
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
            Failure::failed(format!("cannot remove {} ({error}): do it by hand", path.display()))
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
            cringle_report::complain(&format!("cringle: cannot remove {path}: {error}"));
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(()) => return Ok(()),
            failed => last = failed,
        }
        std::thread::sleep(PAUSE);
    }
    last
}

/// Fails, before anything is made, where the trees and all copies do not fit.
pub(super) fn check_room(args: &CpArgs, blocks: &[Block]) -> Result<(), Failure> {
    let (bytes, inodes) = needed(args, blocks);
    let shown = args.directory.display();
    let looked = |error: io::Error| Failure::failed(format!("cannot look at {shown}: {error}"));
    let remedy = "fewer --files, --tools, --tree or --repeat take less, or give another DIRECTORY";
    let free = storage::free_bytes(&args.directory).map_err(looked)?;
    if free < bytes {
        return fail(format!(
            "the trees and their copies take about {} and {shown} has {}: {remedy}",
            gib(bytes),
            gib(free)
        ));
    }
    match storage::free_inodes(&args.directory).map_err(looked)? {
        Some(free) if free < inodes => fail(format!(
            "the trees and their copies take {} inodes and {shown} has {}: {remedy}",
            units::count(inodes as f64),
            units::count(free as f64)
        )),
        _ => Ok(()),
    }
}

pub(super) fn needed(args: &CpArgs, blocks: &[Block]) -> (u64, u64) {
    let (mut bytes, mut inodes) = (FIO_FILE, 0u64);
    for block in blocks {
        let shape = &block.cell.shape;
        let copies = (block.lines.len() * args.rounds()) as u64;
        // Some file systems give space back late; so two, where one is there at a time.
        let at_once = if shape.is_emptied() { copies.min(2) } else { copies };
        bytes = bytes.saturating_add(shape.space().saturating_mul(at_once + 1));
        inodes = inodes.saturating_add(shape.inodes().saturating_mul(copies + 1));
    }
    (bytes.saturating_add(bytes / 16), inodes)
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", units::mib(bytes as f64) / 1024.0)
}
