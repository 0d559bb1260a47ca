//! Copying from a reader to a writer.
//!
//! std knows by specialisation that both ends are descriptors. On stable Rust the same is found out by
//! comparing types, for those that are listed in [`file_of`]; whatever wraps them (`Take`, `BufReader`,
//! a `dyn Read`) is copied through a buffer, as every other reader and writer.

use super::child_pipe::{ChildStderr, ChildStdin, ChildStdout};
use super::pipe::{PipeReader, PipeWriter};
use crate::fs::{File, RANGE_BYTES, is_refused};
use crate::runtime::worker::fairness;
use std::io::{self, ErrorKind, Read, Write};

/// Bytes for one read and write: what a pipe holds.
const BUFFER_BYTES: usize = 64 << 10;

/// Copies all that the reader has to the writer; how many bytes. As `std::io::copy`.
/// May suspend the calling fiber.
///
/// Between two [`File`]s the bytes do not leave the kernel (`copy_file_range`: on some file systems
/// nothing is copied but references), where it can; the cursors move as if they had. All else, a socket
/// or a pipe at one end included, goes through a buffer of 64 KiB: splices by the ring cost more.
///
/// ```
/// use cringle::{fs::File, io};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("copy");
/// cringle::run(|| -> io::Result<()> {
///     let copied = io::copy(&mut File::open("/proc/self/exe")?, &mut File::create(&path)?)?;
///     assert_eq!(copied, std::fs::metadata(&path)?.len());
///     assert_eq!(io::copy(&mut "strands".as_bytes(), &mut io::sink())?, 7);
///     Ok(())
/// })
/// # ?; Ok::<(), io::Error>(())
/// ```
///
/// # Errors
///
/// The reader's and the writer's, except `Interrupted`, after which it goes on; what was copied before is
/// copied. [`Cancelled`](crate::Cancelled) among them. After an error of the writer, up to a buffer of
/// bytes that were read may not have been written: the position of a file that was read does not tell.
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: ?Sized + Read,
    W: ?Sized + Write,
{
    fairness::spend();
    let within = match (file_of(reader), file_of(writer)) {
        (Some(from), Some(to)) => copy_within_kernel(from, to)?,
        _ => 0,
    };
    // What the kernel would not copy, or found nothing of: files of /proc say that they are empty.
    Ok(within + copy_by_hand(reader, writer)?)
}

fn copy_within_kernel(from: &File, to: &File) -> io::Result<u64> {
    let mut done = 0;
    loop {
        match from.copy_at_cursors(to, RANGE_BYTES as usize) {
            Ok(None | Some(0)) => return Ok(done),
            Ok(Some(count)) => done += count as u64,
            Err(e) if done == 0 && is_refused(&e) => return Ok(0),
            Err(e) => return Err(e),
        }
    }
}

fn copy_by_hand<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: ?Sized + Read,
    W: ?Sized + Write,
{
    let mut buf = vec![0; BUFFER_BYTES];
    let mut done = 0;
    loop {
        let count = match reader.read(&mut buf) {
            Ok(0) => return Ok(done),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            count => count?,
        };
        writer.write_all(&buf[..count])?;
        done += count as u64;
    }
}

/// The file that a stream of the library is made of, if it is one that has no buffer of its own.
fn file_of<T: ?Sized>(stream: &T) -> Option<&File> {
    if let Some(file) = as_type::<File, T>(stream) {
        return Some(file);
    }
    if let Some(file) = as_type::<&File, T>(stream) {
        return Some(file);
    }
    macro_rules! ends_of_pipes {
        ($($name:ty),*) => {
            $(if let Some(end) = as_type::<$name, T>(stream) {
                return Some(end.file());
            }
            if let Some(end) = as_type::<&$name, T>(stream) {
                return Some(end.file());
            })*
        };
    }
    ends_of_pipes!(PipeReader, PipeWriter, ChildStdin, ChildStdout, ChildStderr);
    None
}

/// The same value, if it is of this type.
fn as_type<'a, Known, T: ?Sized>(value: &'a T) -> Option<&'a Known>
where
    Known: 'a,
{
    let is_it = typeid::of::<Known>() == typeid::of::<T>();
    // SAFETY: the types are the same but for lifetimes. `Known` is a type of this library without one,
    // or a reference to it, which is then as short as the borrow.
    is_it.then(|| unsafe { &*std::ptr::from_ref(value).cast::<Known>() })
}
