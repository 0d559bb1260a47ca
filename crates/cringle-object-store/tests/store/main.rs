//! The tests that `object_store` has for all stores, and the promises that these do not check.
//! Where the promise is `LocalFileSystem`'s behaviour, the tests compare with it.

mod conditions;
mod dropped;
mod durable;
mod endless;
mod integration;
mod memory;
mod names;
mod reads;
mod transfers;
mod uploads;

use cringle::block::BlockIo;
use cringle_object_store::{LocalStore, LocalStoreBuilder};
use object_store::Error;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A store whose workers the test can close, which waits for everything in progress.
struct Fixture {
    directory: TempDir,
    io: Arc<BlockIo>,
    store: LocalStore,
}

impl Fixture {
    fn new(options: impl FnOnce(LocalStoreBuilder) -> LocalStoreBuilder) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let io = Arc::new(BlockIo::builder().build().unwrap());
        let builder = LocalStore::builder().prefix(directory.path()).block_io(Arc::clone(&io));
        let store = options(builder).build().unwrap();
        Fixture { directory, io, store }
    }

    /// The names of all files below the directory, sorted.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        collect(self.directory.path(), self.directory.path(), &mut files);
        files.sort();
        files
    }

    /// The descriptors of this process that refer to files below the directory.
    fn descriptors(&self) -> usize {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
        targets.filter(|target| target.starts_with(self.directory.path())).count()
    }
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            files.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// What two stores must agree on in an error: its kind, and the facts of its message.
fn essence(error: &Error) -> String {
    match error {
        Error::NotFound { path, .. } => format!("not found: {path}"),
        Error::AlreadyExists { path, .. } => format!("exists: {path}"),
        Error::NotImplemented { .. } => "not implemented".into(),
        Error::Generic { source, .. } => {
            let mut innermost: &dyn std::error::Error = source.as_ref();
            while let Some(source) = innermost.source() {
                innermost = source;
            }
            let text = innermost.to_string();
            // The two messages of a short read.
            match (text.split_once("actual: "), text.split_once("ends after ")) {
                (Some((_, actual)), _) => format!("short: {actual}"),
                (_, Some((_, counts))) => {
                    format!("short: {}", counts.split(' ').next().unwrap())
                }
                _ => text,
            }
        }
        other => other.to_string(),
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251) as u8).collect()
}
