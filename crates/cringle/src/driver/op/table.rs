//! The table of ops: one row for each, without a wildcard.
//!
//! A new op gets a variant of [`FileOp`], [`PathOp`] or [`Op`] (or of [`Syscall`], if no ring has
//! it) and a row here. The compiler then names the other places: `blocking.rs` performs the op as a
//! system call, `uring/encode.rs` encodes it for a ring, `epoll/nowait.rs` tries it without
//! waiting, `sim/lent_memory.rs` lists its memory, and `sim/perform.rs` draws its faults.
//!
//! The table is inlined and each caller uses one column, so that each call compiles to a match over
//! that column alone.

use super::{AT_CURSOR, FileOp, FileRange, Op, OpName, PathOp};
use super::{SocketMemoryKind, SocketTransfer, Target, Transfer, Way};
use crate::driver::syscall::Syscall;
use crate::driver::{Feature, Features};
use std::os::fd::RawFd;

/// Which rings perform an op.
#[derive(Clone, Copy)]
enum RingSupport {
    /// Every ring that Cringle uses.
    Always,
    /// Rings of kernels with this feature.
    With(Feature),
    /// None: the op is a system call on a thread of the pool.
    Never,
}

/// What the library knows about an op.
#[derive(Clone, Copy)]
struct Row {
    name: OpName,
    /// A descriptor, or a registered file; −1 for none. Of two files, the one that is written to.
    file: i32,
    /// An offset, a length, or the address of a path or a peer: see `PlaceKind`.
    place: u64,
    /// Whether another party decides when the op ends: a peer, or the holder of the other end.
    waits_for_peer: bool,
    ring: RingSupport,
}

#[inline(always)]
fn row(name: OpName) -> Row {
    Row { name, file: -1, place: 0, waits_for_peer: false, ring: RingSupport::Always }
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

    #[inline(always)]
    fn needs(self, feature: Feature) -> Row {
        Row { ring: RingSupport::With(feature), ..self }
    }

    /// An op on a part of a file.
    #[inline(always)]
    fn range(self, range: *const FileRange) -> Row {
        // SAFETY: I1. The op has not ended, so the range that it points to is valid.
        self.place(unsafe { (*range).offset }).needs(Feature::FileSystem)
    }

    /// As [`range`](Self::range), for an op whose length has 32 bits on a ring.
    #[inline(always)]
    fn short_range(self, range: *const FileRange) -> Row {
        // SAFETY: I1. As above.
        let fits = u32::try_from(unsafe { (*range).len }).is_ok();
        if fits { self.range(range) } else { self.range(range).off_ring() }
    }

    #[inline(always)]
    fn off_ring(self) -> Row {
        Row { ring: RingSupport::Never, ..self }
    }
}

impl Op {
    #[inline(always)]
    fn row(&self) -> Row {
        use OpName as N;
        match *self {
            Op::Nop => row(N::Nop),
            Op::Transfer(Transfer { way, file, offset, .. }) => {
                let name = if way == Way::Read { N::Read } else { N::Write };
                row(name).target(file).transfer(offset)
            }
            Op::File(ref op) => op.row(),
            Op::Path(ref op) => op.row(),
            Op::Socket(SocketTransfer { way, kind, fd, .. }) => match (way, kind) {
                (Way::Read, _) => row(N::Receive).fd(fd).peer(),
                (Way::Write, SocketMemoryKind::ZeroCopy) => {
                    row(N::SendZc).fd(fd).peer().needs(Feature::SendZc)
                }
                (Way::Write, _) => row(N::Send).fd(fd).peer(),
            },
            Op::Poll { fd, .. } => row(N::Poll).fd(fd).peer(),
            Op::Accept { fd, .. } => row(N::Accept).fd(fd).peer(),
            Op::Connect { fd, addr, .. } => row(N::Connect).fd(fd).path(addr).peer(),
            Op::FutexWait { word, .. } => row(N::Futex).path(word).peer().needs(Feature::Futex),
            Op::Syscall(ref call) => call.row().off_ring(),
            Op::Raw(_) => row(N::Raw),
        }
    }

    #[inline]
    pub(crate) fn name(&self) -> OpName {
        self.row().name
    }

    /// The file and the place that the op's completion keeps for reports.
    ///
    /// The frequent ops are matched first: their push stores two fields that it has at hand.
    #[inline(always)]
    pub(crate) fn file_and_place(&self) -> (i32, u64) {
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
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.row().waits_for_peer
    }

