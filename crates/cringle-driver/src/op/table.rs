//! The table of ops: one row for each, without a wildcard. Each row names the drivers that perform
//! the op.
//!
//! # A new op
//!
//! Choose its type by what performs it:
//!
//! - [`Syscall`], if no ring has it: a thread of the pool makes the call;
//! - [`FileOp`], if it is on an open file and waits only for storage. A kernel thread may perform
//!   it, so the ring submits a second entry, which says when the kernel has let go of the file
//!   (`uring/push.rs`);
//! - [`PathOp`], if it names a path;
//! - [`Transfer`] or [`SocketTransfer`], if it is a new way of reading or writing;
//! - otherwise, and always if it may wait for a peer, a variant of [`Op`].
//!
//! An `Op` has 32 bytes: larger arguments lie behind a pointer, as in `storage.rs`. Model callers
//! are `File::allocate` (`cringle-std/fs/space.rs`) and, if the op waits for a peer, `ready`
//! (`cringle-std/io/ready.rs`). A path with the name of a crate is one below its `src`.
//!
//! The compiler names the row here, `name.rs`, and `blocking.rs` or `syscall.rs`; for all but a
//! `Syscall` also `uring/encode.rs` and `cringle-sim/driver/perform.rs`; for a variant of `Op` also
//! `cringle-sim/driver/lent_memory.rs`, `epoll/enter.rs` and `epoll/nowait.rs`. By hand, for every
//! op:
//!
//! - `ring_use.rs`: a row, without which the opcode does not compile;
//! - `features.rs`: the opcode, in its feature's row, or in [`Features::NEEDED_OPS`] if every ring
//!   performs the op. A new feature may need a row in `docs/book/src/deploying.md`;
//! - `uring/push.rs`: an arm, if the op is frequent;
//! - `cringle-sim/driver/reap.rs`, `op_ended`: an op that returns a descriptor;
//! - tests in `crates/cringle/tests`, `fs` or `net`, and a statement in `crates/cringle-fuzz`.
//!
//! For a variant of `Op`:
//!
//! - [`Op::may_keep_file`] (and the list of `uring/tests/release.rs`), [`Op::may_need_thread`];
//! - `epoll/wait_queues.rs`, `interest`: the events of an op that waits for `Direction::Events`;
//! - `cringle-std/fiber/op.rs`, `perform_plainly`: on a regular file or a device, an op that waits
//!   for a peer is treated as a transfer;
//! - `epoll/flight.rs`, `Flight::follow`: an arm for an op that waits for a descriptor: without it
//!   the driver panics when the program closes that descriptor meanwhile. An op may wait for one
//!   descriptor only; of two, choose one;
//! - `epoll/enter.rs`, `Op::socket`: an op that holds its socket non-blocking while it waits;
//! - `cringle-sim/driver/perform.rs`, if the op waits for a peer: `would_block`, and an arm of
//!   `Core::perform`, as for `Accept`, because `perform_other` makes a blocking call;
//! - `cringle-run/diagnostics/stall.rs`, `waits_for_others`: an op that only another fiber ends.
//!
//! For any other op:
//!
//! - `uring/tests/release.rs`: the list of ops that keep their file, if it is a `FileOp`;
//! - `syscall.rs`, `Syscall::call`: an arm, if the call may wait or a program may interpose it;
//! - `epoll/nowait.rs`: a way without waiting, if one exists;
//! - `cringle-sim/driver/perform.rs`: the faults of an op on a path, other than `EIO`; that the op
//!   changed a file;
//! - `cringle-sim/driver/lent_memory.rs`: the memory of a `FileOp` or a `Syscall`;
//! - `cringle-sim/driver/sizes.rs`, `end_of`: that it may lengthen a file;
//! - `cringle-sim/driver/plain.rs`, `note_plain`: that it changes a file and may be a plain call.

use super::{AT_CURSOR, FileOp, FileRange, Op, OpName, PathOp};
use super::{SocketMemoryKind, SocketTransfer, Target, Transfer, Way};
use crate::syscall::{Syscall, XattrCall};
use crate::{Driver, Feature, Features};
use std::os::fd::RawFd;

/// Which rings perform an op.
#[derive(Clone, Copy)]
enum Rings {
    /// Every ring that Cringle uses.
    Every,
    /// Rings of kernels with this feature.
    With(Feature),
    No,
}

