//! Verifies a copy. The content of a file follows from its number, so the source is not read again.

use super::trees::{CHUNK, Shape, file_name, pieces};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The most files, and the most bytes of all of them, whose content is compared.
const SAMPLED_FILES: u64 = 500;
const SAMPLED_BYTES: u64 = 64 << 20;

/// Verifies that `root` is a complete copy: all directories and files and nothing else, the sizes,
/// and the content of a sample. The error names the first difference.
pub(super) fn verify(shape: &Shape, root: &Path) -> Result<(), String> {
    let by_bytes = SAMPLED_BYTES / shape.file_bytes.max(1);
    let sampled = by_bytes.clamp(1, SAMPLED_FILES);
    let stride = (shape.files / sampled).max(1);
    let mut buffers = [vec![0u8; CHUNK as usize], vec![0u8; CHUNK as usize]];
    for directory in 0..shape.directories() {
        let below = shape.directory(directory);
        let path = root.join(&below);
        let shown = |name: &str| below.join(name).display().to_string();
        let entries = entries(&path).map_err(|error| match directory {
            0 => format!("no copy exists ({error})"),
            _ => format!("{} cannot be read: {error}", below.display()),
        })?;
        for number in shape.files_of(directory) {
            let name = file_name(number);
            check_file(shape, &path.join(&name))
                .map_err(|why| format!("{} {why}", shown(&name)))?;
            if number % stride == 0 {
                check_content(shape, number, &path.join(&name), &mut buffers)
                    .map_err(|why| format!("{} {why}", shown(&name)))?;
            }
        }
        let expected = shape.files_of(directory).count() as u64 + shape.children_of(directory);
        if entries != expected {
            let mut children = (0..shape.children_of(directory)).map(|child| format!("d{child}"));
            if let Some(lost) = children.find(|name| !path.join(name).exists()) {
                return Err(format!("{} is missing", shown(&lost)));
            }
            let name = if directory == 0 { "its root".into() } else { shown("") };
            return Err(format!("{name} has {entries} entries instead of {expected}"));
        }
    }
    Ok(())
}

/// Returns the number of entries of a directory. A symbolic link to a directory is an error.
fn entries(path: &Path) -> io::Result<u64> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return Err(io::Error::other("not a directory"));
    }
    fs::read_dir(path)?.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

fn check_file(shape: &Shape, path: &Path) -> Result<(), String> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("is missing".into()),
        Err(error) => return Err(format!("cannot be examined: {error}")),
    };
    if !metadata.is_file() {
        return Err("is not a regular file".into());
    }
    if metadata.nlink() != 1 {
        return Err("is a hard link, not a copy".into());
    }
    if metadata.len() != shape.file_bytes {
        return Err(format!("has {} bytes instead of {}", metadata.len(), shape.file_bytes));
    }
    Ok(())
}

fn check_content(
    shape: &Shape,
    number: u64,
    path: &Path,
    [expected, read]: &mut [Vec<u8>; 2],
) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let mut wrong = None;
    let compared = pieces(shape, number, expected, |offset, piece| {
        let read = &mut read[..piece.len()];
        file.read_exact_at(read, offset)?;
        if wrong.is_none() && piece != read {
            let at = piece.iter().zip(&*read).position(|(a, b)| a != b);
            wrong = at.map(|at| offset + at as u64);
        }
        Ok(())
    });
    match (compared, wrong) {
        (Err(error), _) => Err(format!("cannot be read: {error}")),
        (Ok(()), Some(at)) => Err(format!("differs from the source at byte {at}")),
        (Ok(()), None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::trees::{empty, make};
    use super::*;
    use std::path::PathBuf;

    fn made(shape: &Shape) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let root = directory.path().join("tree");
        make(shape, &root, |_| Ok(())).unwrap();
        (directory, root)
    }

    #[test]
    fn a_tree_is_a_complete_copy_of_itself() {
        for (files, bytes) in [(1, 0), (7, 10), (40, 4096), (3, (1 << 20) + 9)] {
            let shape = Shape::new(files, bytes, 1);
            let (_directory, root) = made(&shape);
            assert_eq!(verify(&shape, &root), Ok(()));
        }
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        let shape = Shape::new(40, 100, 1);
        let broken = |damage: &dyn Fn(&Path)| {
            let (_directory, root) = made(&shape);
            damage(&root);
            verify(&shape, &root).unwrap_err()
        };
        let contains = |text: String, part: &str| assert!(text.contains(part), "{text}");
        contains(broken(&|root| fs::remove_file(root.join("d0/f2")).unwrap()), "d0/f2 is missing");
        contains(broken(&|root| fs::write(root.join("f1"), "short").unwrap()), "f1 has 5 bytes");
        contains(broken(&|root| fs::write(root.join("f1"), [0; 100]).unwrap()), "f1 differs");
        contains(broken(&|root| fs::write(root.join("d1/x"), "").unwrap()), "d1/ has");
        contains(broken(&|root| fs::create_dir(root.join("x")).unwrap()), "its root has");
        contains(broken(&|root| fs::remove_dir_all(root.join("d1")).unwrap()), "d1 is missing");
        let linked = broken(&|root| {
            fs::remove_file(root.join("f0")).unwrap();
            fs::hard_link(root.join("f1"), root.join("f0")).unwrap();
        });
        contains(linked, "hard link");
        let symbolic = broken(&|root| {
            fs::remove_file(root.join("f0")).unwrap();
            std::os::unix::fs::symlink("f1", root.join("f0")).unwrap();
        });
        contains(symbolic, "not a regular file");
    }

    #[test]
    fn emptying_a_copy_keeps_its_files() {
        let shape = Shape::new(12, 1000, 1);
        let (_directory, root) = made(&shape);
        empty(&shape, &root).unwrap();
        assert!(verify(&shape, &root).unwrap_err().contains("has 0 bytes"));
    }
}
