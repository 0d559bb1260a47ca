//! Anonymous pipes, and macros for the types that are one end of a pipe.

use crate::fs::File;
use std::io;

/// Creates a pipe: data written to one end is read from the other. Both ends close on `exec`,
/// unless they are passed to a child as a [`Stdio`](crate::process::Stdio).
///
/// ```
/// use cringle::{fiber, io};
/// use std::io::{Read, Write};
///
/// cringle::run(|| -> io::Result<()> {
///     let (mut reader, mut writer) = io::pipe()?;
///     let sum = fiber::scope(|s| {
///         let sum = s.spawn_local(move || {
///             let mut bytes = Vec::new();
///             reader.read_to_end(&mut bytes)?;
///             io::Result::Ok(bytes.iter().map(|&b| u64::from(b)).sum::<u64>())
///         });
///         // More than the capacity of a pipe: the two fibers take turns.
///         writer.write_all(&vec![1; 1 << 20])?;
///         drop(writer);
///         sum.join().unwrap()
///     })?;
///     assert_eq!(sum, 1 << 20);
///     Ok(())
/// })
/// # ?; io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As std's: no descriptor is free.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = cringle_sys::pipe()?;
    Ok((reader.into_std().into(), writer.into_std().into()))
}

/// The reading end of a pipe, as `std::io::PipeReader`. Only the calling fiber waits. A cancel ends
/// the wait, and no data is lost.
///
/// ```
/// use std::io::Write;
///
/// let (reader, mut writer) = cringle::io::pipe()?;
/// writer.write_all(b"rope")?;
/// drop(writer);
/// assert_eq!(std::io::read_to_string(reader)?, "rope");
/// # std::io::Result::Ok(())
/// ```
pub struct PipeReader(File);

/// The writing end of a pipe, as `std::io::PipeWriter`. Only the calling fiber waits. A cancel ends
/// the wait. If all readers are closed, a write fails with `BrokenPipe`.
///
/// ```
/// use std::io::{ErrorKind, Write};
///
/// let (reader, mut writer) = cringle::io::pipe()?;
/// drop(reader);
/// assert_eq!(writer.write(b"rope").unwrap_err().kind(), ErrorKind::BrokenPipe);
/// # std::io::Result::Ok(())
/// ```
pub struct PipeWriter(File);

impl PipeReader {
    /// Returns another handle to the same end.
    ///
    /// # Errors
    ///
    /// As std's: no descriptor is free.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        self.0.try_clone().map(PipeReader)
    }
}

impl PipeWriter {
    /// Returns another handle to the same end. The reader finds the end of the data when all
    /// handles are dropped.
    ///
    /// # Errors
    ///
    /// As std's: no descriptor is free.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        self.0.try_clone().map(PipeWriter)
    }
}

end_of_pipe!(PipeReader, std::io::PipeReader);
reads!(PipeReader);
end_of_pipe!(PipeWriter, std::io::PipeWriter);
writes!(PipeWriter);

/// Implements the conversions that std's pipe types have, for a tuple struct of a [`File`].
macro_rules! end_of_pipe {
    ($name:ident, $std:ty) => {
        impl $name {
            pub(crate) fn file(&self) -> &$crate::fs::File {
                &self.0
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                // SAFETY: the descriptor is open while `self` is borrowed, and `ManuallyDrop` keeps
                // std's type from closing it.
                let std = unsafe {
                    <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(self.0.fd())
                };
                std::fmt::Debug::fmt(&*std::mem::ManuallyDrop::new(<$std>::from(std)), f)
            }
        }

        stands_for_std!(
            $name,
            $std,
            |it| it.0,
            |std| $name(std::os::fd::OwnedFd::from(std).into()),
            |end| std::os::fd::OwnedFd::from(end.0).into()
        );

        /// Uses this end as a child process's standard stream.
        impl From<$name> for std::process::Stdio {
            fn from(end: $name) -> std::process::Stdio {
                end.0.into()
            }
        }
    };
}
pub(super) use end_of_pipe;

/// `Read` of an end of a pipe, and of references to it.
macro_rules! reads {
    ($name:ident) => {
        reads_by!(&$name, |it| (&it.0));
        reads_by!($name, |it| (&*it));
    };
}
pub(super) use reads;

/// `Write` of an end of a pipe, and of references to it.
macro_rules! writes {
    ($name:ident) => {
        writes_by!(&$name, |it| (&it.0));
        writes_by!($name, |it| (&*it));
    };
}
pub(super) use writes;
