//! Conversions of a file to and from descriptors and std's types.
//!
//! Each conversion marks the cursor as shared with handles that the library does not know: see
//! [`cursor`](super::cursor). The library's own calls use `File::fd` and `File::std` instead.

use super::File;
use cringle_sys as sys;

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        sys::debug_plainly(self.std(), f)
    }
}

/// Returns std's handle of a file whose cursor another may share from now on.
fn lent(file: &File) -> &std::fs::File {
    file.lend();
    file.std()
}

/// The file of a handle of std's that may have clones.
fn of_lent(std: std::fs::File) -> File {
    let file = File::of_std(std);
    file.lend();
    file
}

stands_for_std!(File, std::fs::File, |it| lent(it), |std| of_lent(std), |file| {
    file.lend();
    file.into_std()
});

/// Uses the file as a child process's standard stream.
impl From<File> for std::process::Stdio {
    fn from(file: File) -> std::process::Stdio {
        std::fs::File::from(file).into()
    }
}
