//! Trees with every type of file, the same for the same seed; and complete descriptions of trees.

use crate::common::is_root;
use crate::support::c_path;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub(crate) fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = |s| libc::timespec { tv_sec: s, tv_nsec: nanoseconds };
    let times = [time(seconds), time(seconds + 1)];
    let path = c_path(path);
    // SAFETY: the path and the array of two times outlive the call.
    let done = unsafe {
        libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW)
    };
    assert_eq!(done, 0);
}

/// Sets an extended attribute; returns false where the file system has none.
pub(crate) fn set_xattr(path: &Path, name: &CStr, value: &[u8]) -> bool {
    let path = c_path(path);
    // SAFETY: path, name and value outlive the call.
    let done = unsafe {
        libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    done == 0
}

/// Returns all extended attributes, including ACLs, as text.
pub(crate) fn xattrs(path: &Path) -> String {
    let path = c_path(path);
    let mut names = vec![0u8; 4096];
    // SAFETY: the call writes at most `names.len()` bytes to `names`; the path outlives it.
    let length = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).unwrap_or(0));
    let mut all = BTreeMap::new();
    for name in names.split_inclusive(|&byte| byte == 0) {
        let name = CStr::from_bytes_with_nul(name).unwrap();
        let mut value = vec![0u8; 4096];
        // SAFETY: the call writes at most `value.len()` bytes to `value`; path and name outlive it.
        let length = unsafe {
            libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        value.truncate(usize::try_from(length).unwrap());
        let is_acl = name.to_bytes().starts_with(b"system.posix_acl");
        let text = if is_acl { acl_text(&value) } else { value.escape_ascii().to_string() };
        all.insert(name.to_owned(), text);
    }
    format!("{all:?}")
}

/// Returns tag and permissions of each entry, in hexadecimal.
fn acl_text(value: &[u8]) -> String {
    let entry = |entry: &[u8]| format!("{:x}:{}", entry[0], entry[2]);
    value[4..].chunks(8).map(entry).collect::<Vec<_>>().join(" ")
}

/// Returns an ACL in the kernel's format: owner, user 1234, group, mask, others.
pub(crate) fn acl(owner: u16, user: u16, group: u16, mask: u16, others: u16) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    let nobody = u32::MAX;
    for (tag, permissions, id) in [
        (1u16, owner, nobody),
        (2, user, 1234),
        (4, group, nobody),
        (0x10, mask, nobody),
        (0x20, others, nobody),
    ] {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

pub(crate) const ACCESS: &CStr = c"system.posix_acl_access";
pub(crate) const DEFAULT: &CStr = c"system.posix_acl_default";

pub(crate) fn mkfifo(path: &Path) {
    let path = c_path(path);
    // SAFETY: the path outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o640) }, 0);
}

pub(crate) fn socket(path: &Path) {
    let path = c_path(path);
    // SAFETY: the path outlives the call.
    assert_eq!(unsafe { libc::mknod(path.as_ptr(), libc::S_IFSOCK | 0o755, 0) }, 0);
}

/// A device with the numbers of `/dev/null`.
fn mknod(path: &Path) {
    let path = c_path(path);
    // SAFETY: the path outlives the call.
    let made = unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o620, libc::makedev(1, 3)) };
    assert_eq!(made, 0);
}

fn one_of<T: Copy>(random: &mut Rng, all: &[T]) -> T {
    all[random.usize(..all.len())]
}

fn name(random: &mut Rng, number: u64) -> OsString {
    let odd: &[&[u8]] =
        &[b"plain", b"with space", b"\xff\xfe", b"new\nline", b"it's", "é".as_bytes(), b"-r"];
    let mut bytes = one_of(random, odd).to_vec();
    bytes.extend_from_slice(number.to_string().as_bytes());
    OsString::from_vec(bytes)
}

