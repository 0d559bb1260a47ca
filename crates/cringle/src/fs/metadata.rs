//! What is known of a file besides its bytes.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `std::fs::Metadata`, as one `statx` of the ring tells it. The fields of Unix come with
/// [`cringle::os::unix::fs::MetadataExt`](crate::os::unix::fs::MetadataExt).
#[derive(Clone)]
pub struct Metadata {
    pub(crate) stat: libc::statx,
}

/// `std::fs::FileType`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType {
    mode: u32,
}

impl std::fmt::Debug for FileType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileType")
            .field("is_file", &self.is_file())
            .field("is_dir", &self.is_dir())
            .field("is_symlink", &self.is_symlink())
            .finish_non_exhaustive()
    }
}

impl Metadata {
    /// What kind of file it is.
    pub fn file_type(&self) -> FileType {
        FileType { mode: u32::from(self.stat.stx_mode) & libc::S_IFMT }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Its size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "std's has none either")]
    pub fn len(&self) -> u64 {
        self.stat.stx_size
    }

    /// Its permissions.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(u32::from(self.stat.stx_mode))
    }

    /// When its bytes were last changed.
    ///
    /// # Errors
    ///
    /// None on Linux; std's signature.
    pub fn modified(&self) -> io::Result<SystemTime> {
        Ok(time_of(&self.stat.stx_mtime))
    }

    /// When it was last read.
    ///
    /// # Errors
    ///
    /// None on Linux; std's signature.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        Ok(time_of(&self.stat.stx_atime))
    }

    /// When it was made.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the file system does not keep it, as std's.
    pub fn created(&self) -> io::Result<SystemTime> {
        if self.stat.stx_mask & libc::STATX_BTIME == 0 {
            let text = "creation time is not available for the filesystem";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(time_of(&self.stat.stx_btime))
    }
}

fn time_of(stamp: &libc::statx_timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(stamp.tv_nsec.into());
    let seconds = Duration::from_secs(stamp.tv_sec.unsigned_abs());
    match stamp.tv_sec >= 0 {
        true => UNIX_EPOCH + seconds + nanos,
        false => UNIX_EPOCH - seconds + nanos,
    }
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("Metadata");
        fields
            .field("file_type", &self.file_type())
            .field("permissions", &self.permissions())
            .field("len", &self.len());
        let times = [
            ("modified", self.modified()),
            ("accessed", self.accessed()),
            ("created", self.created()),
        ];
        for (name, time) in times {
            if let Ok(time) = time {
                fields.field(name, &time);
            }
        }
        fields.finish_non_exhaustive()
    }
}

impl Metadata {
    /// Which of its fields the kernel has filled in (`stx_mask`, bits `STATX_…`).
    pub fn statx_mask(&self) -> u32 {
        self.stat.stx_mask
    }

    /// The file's attributes (bits `STATX_ATTR_…`: immutable, compressed, encrypted, …).
    pub fn attributes(&self) -> u64 {
        self.stat.stx_attributes & self.stat.stx_attributes_mask
    }

    /// The mount that it is on, if it was asked for (`STATX_MNT_ID`, Linux 5.8).
    pub fn mount_id(&self) -> Option<u64> {
        (self.stat.stx_mask & libc::STATX_MNT_ID != 0).then_some(self.stat.stx_mnt_id)
    }

    /// What direct I/O on it must be aligned to in memory and in the file, in bytes, if it was asked for
    /// and the file system says (`STATX_DIOALIGN`, Linux 6.1). Zeros: no direct I/O.
    pub fn direct_io_alignment(&self) -> Option<(u32, u32)> {
        let stat = &self.stat;
        let known = stat.stx_mask & libc::STATX_DIOALIGN != 0;
        known.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
    }
}

impl FileType {
    /// What a directory says of an entry, if it does.
    pub(super) fn of_entry(kind: u8) -> Option<FileType> {
        (kind != libc::DT_UNKNOWN).then_some(FileType { mode: u32::from(kind) << 12 })
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode == libc::S_IFDIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode == libc::S_IFREG
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.mode == libc::S_IFLNK
    }
}

impl std::os::unix::fs::FileTypeExt for FileType {
    fn is_block_device(&self) -> bool {
        self.mode == libc::S_IFBLK
    }

    fn is_char_device(&self) -> bool {
        self.mode == libc::S_IFCHR
    }

    fn is_fifo(&self) -> bool {
        self.mode == libc::S_IFIFO
    }

    fn is_socket(&self) -> bool {
        self.mode == libc::S_IFSOCK
    }
}

impl MetadataExt for Metadata {
    fn dev(&self) -> u64 {
        libc::makedev(self.stat.stx_dev_major, self.stat.stx_dev_minor)
    }
    fn ino(&self) -> u64 {
        self.stat.stx_ino
    }
    fn mode(&self) -> u32 {
        self.stat.stx_mode.into()
    }
    fn nlink(&self) -> u64 {
        self.stat.stx_nlink.into()
    }
    fn uid(&self) -> u32 {
        self.stat.stx_uid
    }
    fn gid(&self) -> u32 {
        self.stat.stx_gid
    }
    fn rdev(&self) -> u64 {
        libc::makedev(self.stat.stx_rdev_major, self.stat.stx_rdev_minor)
    }
    fn size(&self) -> u64 {
        self.stat.stx_size
    }
    fn atime(&self) -> i64 {
        self.stat.stx_atime.tv_sec
    }
    fn atime_nsec(&self) -> i64 {
        self.stat.stx_atime.tv_nsec.into()
    }
    fn mtime(&self) -> i64 {
        self.stat.stx_mtime.tv_sec
    }
    fn mtime_nsec(&self) -> i64 {
        self.stat.stx_mtime.tv_nsec.into()
    }
    fn ctime(&self) -> i64 {
        self.stat.stx_ctime.tv_sec
    }
    fn ctime_nsec(&self) -> i64 {
        self.stat.stx_ctime.tv_nsec.into()
    }
    fn blksize(&self) -> u64 {
        self.stat.stx_blksize.into()
    }
    fn blocks(&self) -> u64 {
        self.stat.stx_blocks
    }
}
