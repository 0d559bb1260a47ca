//! The memory lent to an op, and whether other code has used it.
//!
//! Until the op is performed, the memory that it will write is filled with a pattern, and the
//! memory that it will read is remembered by a hash. From the op to the reaping of its completion,
//! both are remembered by a hash. A fiber that resumed too early would use its buffer or return
//! from the frame that holds it, and the hash would differ. The bytes beyond a short count keep
//! their old values.

use super::rng::mix;
use cringle_driver::{Memory, Op, PathOp, SocketMemory, Way};
use std::ffi::c_char;

/// See the module.
pub(super) struct LentMemory {
    pieces: Vec<Piece>,
    /// The contents of memory that the op will write, from before the pattern.
    saved: Option<Vec<u8>>,
    hash: u64,
}

#[derive(Clone, Copy)]
struct Piece {
    start: *mut u8,
    len: usize,
}

const POISON: u8 = 0xDB;

impl Piece {
    fn new(start: *const u8, len: usize) -> Piece {
        Piece { start: start.cast_mut(), len }
    }

    /// # Safety
    ///
    /// I1: the op that the memory was lent to has not ended.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        match self.len {
            0 => &[],
            // SAFETY: I1. The frame that pushed the op keeps its memory until nothing is owed to
            // it, and by the contract something is. Other code must not write to it; that is what
            // is checked.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }
}

impl LentMemory {
    /// Records the memory lent to an op, and fills the part that it will write with a pattern.
    ///
    /// # Safety
    ///
    /// I1: the op's pointers are valid until it has ended, and no other code uses what it writes
    /// to.
    pub(super) unsafe fn take(op: &Op) -> LentMemory {
        // SAFETY: by the contract.
        let (pieces, writes) = unsafe { pieces_of(op) };
        let mut lent = LentMemory { pieces, saved: None, hash: 0 };
        if writes {
            let saved = lent.pieces.iter().flat_map(|piece| {
                // SAFETY: I1, by the contract: the op has not ended.
                unsafe { piece.bytes() }.iter().copied()
            });
            lent.saved = Some(saved.collect());
            for piece in &lent.pieces {
                // SAFETY: I1, by the contract: the op may write to it, and no other code uses it.
                unsafe { piece.start.write_bytes(POISON, piece.len) };
            }
        }
        lent.hash = lent.hash_now();
        lent
    }

    /// Restores the caller's contents before the op is performed or cancelled. Returns whether no
    /// other code has changed the memory.
    pub(super) fn give_to_op(&mut self) -> bool {
        let untouched = self.is_untouched();
        if let Some(saved) = self.saved.take() {
            let mut rest = &saved[..];
            for piece in &self.pieces {
                let (here, after) = rest.split_at(piece.len);
                rest = after;
                // SAFETY: I1. As for the pattern: the op may write to it. The saved bytes are of
                // the same pieces, whose lengths do not change.
                unsafe { piece.start.copy_from_nonoverlapping(here.as_ptr(), piece.len) };
            }
        }
        untouched
    }

    /// Records the contents after the op, which must stay until its completion is reaped.
    pub(super) fn seal(&mut self) {
        self.hash = self.hash_now();
    }

    /// Whether the memory is unchanged since it was lent or sealed.
    pub(super) fn is_untouched(&self) -> bool {
        self.hash == self.hash_now()
    }

    fn hash_now(&self) -> u64 {
        self.pieces.iter().fold(0, |hash, piece| {
            // SAFETY: I1. The completion has not been reaped, so something is owed to the frame.
            hash_bytes(hash, unsafe { piece.bytes() })
        })
    }

    #[cfg(any(test, feature = "sabotage"))]
    pub(super) fn touch(&self) {
        if let Some(piece) = self.pieces.iter().find(|piece| piece.len > 0) {
            // SAFETY: I1. The memory is valid until the completion is reaped. (The caller does not
            // expect the change: that is the sabotage.)
            unsafe { *piece.start = (*piece.start).wrapping_add(1) };
        }
    }
}

pub(super) fn hash_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(hash ^ bytes.len() as u64, |hash, word| {
        (hash.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    mix(rest.iter().fold(hash, |hash, &byte| hash.wrapping_mul(257) ^ u64::from(byte)))
}

/// The memory that an op points to, and whether it writes to it.
///
/// # Safety
///
/// I1: the op's pointers are valid.
unsafe fn pieces_of(op: &Op) -> (Vec<Piece>, bool) {
    // SAFETY: by the contract.
    let of_slices = |slices: *const libc::iovec, count: u32| unsafe {
        let slices = std::slice::from_raw_parts(slices, count as usize);
        slices.iter().map(|slice| Piece::new(slice.iov_base.cast(), slice.iov_len)).collect()
    };
    // SAFETY: by the contract, it is a C string.
    let of_path =
        |path: *const c_char| unsafe { vec![Piece::new(path.cast(), libc::strlen(path) + 1)] };
    match *op {
        Op::Transfer(transfer) => {
            let pieces = match transfer.memory() {
                Memory::Bytes { start, len } => vec![Piece::new(start, len as usize)],
                Memory::Slices { slices, count } => of_slices(slices, count),
            };
            (pieces, transfer.way == Way::Read)
        }
        Op::Path(PathOp::Stat { call, .. }) => {
            // SAFETY: by the contract.
            let out = unsafe { (*call).out };
            (vec![Piece::new(out.cast(), size_of::<libc::statx>())], true)
        }
        Op::Path(
            PathOp::Open { path, .. }
            | PathOp::OpenHow { path, .. }
            | PathOp::Unlink { path, .. }
            | PathOp::MakeDir { path, .. },
        ) => (of_path(path), false),
        Op::Path(PathOp::Rename { path, to, .. } | PathOp::Link { path, to, .. }) => {
            // SAFETY: by the contract.
            let to = unsafe { (*to).path };
            (of_path(path).into_iter().chain(of_path(to)).collect(), false)
        }
        Op::Path(PathOp::Symlink { target, path, .. }) => {
            (of_path(target).into_iter().chain(of_path(path)).collect(), false)
        }
        Op::Socket(transfer) => match transfer.memory() {
            SocketMemory::Bytes { start, len } => {
                (vec![Piece::new(start, len as usize)], transfer.way == Way::Read)
            }
            SocketMemory::Message(_) => (Vec::new(), false),
        },
        Op::Accept { addr, .. } => {
            let len = if addr.is_null() { 0 } else { size_of::<libc::sockaddr_storage>() };
            (vec![Piece::new(addr.cast(), len)], true)
        }
        Op::Nop
        | Op::File(_)
        | Op::Poll { .. }
        | Op::Connect { .. }
        | Op::FutexWait { .. }
        | Op::Syscall(_)
        | Op::Raw(_) => (Vec::new(), false),
    }
}
