//! The file system and the device that hold a path.

use rustix::fs::{IFlags, ioctl_getflags, statvfs};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Storage {
    /// `ext4`, `xfs`, `tmpfs`, …, or `block device`.
    pub filesystem: String,
    /// `None` for a block device, and if the mount table cannot be read.
    pub mount_point: Option<PathBuf>,
    /// Whether the file system keeps checksums of the data of files: btrfs, unless it is mounted
    /// with `nodatasum` or `nodatacow`.
    pub checksums: bool,
    pub device: Option<Device>,
}

#[derive(Clone, Debug)]
pub struct Device {
    pub name: String,
    pub model: Option<String>,
    pub scheduler: Option<String>,
    pub rotational: Option<bool>,
    pub logical_block: Option<u64>,
    /// Whether the driver has polled queues.
    pub polled: Option<bool>,
}

/// Returns the bytes that an unprivileged user may still write to the file system of `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Returns the number of files that can still be created on the file system of `path`, or `None` if
/// it has no limit (as on btrfs, which reports 0 inodes).
pub fn free_inodes(path: &Path) -> io::Result<Option<u64>> {
    let stat = statvfs(path)?;
    Ok((stat.f_files > 0).then_some(stat.f_favail))
}

impl Storage {
    /// Returns the storage that holds `path`, or that `path` is, if it names a block device.
    pub fn under(path: &Path) -> io::Result<Storage> {
        let metadata = fs::metadata(path)?;
        if metadata.file_type().is_block_device() {
            let device = Device::numbered(metadata.rdev());
            let filesystem = "block device".into();
            return Ok(Storage { filesystem, mount_point: None, checksums: false, device });
        }
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&table, &fs::canonicalize(path)?);
        // btrfs and overlayfs report an anonymous device number; the mount table names the device.
        let device = Device::numbered(metadata.dev()).or_else(|| {
            let source = fs::metadata(&mount.as_ref()?.source).ok()?;
            Device::numbered(source.rdev())
        });
        let checksums = mount.as_ref().is_some_and(|mount| mount.checksums);
        let (filesystem, mount_point) = match mount {
            Some(mount) => (mount.kind, Some(mount.point)),
            None => ("unknown".into(), None),
        };
        Ok(Storage { filesystem, mount_point, checksums, device })
    }

    /// If this storage is memory, returns the middle of a sentence that says so.
    pub fn in_memory(&self) -> Option<String> {
        if matches!(self.filesystem.as_str(), "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs") {
            return Some(format!("on {}, which is memory", self.filesystem));
        }
        let name = &self.device.as_ref()?.name;
        let kind = ["zram", "ram", "pmem"].into_iter().find(|kind| {
            name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_numeric()))
        })?;
        Some(match kind {
            "pmem" => format!("on {name}, which is persistent memory"),
            _ => format!("on {name}, a block device in memory"),
        })
    }

    /// If direct writes to the file go through the page cache, because its data has checksums,
    /// returns the sentence that says so. (A program may change the data of a direct write after
    /// its checksum was computed, so newer kernels copy the data first.)
    pub fn direct_writes_are_cached(&self, file: &File) -> Option<String> {
        (self.checksums && !is_nocow(file)).then(|| {
            format!(
                "{} keeps checksums of this file's data, so since about Linux 6.15 writes with \
                 O_DIRECT go through the page cache; `chattr +C` on the empty file or its \
                 directory, or the mount option nodatasum, makes them direct, without checksums",
                self.filesystem
            )
        })
    }

    /// Describes the device: name, model, kind, scheduler.
    pub fn describe_device(&self) -> String {
        let Some(device) = &self.device else { return "none".into() };
        let kind = device.rotational.map(|spins| if spins { "rotating" } else { "solid state" });
        let scheduler = device.scheduler.as_ref().map(|name| format!("scheduler {name}"));
        let details: Vec<String> = [device.model.clone(), kind.map(String::from), scheduler]
            .into_iter()
            .flatten()
            .collect();
        if details.is_empty() {
            device.name.clone()
        } else {
            format!("{} ({})", device.name, details.join(", "))
        }
    }

    /// Returns the alignment that `O_DIRECT` needs; 512 if the device does not report one.
    pub fn direct_alignment(&self) -> u64 {
        self.device.as_ref().and_then(|device| device.logical_block).unwrap_or(512)
    }
}

impl Device {
    /// Returns the device with this number, if sysfs lists it.
    fn numbered(number: u64) -> Option<Device> {
        let (major, minor) = (libc::major(number), libc::minor(number));
        let link = format!("/sys/dev/block/{major}:{minor}");
        let directory = fs::canonicalize(link).ok()?;
        let name = directory.file_name()?.to_string_lossy().into_owned();
        // A partition has no queue of its own; its parent directory is the disk.
        let has_queue = directory.join("queue").is_dir();
        let disk = if has_queue { directory } else { directory.parent()?.into() };
        let text = |file: &str| super::read(disk.join(file));
        Some(Device {
            name,
            model: text("device/model"),
            scheduler: text("queue/scheduler").map(|text| selected(&text)),
            // virtio reports every device as rotational.
            rotational: text("queue/rotational")
                .map(|text| text == "1")
                .filter(|_| !disk.to_string_lossy().contains("/virtio")),
            logical_block: text("queue/logical_block_size").and_then(|text| text.parse().ok()),
            polled: text("queue/io_poll").map(|text| text == "1"),
        })
    }
}

