//! The memory that an op was lent, and whether it was left alone.
//!
//! Until the op is performed, what it will write to is filled with a pattern, and what it will read
//! is remembered as a hash; between the op and the taking of its completion, both as a hash. A fiber
//! that were resumed too early would use its buffer, or return from the frame that holds it, and one
//! of the two would show. The bytes beyond a short count are what they were before.

use super::rng::mix;
use crate::driver::Op;

/// See the module.
pub(super) struct LentMemory {
    pieces: Vec<Piece>,
    /// Of memory that is to be written: what was in it.
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
    /// The op that lent it has not ended.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        match self.len {
            0 => &[],
            // SAFETY: I1. The frame that pushed the op keeps its memory until nothing is owed to it,
            // and nobody else writes to it meanwhile.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }
}

impl LentMemory {
    /// Takes note of what the op has of its caller's memory, and poisons what it will write to.
    ///
    /// # Safety
    ///
    /// I1: the op's pointers are valid until it has ended, and nobody else uses what it writes to.
    pub(super) unsafe fn take(op: &Op) -> LentMemory {
        // SAFETY: by the contract.
        let (pieces, writes) = unsafe { pieces_of(op) };
        let mut lent = LentMemory { pieces, saved: None, hash: 0 };
        if writes {
            let saved = lent.pieces.iter().flat_map(|piece| {
                // SAFETY: I1. The op has just been lent it.
                unsafe { piece.bytes() }.iter().copied()
            });
            lent.saved = Some(saved.collect());
            for piece in &lent.pieces {
                // SAFETY: I1. The op may write to it, and nobody else uses it.
                unsafe { piece.start.write_bytes(POISON, piece.len) };
            }
        }
        lent.hash = lent.hash_now();
        lent
    }

    /// Before the op is performed or given up: whether the memory was left alone. It is as the
    /// caller left it then.
    pub(super) fn give_to_op(&mut self) -> bool {
        let untouched = self.is_untouched();
        if let Some(saved) = self.saved.take() {
            let mut rest = &saved[..];
            for piece in &self.pieces {
                let (here, after) = rest.split_at(piece.len);
                rest = after;
                // SAFETY: I1. As for the poison; the pieces are as long as they were.
                unsafe { piece.start.copy_from_nonoverlapping(here.as_ptr(), piece.len) };
            }
        }
        untouched
    }

    /// After the op: what it left must stay until its completion is taken.
    pub(super) fn seal(&mut self) {
        self.hash = self.hash_now();
    }

    /// Whether nobody has changed the memory since it was lent or sealed.
    pub(super) fn is_untouched(&self) -> bool {
        self.hash == self.hash_now()
    }

    fn hash_now(&self) -> u64 {
        self.pieces.iter().fold(0, |hash, piece| {
            // SAFETY: I1. The op has not ended: its completion has not been taken.
            hash_bytes(hash, unsafe { piece.bytes() })
        })
    }

    #[cfg(any(test, feature = "sabotage"))]
    pub(super) fn touch(&self) {
        if let Some(piece) = self.pieces.iter().find(|piece| piece.len > 0) {
            // SAFETY: I1. The memory is there; that it is changed is the point.
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

/// The memory an op refers to, and whether it writes to it.
///
/// # Safety
///
/// The op's pointers are valid.
unsafe fn pieces_of(op: &Op) -> (Vec<Piece>, bool) {
    // SAFETY: by the contract.
    let of_slices = |slices: *const libc::iovec, count: u32| unsafe {
        let slices = std::slice::from_raw_parts(slices, count as usize);
        slices.iter().map(|slice| Piece::new(slice.iov_base.cast(), slice.iov_len)).collect()
    };
    // SAFETY: by the contract, it is a C string.
    let of_path = |path| unsafe { vec![Piece::new(path, libc::strlen(path.cast()) + 1)] };
    match *op {
        Op::Read { buf, len, .. } | Op::ReadFixed { buf, len, .. } => {
            (vec![Piece::new(buf, len as usize)], true)
        }
        Op::Write { buf, len, .. } | Op::WriteFixed { buf, len, .. } => {
            (vec![Piece::new(buf, len as usize)], false)
        }
        Op::ReadVectored { slices, count, .. } => (of_slices(slices, count), true),
        Op::WriteVectored { slices, count, .. } => (of_slices(slices, count), false),
        Op::Open { path, .. } => (of_path(path.cast()), false),
        Op::Stat { out, .. } => (vec![Piece::new(out.cast(), size_of::<libc::statx>())], true),
        Op::Unlink { path, .. } | Op::MakeDir { path, .. } | Op::OpenHow { path, .. } => {
            (of_path(path.cast()), false)
        }
        Op::Rename { from, to, .. } | Op::Link { from, to, .. } => {
            (of_path(from.cast()).into_iter().chain(of_path(to.cast())).collect(), false)
        }
        Op::Symlink { target, path, .. } => {
            (of_path(target.cast()).into_iter().chain(of_path(path.cast())).collect(), false)
        }
        Op::Recv { buf, len, .. } => (vec![Piece::new(buf, len as usize)], true),
        Op::Accept { addr, .. } => {
            let len = if addr.is_null() { 0 } else { size_of::<libc::sockaddr_storage>() };
            (vec![Piece::new(addr.cast(), len)], true)
        }
        Op::Send { buf, len, .. } | Op::SendZc { buf, len, .. } => {
            (vec![Piece::new(buf, len as usize)], false)
        }
        Op::Nop
        | Op::RecvMsg { .. }
        | Op::SendMsg { .. }
        | Op::Connect { .. }
        | Op::Allocate { .. }
        | Op::Advise { .. }
        | Op::SyncRange { .. }
        | Op::GetXattr(_)
        | Op::SetXattr(_)
        | Op::Syscall(_)
        | Op::Sync { .. }
        | Op::Close { .. }
        | Op::SetLen { .. }
        | Op::Poll { .. }
        | Op::Raw(_) => (Vec::new(), false),
    }
}