fn regular_file(random: &mut Rng, path: &Path, number: u64) {
    if random.u64(..6) == 0 {
        let file = fs::File::create(path).unwrap();
        file.write_all_at(b"data", 1 << 20).unwrap();
        file.set_len(3 << 20).unwrap();
        return;
    }
    let bytes = one_of(random, &[0, 1, 4096, 5000, 131_072, 131_073, 400_000]);
    // The bytes repeat: eight times a step of 256.
    let period: Vec<u8> = (0..2048).map(|i: u64| ((i * (number + 3)) >> 3) as u8).collect();
    let content = period.repeat(bytes / period.len() + 1);
    fs::write(path, &content[..bytes]).unwrap();
}

fn attributes(random: &mut Rng, path: &Path, modes: &[u32], seconds: i64) {
    fs::set_permissions(path, fs::Permissions::from_mode(one_of(random, modes))).unwrap();
    if random.u64(..3) == 0 {
        let value = format!("value {}", random.u64(..1000));
        set_xattr(path, c"user.cringle", value.as_bytes());
    }
    if random.u64(..5) == 0 {
        set_xattr(path, ACCESS, &acl(7, 5, random.u16(..8), 7, 0));
    }
    if path.is_dir() && random.u64(..5) == 0 {
        set_xattr(path, DEFAULT, &acl(7, 6, 5, 7, random.u16(..8)));
    }
    set_times(path, seconds + random.i64(0..1000), random.i64(0..999_999_999));
}

/// Makes a tree with every type of file.
pub(crate) fn random_tree(root: &Path, seed: u64) {
    make_tree(root, seed, true);
}

/// Makes a tree whose files have one name each.
pub(crate) fn random_tree_without_links(root: &Path, seed: u64) {
    make_tree(root, seed, false);
}

fn make_tree(root: &Path, seed: u64, has_links: bool) {
    let mut random = Rng::with_seed(seed);
    let mut directories = vec![root.to_path_buf()];
    let mut files: Vec<PathBuf> = Vec::new();
    fs::create_dir(root).unwrap();
    for number in 0..60 {
        let parent = directories[random.usize(..directories.len())].clone();
        let path = parent.join(name(&mut random, number));
        match random.u64(..12) {
            0..=2 => {
                fs::create_dir(&path).unwrap();
                directories.push(path);
            }
            3 => {
                symlink(if number % 2 == 0 { "nowhere" } else { "../plain1" }, &path).unwrap();
                set_times(&path, 1_200_000_000, random.i64(0..999_999_999));
            }
            4 if has_links && !files.is_empty() => {
                let first = &files[random.usize(..files.len())];
                fs::hard_link(first, &path).unwrap();
            }
            5 => mkfifo(&path),
            6 if is_root() => mknod(&path),
            _ => {
                regular_file(&mut random, &path, number);
                files.push(path);
            }
        }
    }
    let modes = [0o644, 0o600, 0o755, 0o444, 0o4755, 0o666, 0o2711, 0o6755, 0o1644];
    for path in &files {
        attributes(&mut random, path, &modes, 1_000_000_000);
    }
    for path in directories.iter().rev() {
        attributes(&mut random, path, &[0o755, 0o700, 0o555, 0o1777, 0o2755], 1_100_000_000);
    }
}

/// A block of a hole.
static ZEROS: [u8; 4096] = [0; 4096];

/// Returns a sum that differs for different bytes, wherever the holes are. Holes are not read,
/// because that fills pages; and the loops are quick without optimisation, too.
fn checksum(path: &Path, length: u64) -> u64 {
    let file = fs::File::open(path).unwrap();
    let seek = |at: u64, whence| {
        // SAFETY: a system call on an open descriptor.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
        u64::try_from(found).unwrap_or_else(|_| {
            // No data follows.
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENXIO));
            length
        })
    };
    let block = ZEROS.len() as u64;
    let (mut sum, mut at) = (7, 0);
    while at < length {
        let start = seek(at, libc::SEEK_DATA);
        let end = seek(start, libc::SEEK_HOLE);
        let start = at.max(start / block * block).min(length);
        let end = end.next_multiple_of(block).min(length);
        while at < start {
            let zeros = block.min(start - at);
            sum = add_block(sum, &ZEROS[..zeros as usize]);
            at += zeros;
        }
        let mut data = vec![0; (end - at) as usize];
        file.read_exact_at(&mut data, at).unwrap();
        sum = data.chunks(ZEROS.len()).fold(sum, add_block);
        at = end;
    }
    sum
}

