//! What is particular to Unix, under std's paths.

/// Unix.
pub mod unix {
    /// Files: std's own extension traits, which [`File`](crate::fs::File),
    /// [`OpenOptions`](crate::fs::OpenOptions), [`Metadata`](crate::fs::Metadata) and
    /// [`FileType`](crate::fs::FileType) implement.
    pub mod fs {
        pub use std::os::unix::fs::{
            FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
        };
    }
}