/// The drivers that perform an op. For the others, a thread of the pool makes the system call, if
/// the op has a system call; a simulation answers `ENOSYS`, lest the call reach the machine's
/// files.
#[derive(Clone, Copy)]
struct Drivers {
    rings: Rings,
    epoll: bool,
    simulation: bool,
}

/// Every driver.
const ALL: Drivers = Drivers { rings: Rings::Every, epoll: true, simulation: true };

/// A thread of the pool in place of a driver, except in a simulation.
const POOL: Drivers = Drivers { rings: Rings::No, epoll: false, ..ALL };

/// Rings alone: the op has a meaning only there.
const RINGS: Drivers = Drivers { epoll: false, simulation: false, ..ALL };

impl Drivers {
    /// Of the rings, only those of kernels with this feature.
    #[inline(always)]
    const fn with(self, feature: Feature) -> Drivers {
        Drivers { rings: Rings::With(feature), ..self }
    }

    #[inline(always)]
    const fn simulated(self, simulation: bool) -> Drivers {
        Drivers { simulation, ..self }
    }
}

/// Every driver; of the rings, those that have the ops on names, space and attributes.
const NAMES: Drivers = ALL.with(Feature::FileSystem);

/// What the library knows about an op. The table is inlined and each caller uses one column, so
/// that each call compiles to a match over that column alone.
#[derive(Clone, Copy)]
struct Row {
    name: OpName,
    drivers: Drivers,
    /// A descriptor, or a registered file; −1 for none. Of two files, the one that is written to.
    file: i32,
    /// An offset, a length, or the address of a path or a peer: see `PlaceKind`.
    place: u64,
    /// Whether another party decides when the op ends: a peer, or the holder of the other end.
    waits_for_peer: bool,
}

#[inline(always)]
fn row(name: OpName, drivers: Drivers) -> Row {
    Row { name, drivers, file: -1, place: 0, waits_for_peer: false }
}

impl Row {
    #[inline(always)]
    fn fd(self, fd: RawFd) -> Row {
        Row { file: fd, ..self }
    }

    #[inline(always)]
    fn target(self, target: Target) -> Row {
        Row { file: target.file(), ..self }
    }

    /// `AT_FDCWD` is no file.
    #[inline(always)]
    fn dir(self, fd: RawFd) -> Row {
        Row { file: fd.max(-1), ..self }
    }

    #[inline(always)]
    fn place(self, place: u64) -> Row {
        Row { place, ..self }
    }

    #[inline(always)]
    fn path<T>(self, address: *const T) -> Row {
        Row { place: address as u64, ..self }
    }

    /// A transfer at an offset. At the cursor there is no offset: the file is a pipe or a terminal,
    /// whose other end decides. (So does an append to a file, which has the same offset.)
    #[inline(always)]
    fn transfer(self, offset: u64) -> Row {
        Row { place: offset, waits_for_peer: offset == AT_CURSOR, ..self }
    }

    #[inline(always)]
    fn peer(self) -> Row {
        Row { waits_for_peer: true, ..self }
    }

    /// An op on a part of a file.
    #[inline(always)]
    fn range(self, range: *const FileRange) -> Row {
        // SAFETY: I1. The op has not ended, so the range that it points to is valid.
        self.place(unsafe { (*range).offset })
    }
}

/// The drivers of an op on a part of a file, whose length has 32 bits on a ring.
#[inline(always)]
fn of_short_range(range: *const FileRange) -> Drivers {
    // SAFETY: I1. The op has not ended, so the range that it points to is valid.
    if u32::try_from(unsafe { (*range).len }).is_ok() { NAMES } else { POOL }
}

/// Whether a call on attributes names a descriptor.
#[inline(always)]
fn names_descriptor(call: *const XattrCall) -> bool {
    // SAFETY: I1. The op has not ended, so the call that it points to is valid.
    unsafe { (*call).path.is_null() }
}

