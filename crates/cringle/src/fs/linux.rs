//! `std::os::linux::fs`: the fields of [`Metadata`](super::Metadata) by their names in C.

use std::os::unix::fs::MetadataExt;

/// `std::os::linux::fs::MetadataExt`, but for `as_raw_stat`: there is a `statx` behind ours. Implemented
/// for [`Metadata`](crate::fs::Metadata) and for std's, so that code which takes either keeps working.
pub trait LinuxMetadataExt: sealed::Sealed {
    /// The device it is on.
    fn st_dev(&self) -> u64;
    /// Its inode.
    fn st_ino(&self) -> u64;
    /// Kind and permissions.
    fn st_mode(&self) -> u32;
    /// How many names it has.
    fn st_nlink(&self) -> u64;
    /// Its owner.
    fn st_uid(&self) -> u32;
    /// Its group.
    fn st_gid(&self) -> u32;
    /// The device that it is.
    fn st_rdev(&self) -> u64;
    /// Its size in bytes.
    fn st_size(&self) -> u64;
    /// When it was last read, in seconds.
    fn st_atime(&self) -> i64;
    /// … and nanoseconds.
    fn st_atime_nsec(&self) -> i64;
    /// When its bytes were last changed, in seconds.
    fn st_mtime(&self) -> i64;
    /// … and nanoseconds.
    fn st_mtime_nsec(&self) -> i64;
    /// When anything of it was last changed, in seconds.
    fn st_ctime(&self) -> i64;
    /// … and nanoseconds.
    fn st_ctime_nsec(&self) -> i64;
    /// How many bytes to read and write at once.
    fn st_blksize(&self) -> u64;
    /// How many blocks of 512 bytes it takes.
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
