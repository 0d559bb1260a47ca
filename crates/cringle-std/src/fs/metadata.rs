//! A file's metadata and file type.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The metadata of a file, as `std::fs::Metadata`.
///
/// It is the result of one `statx`. [`MetadataExt`] adds the fields of Unix.
///
/// ```
/// let metadata = cringle::fs::metadata("/proc/self/exe")?;
/// println!("{} bytes, changed {:?}", metadata.len(), metadata.modified()?);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Metadata {
    pub(crate) stat: libc::statx,
}

/// The type of a file, as `std::fs::FileType`.
///
/// [`FileTypeExt`](crate::os::unix::fs::FileTypeExt) tests for devices, FIFOs and sockets.
///
/// ```
/// let file_type = cringle::fs::metadata("/proc/self")?.file_type();
/// assert!(file_type.is_dir() && !file_type.is_file());
/// # std::io::Result::Ok(())
/// ```
///
/// Types compare equal whether they are from a directory's entry, from
/// [`metadata`](super::metadata) or from an open file. They differ from `std::fs::FileType`, which
/// only std can make:
///
/// ```
/// use cringle::fs;
///
/// for entry in fs::read_dir("/proc/self/task")? {
///     let entry = entry?;
///     assert_eq!(entry.file_type()?, entry.metadata()?.file_type());
///     assert_eq!(entry.file_type()?, fs::metadata("/proc/self")?.file_type());
///     assert_ne!(entry.file_type()?, fs::symlink_metadata("/proc/self")?.file_type());
/// }
/// # std::io::Result::Ok(())
/// ```
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
    /// Returns the file type.
    pub fn file_type(&self) -> FileType {
        FileType { mode: u32::from(self.stat.stx_mode) & libc::S_IFMT }
    }

    /// Returns whether the file is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Returns whether the file is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Returns whether the file is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Returns the size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "std's has none either")]
    pub fn len(&self) -> u64 {
        self.stat.stx_size
    }

    /// Returns the permissions.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(u32::from(self.stat.stx_mode))
    }

    /// Returns the time of the last change of the file's data.
    ///
    /// # Errors
    ///
    /// Never on Linux; the signature is std's.
    pub fn modified(&self) -> io::Result<SystemTime> {
        Ok(time_of(&self.stat.stx_mtime))
    }

    /// Returns the time of the last access.
    ///
    /// # Errors
    ///
    /// Never on Linux; the signature is std's.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        Ok(time_of(&self.stat.stx_atime))
    }

    /// Returns the time of the file's creation.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the file system does not store it, as std's.
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
    if stamp.tv_sec >= 0 { UNIX_EPOCH + seconds + nanos } else { UNIX_EPOCH - seconds + nanos }
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
    /// Returns which fields the kernel has filled in (`stx_mask`, bits `libc::STATX_…`).
    ///
    /// ```
    /// let metadata = cringle::fs::metadata("/proc/self/exe")?;
    /// assert!(metadata.statx_mask() & libc::STATX_SIZE != 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn statx_mask(&self) -> u32 {
        self.stat.stx_mask
    }

    /// Returns the file's attributes (`stx_attributes`, bits `libc::STATX_ATTR_…`: immutable,
    /// compressed, encrypted, …) that the file system supports.
    ///
    /// ```
    /// let metadata = cringle::fs::metadata("/proc/self/exe")?;
    /// assert!(metadata.attributes() & libc::STATX_ATTR_ENCRYPTED as u64 == 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn attributes(&self) -> u64 {
        self.stat.stx_attributes & self.stat.stx_attributes_mask
    }

    /// Returns the ID of the mount that contains the file, if it was requested from
    /// [`statx`](crate::fs::statx) (`STATX_MNT_ID`, Linux 5.8).
    ///
    /// ```
    /// let metadata = cringle::fs::statx("/proc/self/exe", 0, libc::STATX_MNT_ID)?;
    /// assert!(metadata.mount_id().is_some());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn mount_id(&self) -> Option<u64> {
        (self.stat.stx_mask & libc::STATX_MNT_ID != 0).then_some(self.stat.stx_mnt_id)
    }

    /// Returns the alignment in bytes that direct I/O needs, of addresses and of offsets, if it was
    /// requested from [`statx`](crate::fs::statx) and the file system reports it (`STATX_DIOALIGN`,
    /// Linux 6.1). Zeros mean that the file does not support direct I/O.
    ///
    /// ```
    /// let metadata = cringle::fs::statx("/proc/self/exe", 0, libc::STATX_DIOALIGN)?;
    /// if let Some((memory, offset)) = metadata.direct_io_alignment() {
    ///     println!("align buffers to {memory} bytes, offsets to {offset}");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn direct_io_alignment(&self) -> Option<(u32, u32)> {
        let stat = &self.stat;
        let known = stat.stx_mask & libc::STATX_DIOALIGN != 0;
        known.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
    }
}

impl FileType {
    /// Returns the type that a directory stores for an entry, if it does.
    pub(super) fn of_entry(kind: u8) -> Option<FileType> {
        (kind != libc::DT_UNKNOWN).then_some(FileType { mode: u32::from(kind) << 12 })
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode == libc::S_IFDIR
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode == libc::S_IFREG
    }

    /// Returns whether it is a symbolic link.
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

/// `MetadataExt`, whose methods return fields of the structure of `statx`.
macro_rules! fields {
    (|$stat:ident| $($name:ident -> $type:ty: $value:expr;)*) => {
        impl MetadataExt for Metadata {
            $(fn $name(&self) -> $type {
                let $stat = &self.stat;
                $value
            })*
        }
    };
}

fields! {
    |stat|
    dev -> u64: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    ino -> u64: stat.stx_ino;
    mode -> u32: stat.stx_mode.into();
    nlink -> u64: stat.stx_nlink.into();
    uid -> u32: stat.stx_uid;
    gid -> u32: stat.stx_gid;
    rdev -> u64: libc::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
    size -> u64: stat.stx_size;
    atime -> i64: stat.stx_atime.tv_sec;
    atime_nsec -> i64: stat.stx_atime.tv_nsec.into();
    mtime -> i64: stat.stx_mtime.tv_sec;
    mtime_nsec -> i64: stat.stx_mtime.tv_nsec.into();
    ctime -> i64: stat.stx_ctime.tv_sec;
    ctime_nsec -> i64: stat.stx_ctime.tv_nsec.into();
    blksize -> u64: stat.stx_blksize.into();
    blocks -> u64: stat.stx_blocks;
}