impl Op {
    #[inline(always)]
    fn row(&self) -> Row {
        use OpName as N;
        match *self {
            Op::Nop => row(N::Nop, ALL),
            Op::Transfer(Transfer { way, file, offset, .. }) => {
                let name = if way == Way::Read { N::Read } else { N::Write };
                row(name, ALL).target(file).transfer(offset)
            }
            Op::File(ref op) => op.row(),
            Op::Path(ref op) => op.row(),
            Op::Socket(SocketTransfer { way, kind, fd, .. }) => match (way, kind) {
                (Way::Read, _) => row(N::Receive, ALL).fd(fd).peer(),
                (Way::Write, SocketMemoryKind::ZeroCopy) => {
                    row(N::SendZc, ALL.with(Feature::SendZc)).fd(fd).peer()
                }
                (Way::Write, _) => row(N::Send, ALL).fd(fd).peer(),
            },
            Op::Poll { fd, .. } => row(N::Poll, ALL).fd(fd).peer(),
            Op::Accept { fd, .. } => row(N::Accept, ALL).fd(fd).peer(),
            Op::Connect { fd, addr, .. } => {
                row(N::Connect, ALL.simulated(false)).fd(fd).path(addr).peer()
            }
            Op::FutexWait { word, .. } => {
                row(N::Futex, RINGS.with(Feature::Futex)).path(word).peer()
            }
            Op::Syscall(ref call) => call.row(),
            Op::Raw(_) => row(N::Raw, RINGS),
        }
    }

    #[inline]
    pub fn name(&self) -> OpName {
        self.row().name
    }

    /// The file and the place that the op's completion keeps for reports.
    ///
    /// The frequent ops are matched first: their push stores two fields that it has at hand.
    #[inline(always)]
    pub fn file_and_place(&self) -> (i32, u64) {
        match *self {
            Op::Transfer(Transfer { file, offset, .. }) => (file.file(), offset),
            Op::Socket(SocketTransfer { fd, .. }) => (fd, 0),
            ref other => other.rare_file_and_place(),
        }
    }

    fn rare_file_and_place(&self) -> (i32, u64) {
        let row = self.row();
        (row.file, row.place)
    }

    /// Whether the op moves bytes from or to a place in a file, which a disk or the page cache
    /// answers.
    #[inline]
    pub(crate) fn is_positioned_transfer(&self) -> bool {
        matches!(*self, Op::Transfer(Transfer { offset, .. }) if offset != AT_CURSOR)
    }

    /// Whether another party decides when the op ends. Such an op does not count against the limit
    /// of ops in flight: if it did, ops that wait could keep out the op that ends their wait.
    #[inline(always)]
    pub fn waits_for_peer(&self) -> bool {
        self.row().waits_for_peer
    }

    /// Whether the kernel may keep the op's file for a while after the completion, so that a
    /// `close` would close nothing yet: on a ring, a kernel thread may perform the op, and it
    /// releases the file later. See `uring/push.rs`.
    ///
    /// Reads are not among them: the file systems that programs are written for answer them
    /// without a thread, and reads are what a database does most.
    #[inline(always)]
    pub(crate) fn may_keep_file(&self) -> bool {
        self.is_write() || matches!(self, Op::File(_))
    }

    /// Whether the op may fail where the kernel can start no thread: see `fiber/op.rs` of
    /// `cringle-std`. Reads at an offset are left out, as above.
    #[inline(always)]
    pub fn may_need_thread(&self) -> bool {
        self.may_keep_file()
            || matches!(self, Op::Transfer(Transfer { offset: AT_CURSOR, .. }) | Op::Path(_))
    }

    /// Whether a ring with these features performs the op.
    pub(crate) fn fits_ring(&self, features: Features) -> bool {
        match self.row().drivers.rings {
            Rings::Every => true,
            Rings::With(feature) => features.has(feature),
            Rings::No => false,
        }
    }

    /// Whether a simulation performs the op.
    pub fn fits_simulation(&self) -> bool {
        self.row().drivers.simulation
    }
}

impl Driver {
    /// Whether the driver performs the op.
    pub fn performs(&self, op: &Op) -> bool {
        match self {
            Driver::Uring(driver) => op.fits_ring(driver.features()),
            Driver::Epoll(_) => op.row().drivers.epoll,
            Driver::Simulated(_) => op.fits_simulation(),
        }
    }
}