    /// Whether a ring may have a kernel thread perform the op. The thread releases the op's file
    /// some time after the completion, so that for a while `close` would close nothing: see
    /// `uring/push.rs`.
    ///
    /// Reads are not among them: the file systems that programs are written for answer them
    /// without a thread, and reads are what a database does most.
    #[inline(always)]
    pub(crate) fn may_keep_file(&self) -> bool {
        self.is_write() || matches!(self, Op::File(_))
    }

    /// Whether a ring may have a kernel thread perform the op. Reads at an offset are left out, as
    /// above.
    #[inline(always)]
    pub(crate) fn may_need_thread(&self) -> bool {
        self.may_keep_file()
            || matches!(self, Op::Transfer(Transfer { offset: AT_CURSOR, .. }) | Op::Path(_))
    }

    /// Whether a ring with these features performs the op.
    pub(crate) fn fits_ring(&self, features: Features) -> bool {
        match self.row().ring {
            RingSupport::Always => true,
            RingSupport::With(feature) => features.has(feature),
            RingSupport::Never => false,
        }
    }
}

impl FileOp {
    #[inline(always)]
    fn row(&self) -> Row {
        use OpName as N;
        match *self {
            FileOp::Sync { fd, .. } => row(N::Sync).fd(fd),
            FileOp::Close { fd } => row(N::Close).fd(fd),
            FileOp::SetLen { fd, len } => {
                row(N::SetLen).fd(fd).place(len).needs(Feature::Ftruncate)
            }
            FileOp::Allocate { fd, range, .. } => row(N::Allocate).fd(fd).range(range),
            FileOp::Advise { fd, range, .. } => row(N::Advise).fd(fd).short_range(range),
            FileOp::SyncRange { fd, range, .. } => row(N::SyncRange).fd(fd).short_range(range),
            FileOp::GetXattr(_) => row(N::GetXattr).needs(Feature::FileSystem),
            FileOp::SetXattr(_) => row(N::SetXattr).needs(Feature::FileSystem),
        }
    }
}

impl PathOp {
    #[inline(always)]
    fn row(&self) -> Row {
        use OpName as N;
        let row = |name, path| row(name).path(path);
        match *self {
            PathOp::Open { path, .. } => row(N::Open, path),
            PathOp::OpenHow { path, .. } => row(N::Open, path).needs(Feature::FileSystem),
            PathOp::Stat { path, .. } => row(N::Stat, path),
            PathOp::Unlink { path, .. } => row(N::Unlink, path).needs(Feature::FileSystem),
            PathOp::Rename { path, .. } => row(N::Rename, path).needs(Feature::FileSystem),
            PathOp::MakeDir { path, .. } => row(N::MakeDir, path).needs(Feature::FileSystem),
            PathOp::Symlink { path, .. } => row(N::Symlink, path).needs(Feature::FileSystem),
            PathOp::Link { path, .. } => row(N::Link, path).needs(Feature::FileSystem),
        }
    }
}

impl Syscall {
    fn row(&self) -> Row {
        use OpName as N;
        match *self {
            Syscall::ReadDir { fd, .. } => row(N::ReadDir).dir(fd),
            Syscall::ReadLink { dir, path, .. } => row(N::ReadLink).dir(dir).path(path),
            Syscall::RealPath { path, .. } => row(N::RealPath).path(path),
            Syscall::SetMode { fd, path, .. } => row(N::SetMode).dir(fd).path(path),
            Syscall::SetOwner { dir, path, .. } => row(N::SetOwner).dir(dir).path(path),
            Syscall::SetTimes { fd, path, .. } => row(N::SetTimes).dir(fd).path(path),
            Syscall::Lock { fd, .. } => row(N::Lock).dir(fd),
            Syscall::CopyRange { to, .. } => row(N::CopyRange).dir(to),
            Syscall::Clone { to, .. } => row(N::Clone).dir(to),
            Syscall::Discard { fd, .. } => row(N::Discard).dir(fd),
            Syscall::SetWriteLife { fd, .. } => row(N::SetWriteLife).dir(fd),
            Syscall::Seek { fd, .. } => row(N::Seek).dir(fd),
            Syscall::ListXattrs(_) => row(N::ListXattrs),
            Syscall::RemoveXattr(_) => row(N::RemoveXattr),
            Syscall::ChangeRoot { path } => row(N::ChangeRoot).path(path),
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
