//! The table of ops: one row for each, without a wildcard.
//!
//! A new op gets a variant of [`Op`] (or of [`Syscall`]) and a row here. The compiler then names
//! the other places: `blocking.rs` performs the op as a system call, `uring/encode.rs` encodes it
//! for a ring, `epoll/nowait.rs` tries it without waiting, and `sim/lent_memory.rs` lists its
//! memory. Four places have wildcards: [`Op::transfer`], [`Op::may_keep_file`],
//! [`Op::may_need_thread`], and the faults in `sim/perform.rs`.
//!
//! The table is inlined and each caller uses one column, so that each call compiles to a match over
//! that column alone.

use super::{AT_CURSOR, Op, OpName, Target};
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
    /// Whether the op moves bytes from or to a place in a file, which a disk or the page cache
    /// answers.
    is_positioned: bool,
    /// Whether another party decides when the op ends: a peer, or the holder of the other end.
    waits_for_peer: bool,
    ring: RingSupport,
}

#[inline(always)]
fn row(name: OpName) -> Row {
    Row {
        name,
        file: -1,
        place: 0,
        is_positioned: false,
        waits_for_peer: false,
        ring: RingSupport::Always,
    }
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
        let at_cursor = offset == AT_CURSOR;
        Row { place: offset, is_positioned: !at_cursor, waits_for_peer: at_cursor, ..self }
    }

    /// A transfer at an offset, from or to a registered buffer.
    #[inline(always)]
    fn fixed_transfer(self, offset: u64) -> Row {
        Row { place: offset, is_positioned: offset != AT_CURSOR, ..self }
    }

    #[inline(always)]
    fn peer(self) -> Row {
        Row { waits_for_peer: true, ..self }
    }

    #[inline(always)]
    fn needs(self, feature: Feature) -> Row {
        Row { ring: RingSupport::With(feature), ..self }
    }

    /// As [`needs`](Self::needs), for an op whose length has 32 bits on a ring.
    #[inline(always)]
    fn needs_for_len(self, feature: Feature, len: u64) -> Row {
        let fits = u32::try_from(len).is_ok();
        Row { ring: if fits { RingSupport::With(feature) } else { RingSupport::Never }, ..self }
    }

    #[inline(always)]
    fn off_ring(self) -> Row {
        Row { ring: RingSupport::Never, ..self }
    }
}

impl Op {
    #[inline(always)]
    fn row(&self) -> Row {
        use Feature::{FileSystem, Ftruncate};
        use OpName as N;
        match *self {
            Op::Nop => row(N::Nop),
            Op::Read { target, offset, .. } => row(N::Read).target(target).transfer(offset),
            Op::Write { target, offset, .. } => row(N::Write).target(target).transfer(offset),
            Op::ReadFixed { target, offset, .. } => {
                row(N::Read).target(target).fixed_transfer(offset)
            }
            Op::WriteFixed { target, offset, .. } => {
                row(N::Write).target(target).fixed_transfer(offset)
            }
            Op::ReadVectored { fd, offset, .. } => row(N::Read).fd(fd).transfer(offset),
            Op::WriteVectored { fd, offset, .. } => row(N::Write).fd(fd).transfer(offset),
            Op::Sync { fd, .. } => row(N::Sync).fd(fd),
            Op::Open { path, .. } => row(N::Open).path(path),
            Op::OpenHow { path, .. } => row(N::Open).path(path).needs(FileSystem),
            Op::Close { fd } => row(N::Close).fd(fd),
            Op::Stat { path, .. } => row(N::Stat).path(path),
            Op::SetLen { fd, len } => row(N::SetLen).fd(fd).place(len).needs(Ftruncate),
            Op::Poll { fd, .. } => row(N::Poll).fd(fd).peer(),
            Op::Unlink { path, .. } => row(N::Unlink).path(path).needs(FileSystem),
            Op::Rename { from, .. } => row(N::Rename).path(from).needs(FileSystem),
            Op::MakeDir { path, .. } => row(N::MakeDir).path(path).needs(FileSystem),
            Op::Symlink { path, .. } => row(N::Symlink).path(path).needs(FileSystem),
            Op::Link { from, .. } => row(N::Link).path(from).needs(FileSystem),
            Op::Allocate { fd, offset, .. } => {
                row(N::Allocate).fd(fd).place(offset).needs(FileSystem)
            }
            Op::Advise { fd, offset, len, .. } => {
                row(N::Advise).fd(fd).place(offset).needs_for_len(FileSystem, len)
            }
            Op::SyncRange { fd, offset, len, .. } => {
                row(N::SyncRange).fd(fd).place(offset).needs_for_len(FileSystem, len)
            }
            Op::GetXattr(_) => row(N::GetXattr).needs(FileSystem),
            Op::SetXattr(_) => row(N::SetXattr).needs(FileSystem),
            Op::Recv { fd, .. } | Op::RecvMsg { fd, .. } => row(N::Receive).fd(fd).peer(),
            Op::Send { fd, .. } | Op::SendMsg { fd, .. } => row(N::Send).fd(fd).peer(),
            Op::SendZc { fd, .. } => row(N::SendZc).fd(fd).peer().needs(Feature::SendZc),
            Op::Accept { fd, .. } => row(N::Accept).fd(fd).peer(),
            Op::Connect { fd, addr, .. } => row(N::Connect).fd(fd).path(addr).peer(),
            Op::FutexWait { word, .. } => row(N::Futex).path(word).peer().needs(Feature::Futex),
            Op::Syscall(call) => call.row().off_ring(),
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
            Op::Read { target, offset, .. }
            | Op::Write { target, offset, .. }
            | Op::ReadFixed { target, offset, .. }
            | Op::WriteFixed { target, offset, .. } => (target.file(), offset),
            Op::Recv { fd, .. } | Op::Send { fd, .. } => (fd, 0),
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
        self.row().is_positioned
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
        self.is_write()
            || matches!(
                self,
                Op::Sync { .. }
                    | Op::SetLen { .. }
                    | Op::Allocate { .. }
                    | Op::Advise { .. }
                    | Op::SyncRange { .. }
                    | Op::GetXattr(_)
                    | Op::SetXattr(_)
                    | Op::Close { .. }
            )
    }

    /// Whether a ring may have a kernel thread perform the op. Reads at an offset are left out, as
    /// above.
    #[inline(always)]
    pub(crate) fn may_need_thread(&self) -> bool {
        self.may_keep_file()
            || matches!(
                self,
                Op::Read { offset: AT_CURSOR, .. }
                    | Op::ReadVectored { offset: AT_CURSOR, .. }
                    | Op::Open { .. }
                    | Op::OpenHow { .. }
                    | Op::Stat { .. }
                    | Op::Unlink { .. }
                    | Op::Rename { .. }
                    | Op::MakeDir { .. }
                    | Op::Symlink { .. }
                    | Op::Link { .. }
            )
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
                Op::Read { target, buf, len, offset },
                Op::Write { target, buf, len, offset },
                Op::ReadFixed { target, buf, len, offset, index: 1 },
                Op::WriteFixed { target, buf, len, offset, index: 1 },
                Op::Recv { fd: 7, buf, len, flags: 0 },
                Op::Send { fd: 7, buf, len, flags: 0 },
            ] {
                assert_eq!(op.file_and_place(), op.rare_file_and_place(), "{op:?}");
            }
        }
    }
}
