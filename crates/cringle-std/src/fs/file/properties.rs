//! The properties of an open file, as bits that decide how each call on it is performed.
//!
//! They are looked up at the first call that needs them and kept in [`File::properties`]: a word
//! that is 0 means unknown.
//!
//! # A new kind of file
//!
//! It is a field of [`FileKind`] (`cringle-sys/file_kind.rs`) and a bit here. (A path with the name
//! of a crate is one below its `src`.) The compiler names one place, `file_kind_of` beside that
//! type, which sets the field from the file's mode, status flags and file system.
//! [`File::properties`] looks it up once for each handle. By hand:
//!
//! - [`properties_of`], which sets the bit (except [`FIFO`], which `File::of_kind` sets);
//! - the masks of the calls that the kind excludes: [`SPECIAL_TO_READ`], and those of
//!   [`File::is_batchable_to_write`], [`File::is_on_local_storage`] and
//!   [`File::refuses_at_offset`];
//! - `fs/own_ops.rs`, `File::performs_itself`: a case for the kind. Without it, the route of its
//!   ops in a batch is `Route::Plain`, and the driver gets them although the masks exclude them.
//!   For registered files `cringle-storage/fixed.rs` has the same cases, in `register` and
//!   `handle_for`;
//! - `Description::is_ordinary`: if it is true for a file, a batch reads it as a regular file, and
//!   later look-ups see only its status flags. So a new kind must make it false;
//! - `transfer.rs`: a regular file takes the fast path unless its bit is in the mask of
//!   `File::transfer`, which has `OFF_RING`. `File::transfer_irregular` then chooses plain call,
//!   ring or thread. `File::ring` chooses the plain call for a fiber that unwinds ([`REGULAR`]) or
//!   is solitary ([`SEEKABLE`]);
//! - `inline.rs`, `File::tries_inline`: the bits that exclude a call without waiting. A file that
//!   `fresh.rs` reads is of an unknown kind: the kernel must refuse `RWF_NOWAIT` for the kind, or
//!   such a read must return what a plain one does. Else `open.rs` must not make it fresh;
//! - [`FileKind::waits_for`] and [`File::waits_for`], which must agree: what a call at the cursor
//!   may wait for; `fs/cursor.rs` and `fs/kernel_cursor.rs`, which compare it; and
//!   `File::uses_kernels_cursor`, whether such a call is one system call;
//! - `fs/bounce/mod.rs`: `Bounce::end_of`, whether `fstat` may wait for a server, and `is_device`;
//!   `cringle-driver/iopoll.rs`, `device_of`: whether the polled ring performs its ops;
//! - `cringle-driver/epoll/nowait.rs`: how a call returns without waiting, in its table and its
//!   code;
//! - `cringle-sys/slow_close.rs`: whether `close` may wait;
//! - code that classifies a descriptor itself: `io/stdio/raw.rs`, `fiber/op.rs`,
//!   `fs/{open,copy,device_hints,bounce/locks}.rs`, `cringle-sys/report.rs`,
//!   `cringle-core/worker/snapshot.rs`, `cringle-storage/{settle,mapped/mod,log/recovery}.rs`,
//!   `cringle-sim/driver/perform.rs`, `cringle-interpose/{transfer,files,modes}.rs`; `file.rs` and
//!   `open.rs` of `bindings/python`.
//!
//! A test of the kind belongs to `crates/cringle/tests/fs`.

use super::File;
use cringle_sys::{self as sys, FileKind};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

