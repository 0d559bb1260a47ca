//! `--uncached`: copies past the page cache.

use crate::common::mounts::Mount;
use crate::common::*;
use crate::support::*;
use cringle_testing::disk;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The size of the blocks that are copied past the cache.
const BLOCK: usize = 4 << 20;

/// Returns the share of a file that is in the page cache.
fn cached_share(path: &Path) -> f64 {
    let file = File::open(path).unwrap();
    disk::cached_pages(&file) as f64 / file.metadata().unwrap().len().div_ceil(4096) as f64
}

/// Writes a file to the disk, and drops it from the page cache.
fn write_cold(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    disk::make_cold(&File::open(path).unwrap());
}

/// Copies, and returns what `--debug` says about the cache; empty if nothing.
fn how(place: &Path, arguments: &[&str]) -> String {
    let (status, output, stderr) =
        run(place, &[&["--debug", "--reflink=never"], arguments].concat());
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    output.trim().split_once(", uncached: ").map_or_else(String::new, |(_, how)| how.to_owned())
}

#[test]
fn an_uncached_copy_leaves_no_pages() {
    let place = place("cp-uncached");
    let bytes = noise(4 * BLOCK + 5000);
    let source = place.join("source");
    write_cold(&source, &bytes);
    let how_always = how(&place, &["--uncached", "source", "always"]);
    if how_always != "yes" {
        return eprintln!("skipped: this kernel or file system cannot: {how_always}");
    }
    assert!(fs::read(place.join("always")).unwrap() == bytes);
    let left = cached_share(&source);
    assert!(left < 0.25, "{left} of the source is in the cache");
    write_cold(&source, &bytes);
    assert_eq!(how(&place, &["--uncached=never", "source", "never"]), "");
    let left = cached_share(&source);
    assert!(left > 0.5, "{left} of the source is in the cache");
}

#[test]
fn a_small_copy_is_cached_by_default() {
    let place = place("cp-uncached-auto");
    fs::write(place.join("source"), noise(BLOCK + 1)).unwrap();
    assert_eq!(how(&place, &["source", "copy"]), "");
    assert_eq!(how(&place, &["--uncached=auto", "source", "copy"]), "");
}

#[test]
fn an_uncached_copy_is_exact_on_each_file_system() {
    let base = tempfile::tempdir_in(place("cp-uncached-mounts")).unwrap();
    let kinds = [("ext4", 96), ("xfs", 300), ("btrfs", 256), ("tmpfs", 96)];
    let mounts: Vec<_> = match is_root() {
        true => {
            kinds.iter().filter_map(|(kind, size)| Mount::new(base.path(), kind, *size)).collect()
        }
        false => return eprintln!("skipped: only root mounts file systems"),
    };
    let bytes = noise(BLOCK + 4104);
    for from in &mounts {
        for size in [BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 4097] {
            fs::write(from.0.join(size.to_string()), &bytes[..size]).unwrap();
        }
        let holes = File::create(from.0.join("holes")).unwrap();
        holes.set_len(3 * BLOCK as u64).unwrap();
        holes.write_all_at(&bytes, BLOCK as u64 / 2).unwrap();
    }
    for (from, to) in mounts.iter().flat_map(|from| mounts.iter().map(move |to| (from, to))) {
        for entry in fs::read_dir(&from.0).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_type().unwrap().is_file() {
                continue;
            }
            let (source, target) = (entry.path(), to.0.join("copy.of"));
            let names = [source.to_str().unwrap(), target.to_str().unwrap()];
            let how = how(base.path(), &[&["--uncached=always"], &names[..]].concat());
            assert!(fs::read(&target).unwrap() == fs::read(&source).unwrap(), "{names:?}: {how}");
            let in_memory = |mount: &Mount| mount.0.ends_with("tmpfs");
            let possible: &[&str] = match (in_memory(from), in_memory(to)) {
                (true, true) => &["unsupported"],
                (true, false) => &["writes", "unsupported"],
                (false, true) => &["reads", "unsupported"],
                (false, false) => &["yes", "reads", "writes", "unsupported"],
            };
            assert!(possible.contains(&how.as_str()), "{names:?}: {how}");
            fs::remove_file(&target).unwrap();
        }
    }
}
