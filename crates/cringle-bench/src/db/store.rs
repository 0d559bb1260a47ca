//! The file that holds the tree: it is written anew before each run, and read after it.

use super::engine::{check_number, offset};
use super::tree::{self, PAGE_BYTES, Tree};
use crate::target::{TestFile, require_space};
use cringle::block::AlignedBuf;
use cringle_report::failure::Failure;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The pages that one call moves while the file is written or checked.
const CHUNK: u32 = 256;

pub(super) struct Store {
    file: TestFile,
    log: TestFile,
}

/// Fails if the path is not that of a directory.
pub(super) fn must_be_directory(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| {
        Failure::failed(format!("{shown}: cannot examine: {error}; give a directory"))
    })?;
    if metadata.is_dir() {
        return Ok(());
    }
    let text = format!("{shown}: not a directory; give one, in which the tree gets a file");
    Err(Failure::usage(text))
}

impl Store {
    /// Creates a file without a name in a directory.
    pub(super) fn create(directory: &Path, bytes: u64) -> Result<Store, Failure> {
        let shown = directory.display();
        require_space(directory, bytes, "the tree needs", "choose a smaller --tree")?;
        let file = tempfile::tempfile_in(directory)
            .map_err(Failure::because(format_args!("{shown}: cannot create a temporary file")))?;
        let log = tempfile::tempfile_in(directory).map_err(Failure::because(format_args!(
            "{shown}: cannot create a second temporary file"
        )))?;
        let store = Store { file: TestFile(file), log: TestFile(log) };
        store.open().map_err(|error| {
            Failure::failed(format!(
                "{shown}: cannot open a file with O_DIRECT: {error}; choose a directory on \
                 another file system"
            ))
        })?;
        Ok(store)
    }

    /// Opens the file for direct reads and writes.
    pub(super) fn open(&self) -> io::Result<File> {
        self.file.open(true, true)
    }

    pub(super) fn name_for_others(&self) -> String {
        self.file.name_for_others()
    }

    /// Calls `each` with the open file and the memory of some pages, from the number of the first
    /// one, until it has had all pages. Then waits until the file is on the disk.
    fn in_chunks(
        &self,
        pages: u64,
        mut each: impl FnMut(&File, u32, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (file, pages) = (self.open()?, pages as u32);
        let mut chunk = AlignedBuf::new(CHUNK as usize * PAGE_BYTES);
        for first in (0..pages).step_by(CHUNK as usize) {
            let bytes = CHUNK.min(pages - first) as usize * PAGE_BYTES;
            each(&file, first, &mut chunk[..bytes])?;
        }
        file.sync_data()
    }

    /// Writes the tree as it is before the first update.
    pub(super) fn build(&self, tree: &Tree) -> io::Result<()> {
        self.in_chunks(tree.pages(), |file, first, part| {
            for (page, bytes) in (first..).zip(part.chunks_mut(PAGE_BYTES)) {
                tree.fill(page, bytes);
            }
            file.write_all_at(part, offset(first))
        })
    }

    /// Reads the whole tree, and returns its checksum.
    pub(super) fn checksum(&self, tree: &Tree) -> io::Result<u64> {
        let mut sum = 0u64;
        self.in_chunks(tree.pages(), |file, first, part| {
            file.read_exact_at(part, offset(first))?;
            for (page, bytes) in (first..).zip(part.chunks(PAGE_BYTES)) {
                check_number(page, bytes)?;
                if u64::from(page) < tree.leaves() {
                    sum = sum.wrapping_add(tree::checksum(bytes));
                }
            }
            Ok(())
        })?;
        Ok(sum)
    }

    /// Sets the values of the rows that `values` has.
    pub(super) fn set_values(&self, tree: &Tree, values: &HashMap<u64, u64>) -> io::Result<()> {
        self.in_chunks(tree.leaves(), |file, first, part| {
            file.read_exact_at(part, offset(first))?;
            part.chunks_mut(PAGE_BYTES).for_each(|bytes| tree::set_values(bytes, values));
            file.write_all_at(part, offset(first))
        })
    }

    /// The file of the write-ahead log.
    pub(super) fn log(&self) -> &TestFile {
        &self.log
    }

    /// Returns the file through the page cache, for the writes that are not measured.
    pub(super) fn cached(&self) -> &File {
        &self.file.0
    }
}