/// The other bits are valid.
pub(super) const KNOWN: u32 = 1;
/// Reads and writes wait only for storage.
pub(super) const REGULAR: u32 = 1 << 1;
pub(super) const SEEKABLE: u32 = 1 << 2;
/// The file is opened with `O_DIRECT`.
pub(super) const DIRECT: u32 = 1 << 3;
/// The file is opened with `O_APPEND`.
pub(super) const APPEND: u32 = 1 << 4;
/// The file system does not support `RWF_NOWAIT` reads.
pub(super) const NO_INLINE_READ: u32 = 1 << 5;
/// The file system does not support `RWF_NOWAIT` writes.
pub(super) const NO_INLINE_WRITE: u32 = 1 << 6;
/// The file has no positions: a pipe or a terminal.
pub(super) const STREAM: u32 = 1 << 7;
/// The file was opened by the path of a FIFO.
pub(super) const FIFO: u32 = 1 << 8;
/// A blocking write returns only when all bytes are written: a pipe or a socket.
pub(super) const WRITES_ALL: u32 = 1 << 9;
/// The file is a device, or one of the kernel's anonymous files.
pub(super) const ODD: u32 = 1 << 10;
/// The kernel refuses each read at once.
pub(super) const UNREADABLE: u32 = 1 << 11;
/// The kernel refuses each write at once.
pub(super) const UNWRITABLE: u32 = 1 << 12;
/// `pwrite` is refused, where a ring would write at the cursor.
pub(super) const NO_PWRITE: u32 = 1 << 13;
/// The file is on a FUSE file system: a ring would read and write at the wrong offsets.
pub(super) const OFF_RING: u32 = 1 << 14;
/// Only the kernel knows how a call moves the cursor: a file of `/proc` or `/sys`.
pub(super) const ODD_CURSOR: u32 = 1 << 15;
/// Handles that the library does not know may share the cursor: the descriptor was lent, or came
/// from another type.
pub(super) const LENT: u32 = 1 << 16;
/// A call may wait although `poll` reports the file ready: a terminal or a sound card.
pub(super) const SLOW_DEVICE: u32 = 1 << 17;

/// The file was opened with [`Direct::Bounce`](crate::fs::Direct).
pub(in crate::fs) const BOUNCE: u32 = 1 << 18;
/// Each write returns when its bytes are durable: the file is opened with `O_DSYNC` or `O_SYNC`.
pub(in crate::fs) const DURABLE: u32 = 1 << 19;

/// The file is a regular one of a file system on a disk or in memory, so a batch may read it. The
/// bit may be set without [`KNOWN`], and is valid then.
const ORDINARY: u32 = 1 << 20;
/// The file is [fresh](super::fresh): no bit is known, and none is set but [`MOVED`].
pub(super) const FRESH: u32 = 1 << 21;
/// While the file was fresh, a read moved its cursor to a place within a page.
pub(super) const MOVED: u32 = 1 << 22;

/// The properties with which a batch does not simply read a file.
const SPECIAL_TO_READ: u32 = STREAM | UNREADABLE | OFF_RING | BOUNCE;

pub(super) fn properties_of(fd: RawFd, kind: FileKind) -> u32 {
    let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    let refused = if kind.odd {
        let sys::Refusals { positions, reads, writes } = sys::refusals(fd);
        ODD | bit(positions, STREAM) | bit(reads, UNREADABLE) | bit(writes, UNWRITABLE)
    } else {
        bit(kind.stream, STREAM)
    };
    KNOWN
        | refused
        | bit(kind.regular, REGULAR)
        | bit(kind.seekable, SEEKABLE)
        | bit(kind.direct, DIRECT)
        | bit(kind.append, APPEND)
        | bit(kind.durable && kind.seekable && !kind.no_pwrite, DURABLE)
        | bit(kind.no_pwrite, NO_PWRITE)
        | bit(kind.off_ring, OFF_RING)
        | bit(kind.odd_cursor, ODD_CURSOR)
        | bit(kind.slow_device, SLOW_DEVICE)
        | bit(kind.pipe_or_socket, WRITES_ALL)
}

impl File {
    /// Returns the property bits, after looking them up at the first call.
    #[inline]
    pub(super) fn properties(&self) -> u32 {
        match self.properties.load(Ordering::Relaxed) {
            properties if properties & KNOWN != 0 => properties,
            _ => self.look_up_properties(),
        }
    }

    #[cold]
    fn look_up_properties(&self) -> u32 {
        if self.settle() {
            let kind = sys::file_kind_with(self.fd(), libc::O_RDONLY);
            return self.add_properties_of(kind);
        }
        let is_ordinary = self.properties.load(Ordering::Relaxed) & ORDINARY != 0;
        self.look_up_described(if is_ordinary {
            sys::Description::ORDINARY
        } else {
            sys::description(self.fd())
        })
    }

    fn look_up_described(&self, description: sys::Description) -> u32 {
        self.add_properties_of(sys::file_kind_of_described(self.fd(), description))
    }

    fn add_properties_of(&self, kind: FileKind) -> u32 {
        let properties = properties_of(self.fd(), kind);
        self.properties.fetch_or(properties, Ordering::Relaxed) | properties
    }

