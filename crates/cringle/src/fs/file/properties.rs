//! What is known of an open file, as bits: it decides which way each call on it takes.

use crate::sys::{self, FileKind};
use std::os::fd::RawFd;

pub(super) const KNOWN: u32 = 1;
pub(super) const REGULAR: u32 = 1 << 1;
pub(super) const SEEKABLE: u32 = 1 << 2;
pub(super) const DIRECT: u32 = 1 << 3;
pub(super) const APPEND: u32 = 1 << 4;
/// The file system answered that it cannot do a call without waiting.
pub(super) const NO_INLINE_READ: u32 = 1 << 5;
pub(super) const NO_INLINE_WRITE: u32 = 1 << 6;
/// It has no positions: a pipe, a terminal.
pub(super) const STREAM: u32 = 1 << 7;
/// It was opened by the name of a FIFO.
pub(super) const FIFO: u32 = 1 << 8;
/// A write that waits goes on until all is written.
pub(super) const WRITES_ALL: u32 = 1 << 9;
/// It is a device, or one of the kernel's anonymous files.
pub(super) const ODD: u32 = 1 << 10;
/// Each read is refused at once.
pub(super) const UNREADABLE: u32 = 1 << 11;
/// Each write is refused at once.
pub(super) const UNWRITABLE: u32 = 1 << 12;
/// It is written to at its cursor, if at all: `pwrite` refuses, where the ring would write.
pub(super) const NO_PWRITE: u32 = 1 << 13;
/// The file is on a FUSE file system: a ring would read and write at the wrong offsets.
pub(super) const OFF_RING: u32 = 1 << 14;

/// Only the kernel knows what a call does to the file's cursor: a file of `/proc` or `/sys`.
pub(super) const ODD_CURSOR: u32 = 1 << 15;
/// Its descriptor was lent or came from elsewhere: handles that the library does not know may share its cursor.
pub(super) const LENT: u32 = 1 << 16;
/// A call on it may wait though it is ready: a terminal, a sound card.
pub(super) const SLOW_DEVICE: u32 = 1 << 17;

pub(super) fn properties_of(fd: RawFd, kind: FileKind) -> u32 {
    let bit = |is: bool, bit: u32| if is { bit } else { 0 };
    let refused = match kind.odd {
        true => {
            let sys::Refusals { positions, reads, writes } = sys::refusals(fd);
            ODD | bit(positions, STREAM) | bit(reads, UNREADABLE) | bit(writes, UNWRITABLE)
        }
        false => bit(kind.stream, STREAM),
    };
    KNOWN
        | refused
        | bit(kind.regular, REGULAR)
        | bit(kind.seekable, SEEKABLE)
        | bit(kind.direct, DIRECT)
        | bit(kind.append, APPEND)
        | bit(kind.no_pwrite, NO_PWRITE)
        | bit(kind.off_ring, OFF_RING)
        | bit(kind.odd_cursor, ODD_CURSOR)
        | bit(kind.slow_device, SLOW_DEVICE)
        | bit(kind.pipe_or_socket, WRITES_ALL)
}
