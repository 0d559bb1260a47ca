//! Completing a write that stopped short.
//!
//! A blocking `write` to a pipe or a socket returns when all bytes are written. The ring and epoll
//! drivers write what there is room for, so further ops write the rest.

use std::io::{self, IoSlice};

/// Writes the rest of `len` bytes, of which `done` are written, and returns the total. An error
/// ends the write without being returned: the next write returns it.
#[cold]
pub(crate) fn write_rest(
    mut done: usize,
    len: usize,
    write: impl Fn(usize) -> io::Result<usize>,
) -> io::Result<usize> {
    while done < len {
        match write(done) {
            Ok(count @ 1..) => done += count,
            _ => break,
        }
    }
    Ok(done)
}

/// Returns the slices without their first `done` bytes.
#[cold]
pub(crate) fn rest_of<'a>(bufs: &'a [IoSlice<'a>], done: usize) -> Vec<IoSlice<'a>> {
    let mut skipped = done;
    let mut rest = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let from = skipped.min(buf.len());
        skipped -= from;
        rest.push(IoSlice::new(&buf[from..]));
    }
    rest
}
