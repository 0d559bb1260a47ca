//! Copying from a reader to a writer.
//!
//! std finds out by specialisation that both ends are files. Stable Rust allows only a comparison
//! of types, so [`file_of`] lists the types that contain a [`File`]. Everything else, including
//! wrappers such as `Take`, `BufReader` and `dyn Read`, is copied through a buffer.

use super::child_pipe::{ChildStderr, ChildStdin, ChildStdout};
use super::pipe::{PipeReader, PipeWriter};
use crate::fs::{File, RANGE_BYTES, is_refused};
use cringle_core::worker::fairness;
use std::io::{self, ErrorKind, Read, Write};

/// The size of the buffer, in bytes: the capacity of a pipe.
const BUFFER_BYTES: usize = 64 << 10;

/// Copies all data of the reader to the writer, and returns the number of bytes, as
/// `std::io::copy`. May suspend the calling fiber.
///
/// Between two [`File`]s the kernel copies the data where it can (`copy_file_range`; some file
/// systems share the blocks instead), and the cursors move as for reads and writes. Other data,
/// such as data of sockets and pipes, goes through a buffer of 64 KiB, which costs less than
/// splicing through the ring.
///
/// # Errors
///
/// The errors of the reader and the writer, including
/// [`Cancelled`](cringle_core::cancelled::Cancelled), except `Interrupted`, after which it retries.
/// The data that was written before the error remains. After an error of the writer, up to a buffer
/// of data may have been read and not written, so the reader's position does not show how much was
/// written.
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
    // Copies the rest by hand. The kernel may refuse the files, and files of /proc report a length
    // of 0.
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

/// Returns the file inside a stream of the library that has no buffer of its own.
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

/// Returns the value as a `Known` if it has that type.
fn as_type<'a, Known, T: ?Sized>(value: &'a T) -> Option<&'a Known>
where
    Known: 'a,
{
    let is_same = typeid::of::<Known>() == typeid::of::<T>();
    // SAFETY: the contract of `typeid`: the types are equal up to lifetimes. `Known` is a type of
    // this library without lifetimes, or a reference to one, and `Known: 'a` limits the reference
    // to the borrow of `value`.
    is_same.then(|| unsafe { &*std::ptr::from_ref(value).cast::<Known>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the kernel is asked to copy from or to a stream of this type.
    fn has_file<T: ?Sized>(stream: &T) -> bool {
        file_of(stream).is_some()
    }

    #[test]
    fn files_are_found_in_streams_without_a_buffer() {
        let file = File::open("/dev/null").unwrap();
        assert!(has_file(&file) && has_file(&&file));
        let (reader, writer) = super::super::pipe::pipe().unwrap();
        assert!(has_file(&reader) && has_file(&&reader));
        assert!(has_file(&writer) && has_file(&&writer));
        assert!(!has_file(&io::BufReader::new(&file)) && !has_file(&(&file).take(1)));
        assert!(!has_file::<dyn Read>(&file));
    }
}