fn add_block(mut sum: u64, block: &[u8]) -> u64 {
    if *block == ZEROS[..block.len()] {
        return add_word(sum, block.len() as u64);
    }
    let (words, rest) = block.as_chunks();
    for word in words {
        // As `add_word` does; a call takes longer than this.
        sum = (sum ^ u64::from_ne_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        sum ^= sum >> 29;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    add_word(sum, u64::from_ne_bytes(last))
}

fn add_word(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    sum ^ (sum >> 29)
}

/// Describes a tree with a line for each name. `times`: include the modification times.
pub(crate) fn describe(root: &Path, times: bool) -> BTreeMap<OsString, String> {
    let mut all = BTreeMap::new();
    let mut inodes: BTreeMap<(u64, u64), OsString> = BTreeMap::new();
    let mut stack = vec![OsString::new()];
    while let Some(relative) = stack.pop() {
        let path = if relative.is_empty() { root.to_owned() } else { root.join(&relative) };
        let Ok(stat) = fs::symlink_metadata(&path) else { continue };
        let kind = stat.file_type();
        let mut text = format!("{:o} {}:{}", stat.mode(), stat.uid(), stat.gid());
        if times {
            text.push_str(&format!(" mtime {}.{}", stat.mtime(), stat.mtime_nsec()));
        }
        if kind.is_dir() {
            let mut names: Vec<_> =
                fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            stack.extend(
                names.into_iter().map(|name| Path::new(&relative).join(name).into_os_string()),
            );
        } else if kind.is_symlink() {
            text.push_str(&format!(" -> {:?}", fs::read_link(&path).unwrap()));
        } else if kind.is_file() {
            let holes = stat.blocks() * 512 + 65_536 < stat.size();
            let (length, sum) = (stat.size(), checksum(&path, stat.size()));
            text.push_str(&format!(" {length} bytes {sum:x} holes {holes}"));
        } else {
            text.push_str(&format!(" fifo {} device {}", kind.is_fifo(), stat.rdev()));
        }
        text.push_str(&format!(" xattr {}", xattrs(&path)));
        if stat.nlink() > 1 && !kind.is_dir() {
            // The first of its names, in order, stands for all.
            let first = inodes.entry((stat.dev(), stat.ino())).or_insert_with(|| relative.clone());
            text.push_str(&format!(" links {} group {first:?}", stat.nlink()));
        }
        all.insert(relative, text);
    }
    all
}

#[test]
fn descriptions_show_each_byte_but_not_the_holes() {
    let place = crate::common::place("cp-described");
    let mut options = fs::File::options();
    let file = options.read(true).write(true).create_new(true).open(place.join("file")).unwrap();
    file.set_len(200_003).unwrap();
    file.write_all_at(b"data", 50_000).unwrap();
    let of_file = || describe(&place, false).remove(std::ffi::OsStr::new("file")).unwrap();
    let expected = of_file();
    for at in [0, 4095, 49_999, 50_003, 50_004, 65_536, 99_999, 200_002] {
        let mut before = [0];
        file.read_exact_at(&mut before, at).unwrap();
        file.write_all_at(&[before[0] ^ 1], at).unwrap();
        assert_ne!(of_file(), expected, "byte {at}");
        // Where there was a hole are zeros now.
        file.write_all_at(&before, at).unwrap();
        assert_eq!(of_file(), expected, "byte {at}");
    }
}
