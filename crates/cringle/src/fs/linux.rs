//! The `MetadataExt` of `std::os::linux::fs`: the fields of [`Metadata`](super::Metadata) under
//! their C names.

use std::os::unix::fs::MetadataExt;

/// The fields of a file's metadata under their C names, as `std::os::linux::fs::MetadataExt`.
///
/// It has no `as_raw_stat`, because the library's metadata comes from `statx`. It is implemented
/// for [`Metadata`](crate::fs::Metadata) and for std's, so that code for either compiles.
///
/// ```
/// use cringle::os::linux::fs::MetadataExt;
///
/// let metadata = cringle::fs::metadata("/proc/self/exe")?;
/// assert!(metadata.st_size() > 0 && metadata.st_nlink() > 0);
/// # std::io::Result::Ok(())
/// ```
pub trait LinuxMetadataExt: sealed::Sealed {
    /// The number of the device that contains the file.
    fn st_dev(&self) -> u64;

    /// The inode number.
    fn st_ino(&self) -> u64;

    /// The file type and permissions.
    fn st_mode(&self) -> u32;

    /// The number of hard links.
    fn st_nlink(&self) -> u64;

    /// The user ID of the owner.
    fn st_uid(&self) -> u32;

    /// The group ID of the owner.
    fn st_gid(&self) -> u32;

    /// The number of the device that the file represents, if it is a device.
    fn st_rdev(&self) -> u64;

    /// The size in bytes.
    fn st_size(&self) -> u64;

    /// The time of the last access, in seconds since 1970.
    fn st_atime(&self) -> i64;

    /// The nanoseconds of [`st_atime`](Self::st_atime).
    fn st_atime_nsec(&self) -> i64;

    /// The time of the last change of the data, in seconds since 1970.
    fn st_mtime(&self) -> i64;

    /// The nanoseconds of [`st_mtime`](Self::st_mtime).
    fn st_mtime_nsec(&self) -> i64;

    /// The time of the last change of the data or metadata, in seconds since 1970.
    fn st_ctime(&self) -> i64;

    /// The nanoseconds of [`st_ctime`](Self::st_ctime).
    fn st_ctime_nsec(&self) -> i64;

    /// The preferred size of reads and writes, in bytes.
    fn st_blksize(&self) -> u64;

    /// The number of 512-byte blocks that the file occupies.
    fn st_blocks(&self) -> u64;
}

mod sealed {
    pub trait Sealed: std::os::unix::fs::MetadataExt {}
    impl Sealed for crate::fs::Metadata {}
    impl Sealed for std::fs::Metadata {}
}

macro_rules! as_on_unix {
    ($($st:ident $plain:ident $kind:ty,)*) => {
        impl<M: sealed::Sealed> LinuxMetadataExt for M {
            $(fn $st(&self) -> $kind {
                MetadataExt::$plain(self)
            })*
        }
    };
}

as_on_unix! {
    st_dev dev u64,
    st_ino ino u64,
    st_mode mode u32,
    st_nlink nlink u64,
    st_uid uid u32,
    st_gid gid u32,
    st_rdev rdev u64,
    st_size size u64,
    st_atime atime i64,
    st_atime_nsec atime_nsec i64,
    st_mtime mtime i64,
    st_mtime_nsec mtime_nsec i64,
    st_ctime ctime i64,
    st_ctime_nsec ctime_nsec i64,
    st_blksize blksize u64,
    st_blocks blocks u64,
}
