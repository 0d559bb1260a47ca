//! The `MetadataExt` of `std::os::linux::fs`: the fields of [`Metadata`](super::Metadata) under
//! their C names.

use std::os::unix::fs::MetadataExt;

mod sealed {
    pub trait Sealed: std::os::unix::fs::MetadataExt {}
    impl Sealed for crate::fs::Metadata {}
    impl Sealed for std::fs::Metadata {}
}

/// A row for each field: its C name, its name on Unix, and its type.
macro_rules! fields {
    ($($(#[$doc:meta])* $st:ident $plain:ident $kind:ty,)*) => {
        /// The fields of a file's metadata under their C names, as
        /// `std::os::linux::fs::MetadataExt`.
        ///
        /// It has no `as_raw_stat`, because the library's metadata comes from `statx`. It is
        /// implemented for [`Metadata`](crate::fs::Metadata) and for std's, so that code for either
        /// compiles.
        ///
        /// ```
        /// use cringle::os::linux::fs::MetadataExt;
        ///
        /// let metadata = cringle::fs::metadata("/proc/self/exe")?;
        /// assert!(metadata.st_size() > 0 && metadata.st_nlink() > 0);
        /// # std::io::Result::Ok(())
        /// ```
        pub trait LinuxMetadataExt: sealed::Sealed {
            $($(#[$doc])* fn $st(&self) -> $kind;)*
        }

        impl<M: sealed::Sealed> LinuxMetadataExt for M {
            $(fn $st(&self) -> $kind {
                MetadataExt::$plain(self)
            })*
        }
    };
}

fields! {
    /// The number of the device that contains the file.
    st_dev dev u64,
    /// The inode number.
    st_ino ino u64,
    /// The file type and permissions.
    st_mode mode u32,
    /// The number of hard links.
    st_nlink nlink u64,
    /// The user ID of the owner.
    st_uid uid u32,
    /// The group ID of the owner.
    st_gid gid u32,
    /// The number of the device that the file represents, if it is a device.
    st_rdev rdev u64,
    /// The size in bytes.
    st_size size u64,
    /// The time of the last access, in seconds since 1970.
    st_atime atime i64,
    /// The nanoseconds of [`st_atime`](Self::st_atime).
    st_atime_nsec atime_nsec i64,
    /// The time of the last change of the data, in seconds since 1970.
    st_mtime mtime i64,
    /// The nanoseconds of [`st_mtime`](Self::st_mtime).
    st_mtime_nsec mtime_nsec i64,
    /// The time of the last change of the data or metadata, in seconds since 1970.
    st_ctime ctime i64,
    /// The nanoseconds of [`st_ctime`](Self::st_ctime).
    st_ctime_nsec ctime_nsec i64,
    /// The preferred size of reads and writes, in bytes.
    st_blksize blksize u64,
    /// The number of 512-byte blocks that the file occupies.
    st_blocks blocks u64,
}