    /// Looks up the properties that matter to a batch's reads, as bits of [`SPECIAL_TO_READ`]. An
    /// ordinary file has none of them, whatever its status flags, so one system call is enough for
    /// it: a program that lends a descriptor for one batch pays for each call.
    #[cold]
    fn look_up_special_to_read(&self) -> u32 {
        let description = sys::description(self.fd());
        if description.is_ordinary() {
            self.properties.fetch_or(ORDINARY, Ordering::Relaxed)
        } else {
            self.look_up_described(description)
        }
    }

    /// Adds a property that a call has found out.
    #[cold]
    pub(in crate::fs) fn add_property(&self, bit: u32) {
        self.properties.fetch_or(bit, Ordering::Relaxed);
    }

    pub(in crate::fs) fn is_seekable(&self) -> bool {
        self.properties() & SEEKABLE != 0
    }

    /// Whether each write returns when its bytes are durable.
    #[inline]
    pub(crate) fn writes_durably(&self) -> bool {
        self.properties() & DURABLE != 0
    }

    pub(in crate::fs) fn appends(&self) -> bool {
        self.properties() & APPEND != 0
    }

    /// Whether the file can be written only at its cursor, if at all.
    pub(in crate::fs) fn takes_no_pwrite(&self) -> bool {
        self.properties() & NO_PWRITE != 0
    }

    /// Whether the file has no positions. A ring would read at the cursor where `pread` is refused.
    #[inline]
    pub(in crate::fs) fn is_stream(&self) -> bool {
        self.properties() & STREAM != 0
    }

    /// Whether a ring would read and write the file at the wrong offsets.
    #[inline]
    pub(crate) fn is_off_ring(&self) -> bool {
        self.properties() & OFF_RING != 0
    }

    /// Whether the file is a regular one of a local disk or of memory, so that a mapping of it
    /// shows what a read returns, and waits for no server.
    pub(crate) fn is_on_local_storage(&self) -> bool {
        self.properties() & (REGULAR | STREAM | OFF_RING | ODD_CURSOR) == REGULAR
    }

    /// Whether a batch may read the file without special care.
    #[inline]
    pub(crate) fn is_batchable_to_read(&self) -> bool {
        let properties = match self.properties.load(Ordering::Relaxed) {
            properties if properties & (KNOWN | ORDINARY) != 0 => properties,
            _ => self.look_up_special_to_read(),
        };
        properties & SPECIAL_TO_READ == 0
    }

    /// Whether a batch may write the file without special care.
    #[inline]
    pub(crate) fn is_batchable_to_write(&self) -> bool {
        let special = STREAM | UNWRITABLE | NO_PWRITE | OFF_RING | BOUNCE | DURABLE;
        self.properties() & special == 0
    }

    /// Returns the `errno` by which the kernel refuses each read or write at an offset, if it does.
    pub(in crate::fs) fn refuses_at_offset(&self, is_write: bool) -> Option<i32> {
        let refusing = if is_write { STREAM | UNWRITABLE | NO_PWRITE } else { STREAM | UNREADABLE };
        let call = || match is_write {
            true => sys::pwrite(self.fd(), &[], 0),
            false => sys::pread(self.fd(), &mut [], 0),
        };
        (self.properties() & refusing != 0).then(call)?.err()?.raw_os_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn opened(path: &std::path::Path, append: bool) -> File {
        let mut options = OpenOptions::new();
        File::from(options.read(true).append(append).open(path).unwrap())
    }

    #[test]
    fn batched_read_first_changes_no_property() {
        let place = tempfile::NamedTempFile::new().unwrap();
        for path in [place.path(), "/proc/self/stat".as_ref(), "/dev/null".as_ref()] {
            for append in [false, path == place.path()] {
                let (first, other) = (opened(path, append), opened(path, append));
                assert!(first.is_batchable_to_read());
                assert_eq!(first.properties() & !ORDINARY, other.properties());
                assert_eq!(first.appends(), append);
                assert_eq!(first.is_batchable_to_write(), other.is_batchable_to_write());
            }
        }
    }

    #[test]
    fn pipe_is_not_read_by_a_batch() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!File::from(std::os::fd::OwnedFd::from(reader)).is_batchable_to_read());
    }
}
