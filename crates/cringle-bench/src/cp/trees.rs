//! The trees that are copied: computes their shape, and creates them.
//!
//! A tree has 5 files in each directory and up to 5 levels of directories below its root; the
//! fan-out follows from the number of files. Directories and files are numbered breadth-first, and
//! the content of a file follows from its number ([`content`]).

use crate::content;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILES_PER_DIRECTORY: u64 = 5;
const LEVELS: u32 = 5;
/// The bytes that are read or written in one call.
pub(super) const CHUNK: u64 = 1 << 20;
/// Files of at least this size are truncated after their verification, to free their space.
const LARGE: u64 = 64 << 10;
/// The usual unit in which file systems allocate space.
const SPACE_UNIT: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) files: u64,
    pub(super) file_bytes: u64,
    seed: u64,
    fan_out: u64,
}

impl Shape {
    pub(super) fn new(files: u64, file_bytes: u64, seed: u64) -> Shape {
        let directories = files.div_ceil(FILES_PER_DIRECTORY);
        let capacity = |fan_out: u64| (0..=LEVELS).map(|level| fan_out.pow(level)).sum::<u64>();
        let fan_out = (1..).find(|fan_out| capacity(*fan_out) >= directories).unwrap_or(1);
        Shape { files, file_bytes, seed, fan_out }
    }

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.saturating_mul(self.file_bytes)
    }

    /// The number of directories, including the root.
    pub(super) fn directories(&self) -> u64 {
        self.files.div_ceil(FILES_PER_DIRECTORY)
    }

    pub(super) fn inodes(&self) -> u64 {
        self.files + self.directories()
    }

    /// The space that one copy needs on a disk, an estimate that is rather too high.
    pub(super) fn space(&self) -> u64 {
        let each = self.file_bytes.div_ceil(SPACE_UNIT).saturating_mul(SPACE_UNIT);
        self.files.saturating_mul(each).saturating_add(self.directories() * SPACE_UNIT)
    }

    /// Whether a copy is emptied once it is verified.
    pub(super) fn is_emptied(&self) -> bool {
        self.file_bytes >= LARGE
    }

    /// Returns the path of a directory below the root, which is number 0.
    pub(super) fn directory(&self, mut directory: u64) -> PathBuf {
        let mut names = Vec::new();
        while directory > 0 {
            names.push(format!("d{}", (directory - 1) % self.fan_out));
            directory = (directory - 1) / self.fan_out;
        }
        names.iter().rev().collect()
    }

    pub(super) fn files_of(&self, directory: u64) -> std::ops::Range<u64> {
        let first = directory * FILES_PER_DIRECTORY;
        first..(first + FILES_PER_DIRECTORY).min(self.files)
    }

    pub(super) fn children_of(&self, directory: u64) -> u64 {
        let first = directory * self.fan_out + 1;
        self.directories().saturating_sub(first).min(self.fan_out)
    }
}

pub(super) fn file_name(file: u64) -> String {
    format!("f{}", file % FILES_PER_DIRECTORY)
}

/// Creates the tree at `root`, which must not exist. Calls `step` after each directory with the
/// bytes that it holds; an error of `step` ends the work.
pub(super) fn make(
    shape: &Shape,
    root: &Path,
    mut step: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut chunk = vec![0u8; CHUNK.min(shape.file_bytes) as usize];
    for directory in 0..shape.directories() {
        let path = root.join(shape.directory(directory));
        fs::create_dir(&path)?;
        for number in shape.files_of(directory) {
            let mut file = File::create_new(path.join(file_name(number)))?;
            pieces(shape, number, &mut chunk, |_, piece| file.write_all(piece))?;
        }
        let files = shape.files_of(directory);
        step((files.end - files.start) * shape.file_bytes)?;
    }
    Ok(())
}

/// Calls `each` with the offset and the content of each piece of a file.
pub(super) fn pieces(
    shape: &Shape,
    number: u64,
    chunk: &mut [u8],
    mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut offset = 0;
    while offset < shape.file_bytes {
        let length = CHUNK.min(shape.file_bytes - offset) as usize;
        content::fill(&mut chunk[..length], shape.seed, number as u32, offset);
        each(offset, &chunk[..length])?;
        offset += length as u64;
    }
    Ok(())
}

/// Calls `each` with the path of each file of the tree.
pub(super) fn for_each_file(
    shape: &Shape,
    root: &Path,
    mut each: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    for directory in 0..shape.directories() {
        let path = root.join(shape.directory(directory));
        shape.files_of(directory).try_for_each(|file| each(&path.join(file_name(file))))?;
    }
    Ok(())
}

/// Frees the space of a verified copy and keeps its inodes: deleted inodes would slow down the
/// tools that create files afterwards.
pub(super) fn empty(shape: &Shape, root: &Path) -> io::Result<()> {
    for_each_file(shape, root, |path| {
        let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        // The copy may have changed since its verification. A link to the source must never be
        // emptied.
        if file.metadata()?.nlink() == 1 { file.set_len(0) } else { Ok(()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_stated_size_and_depth() {
        for (files, directories) in [(97_655, 19_531), (19_530, 3_906), (780, 156), (30, 6)] {
            let shape = Shape::new(files, 4096, 1);
            assert_eq!(shape.directories(), directories);
            let depth = |number| shape.directory(number).components().count() as u32;
            assert_eq!(depth(directories - 1), LEVELS, "{files}");
            let children: u64 = (0..directories).map(|number| shape.children_of(number)).sum();
            assert_eq!(children, directories - 1);
            let all: usize = (0..directories).map(|number| shape.files_of(number).count()).sum();
            assert_eq!(all as u64, files);
        }
        assert_eq!(Shape::new(1, 0, 1).directories(), 1);
    }
}