impl FileOp {
    #[inline(always)]
    fn row(&self) -> Row {
        use OpName as N;
        match *self {
            FileOp::Sync { fd, .. } => row(N::Sync, ALL).fd(fd),
            FileOp::Close { fd } => row(N::Close, ALL).fd(fd),
            FileOp::SetLen { fd, len } => {
                row(N::SetLen, ALL.with(Feature::Ftruncate)).fd(fd).place(len)
            }
            FileOp::Allocate { fd, range, .. } => row(N::Allocate, NAMES).fd(fd).range(range),
            FileOp::Advise { fd, range, .. } => {
                row(N::Advise, of_short_range(range)).fd(fd).range(range)
            }
            FileOp::SyncRange { fd, range, .. } => {
                row(N::SyncRange, of_short_range(range)).fd(fd).range(range)
            }
            FileOp::GetXattr(call) => row(N::GetXattr, NAMES.simulated(names_descriptor(call))),
            FileOp::SetXattr(call) => row(N::SetXattr, NAMES.simulated(names_descriptor(call))),
        }
    }
}

impl PathOp {
    #[inline(always)]
    fn row(&self) -> Row {
        use OpName as N;
        let not_simulated = NAMES.simulated(false);
        match *self {
            PathOp::Open { path, .. } => row(N::Open, ALL).path(path),
            PathOp::OpenHow { path, .. } => row(N::Open, not_simulated).path(path),
            PathOp::Stat { path, .. } => row(N::Stat, ALL).path(path),
            PathOp::Unlink { path, .. } => row(N::Unlink, NAMES).path(path),
            PathOp::Rename { path, .. } => row(N::Rename, NAMES).path(path),
            PathOp::MakeDir { path, .. } => row(N::MakeDir, NAMES).path(path),
            PathOp::Symlink { path, .. } => row(N::Symlink, not_simulated).path(path),
            PathOp::Link { path, .. } => row(N::Link, not_simulated).path(path),
        }
    }
}

impl Syscall {
    #[inline(always)]
    fn row(&self) -> Row {
        use OpName as N;
        // A simulation makes calls on descriptors, which are of its own files.
        let not_simulated = POOL.simulated(false);
        match *self {
            Syscall::ReadDir { fd, .. } => row(N::ReadDir, not_simulated).dir(fd),
            Syscall::ReadLink { dir, path, .. } => {
                row(N::ReadLink, not_simulated).dir(dir).path(path)
            }
            Syscall::RealPath { path, .. } => row(N::RealPath, not_simulated).path(path),
            Syscall::SetMode { fd, path, .. } => {
                row(N::SetMode, POOL.simulated(path.is_null())).dir(fd).path(path)
            }
            Syscall::SetOwner { dir, path, .. } => {
                // SAFETY: I1. The op has not ended, so its path is a valid C string.
                let is_descriptor = unsafe { *path == 0 };
                row(N::SetOwner, POOL.simulated(is_descriptor)).dir(dir).path(path)
            }
            Syscall::SetTimes { fd, path, .. } => {
                row(N::SetTimes, POOL.simulated(path.is_null())).dir(fd).path(path)
            }
            Syscall::Lock { fd, .. } => row(N::Lock, POOL).dir(fd),
            Syscall::CopyRange { to, .. } => row(N::CopyRange, POOL).dir(to),
            Syscall::Clone { to, .. } => row(N::Clone, POOL).dir(to),
            Syscall::Discard { fd, .. } => row(N::Discard, POOL).dir(fd),
            Syscall::SetWriteLife { fd, .. } => row(N::SetWriteLife, POOL).dir(fd),
            Syscall::Seek { fd, .. } => row(N::Seek, POOL).dir(fd),
            Syscall::ListXattrs(call) => row(N::ListXattrs, POOL.simulated(names_descriptor(call))),
            Syscall::RemoveXattr(call) => {
                row(N::RemoveXattr, POOL.simulated(names_descriptor(call)))
            }
            Syscall::ChangeRoot { path } => row(N::ChangeRoot, not_simulated).path(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_ops_store_what_their_row_says() {
        let targets = [Target::fd(7), Target::fixed(3)];
        let (buf, len) = (std::ptr::null_mut::<u8>(), 0);
        for (target, offset) in targets.into_iter().flat_map(|t| [(t, 5), (t, AT_CURSOR)]) {
            for op in [
                Op::read(target, buf, len, offset),
                Op::write(target, buf, len, offset),
                Op::registered(Way::Read, target, buf, len, offset, 1),
                Op::registered(Way::Write, target, buf, len, offset, 1),
                Op::recv(7, buf, len, 0),
                Op::send(7, buf, len, 0),
            ] {
                assert_eq!(op.file_and_place(), op.rare_file_and_place(), "{op:?}");
            }
        }
    }
}