/// Returns the scheduler in brackets: `mq-deadline` of `none [mq-deadline] kyber`.
fn selected(schedulers: &str) -> String {
    let selected = schedulers
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')));
    selected.unwrap_or(schedulers).to_string()
}

/// Whether the file has the attribute `C` of `chattr`: its blocks have no checksums on btrfs.
fn is_nocow(file: &File) -> bool {
    ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::NOCOW))
}

struct Mount {
    point: PathBuf,
    kind: String,
    source: PathBuf,
    checksums: bool,
}

/// Returns the innermost mount that holds `path`. The table is `/proc/self/mountinfo`, whose paths
/// may have any bytes.
fn mount_of(table: &[u8], path: &Path) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in table.split(|&byte| byte == b'\n') {
        let mut words = line.split(|&byte| byte == b' ');
        let Some(point) = words.nth(4).map(unescape) else { continue };
        let mut right = words.skip_while(|word| *word != b"-").skip(1);
        let (Some(kind), Some(source)) = (right.next(), right.next()) else { continue };
        let length = point.as_os_str().len();
        // Later lines are mounted over earlier ones.
        if path.starts_with(&point) && best.as_ref().is_none_or(|(other, _)| length >= *other) {
            let kind = String::from_utf8_lossy(kind).into_owned();
            let mut options = right.next().unwrap_or_default().split(|&byte| byte == b',');
            let checksums =
                kind == "btrfs" && !options.any(|it| it == b"nodatasum" || it == b"nodatacow");
            best = Some((length, Mount { point, kind, source: unescape(source), checksums }));
        }
    }
    best.map(|(_, mount)| mount)
}

/// Decodes the octal escapes that the kernel writes for blanks, line ends and backslashes.
fn unescape(word: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), word);
    while let [first, after @ ..] = rest {
        let octal = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 27 0:31 / /sys/fs/cgroup rw - tmpfs tmpfs rw
40 27 259:1 / /srv rw shared:3 - xfs /dev/nvme0n1p1 rw
41 40 0:40 / /srv/my\\040data rw - btrfs /dev/sdb rw
42 40 0:41 / /srv/a\\012b\\134040\xff rw master:1 - f2fs /dev/sdc rw
";

    #[test]
    fn the_innermost_mount_wins() {
        let kind = |path| mount_of(TABLE, Path::new(path)).unwrap().kind;
        assert_eq!(kind("/etc/hosts"), "ext4");
        assert_eq!(kind("/srv/file"), "xfs");
        assert_eq!(kind("/srv/my data/file"), "btrfs");
        assert_eq!(kind("/srvx"), "ext4");
        let strange = OsString::from_vec(b"/srv/a\nb\\040\xff/file".to_vec());
        assert_eq!(mount_of(TABLE, Path::new(&strange)).unwrap().kind, "f2fs");
    }

    #[test]
    fn checksums_are_btrfs_without_nodatasum() {
        let checksums = |line: &[u8]| mount_of(line, Path::new("/srv/a")).unwrap().checksums;
        assert!(checksums(b"41 40 0:40 / /srv rw - btrfs /dev/sdb rw,space_cache=v2"));
        assert!(!checksums(b"41 40 0:40 / /srv rw - btrfs /dev/sdb rw,nodatasum,subvolid=5"));
        assert!(!checksums(b"41 40 0:40 / /srv rw - btrfs /dev/sdb rw,nodatacow"));
        assert!(!checksums(b"40 27 259:1 / /srv rw - xfs /dev/nvme0n1p1 rw"));
    }

    #[test]
    fn storage_in_memory_is_recognised() {
        let on = |filesystem: &str, name: &str| Storage {
            filesystem: filesystem.into(),
            mount_point: None,
            checksums: false,
            device: Some(Device {
                name: name.into(),
                model: None,
                scheduler: None,
                rotational: None,
                logical_block: None,
                polled: None,
            }),
        };
        assert!(on("tmpfs", "x").in_memory().is_some());
        assert!(on("ext4", "zram0").in_memory().unwrap().contains("in memory"));
        assert!(on("block device", "ram1").in_memory().is_some());
        assert!(on("ext4", "vda").in_memory().is_none());
        assert!(on("ext4", "ramses").in_memory().is_none());
    }

    #[test]
    fn the_scheduler_in_brackets_is_selected() {
        assert_eq!(selected("none [mq-deadline] kyber bfq"), "mq-deadline");
        assert_eq!(selected("none"), "none");
    }
}
