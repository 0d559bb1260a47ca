//! Completing a write that stopped short.
//!
//! A blocking `write` to a pipe or a socket returns when all bytes are written. The ring and epoll
//! drivers write what there is room for, so further ops write the rest.

use cringle_sys::{MAX_RW_BYTES, MAX_SLICES};
use std::io::{self, IoSlice};

/// Writes `len` bytes, by `write` from one of them on, as one call: further ops write what the
/// first one has left, if the file `waits_for_room`.
#[inline(always)]
pub(crate) fn write_fully(
    len: usize,
    waits_for_room: impl FnOnce() -> bool,
    write: impl Fn(usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let (len, done) = (len.min(MAX_RW_BYTES), write(0)?);
    if (1..len).contains(&done) && waits_for_room() {
        return write_rest(done, len, write);
    }
    Ok(done)
}

/// [`write_fully`] for the slices of one call.
#[inline(always)]
pub(crate) fn write_slices_fully(
    bufs: &[IoSlice<'_>],
    waits_for_room: impl FnOnce() -> bool,
    write: impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<usize> {
    let bufs = &bufs[..bufs.len().min(MAX_SLICES)];
    let len = bufs.iter().map(|buf| buf.len()).sum();
    write_fully(len, waits_for_room, |done| match done {
        0 => write(bufs),
        _ => write(&rest_of(bufs, done)),
    })
}

/// Writes the rest of `len` bytes, of which `done` are written, and returns the total. An error
/// ends the write without being returned: the next write returns it.
#[cold]
fn write_rest(
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
fn rest_of<'a>(bufs: &'a [IoSlice<'a>], done: usize) -> Vec<IoSlice<'a>> {
    let mut skipped = done;
    let mut rest = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let from = skipped.min(buf.len());
        skipped -= from;
        rest.push(IoSlice::new(&buf[from..]));
    }
    rest
}
