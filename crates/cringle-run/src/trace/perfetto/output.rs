//! The parts of protobuf's encoding that a trace needs.

use crate::trace::wire::tag;
use crate::trace::wire::wire_type::{BYTES, FIXED64, VARINT};

/// A buffer of encoded bytes.
pub(crate) struct Output {
    /// The encoded bytes, up to `end`, and free room.
    bytes: Vec<u8>,
    end: usize,
}

/// A message of at most [`ROOM`] bytes, written without a check for room at each byte. Nearly all
/// messages of a trace are short.
pub(super) struct Short<'a> {
    bytes: &'a mut [u8; ROOM],
    end: usize,
}

const ROOM: usize = 256;

impl Output {
    pub(crate) fn new() -> Output {
        Output { bytes: Vec::new(), end: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end
    }

    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.bytes.len() - self.end < bytes.len() {
            self.grow(bytes.len());
        }
        self.bytes[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.bytes.resize((self.bytes.len() + bytes.max(ROOM)) * 2, 0);
    }

    fn varint(&mut self, value: u64) {
        self.short(|short| short.varint(value));
    }

    pub(super) fn uint(&mut self, field: u32, value: u64) {
        self.short(|short| short.uint(field, value));
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.short(|short| short.tag(field, BYTES));
        self.varint(text.len() as u64);
        self.put(text.as_bytes());
    }

    /// Writes a nested message. Its length precedes it, and usually takes one byte.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Output)) {
        self.short(|short| short.tag(field, BYTES));
        let at = self.end;
        self.put(&[0]);
        fill(self);
        let length = self.end - at - 1;
        if length < 0x80 {
            self.bytes[at] = length as u8;
        } else {
            self.set_long_length(at, length);
        }
    }

    #[cold]
    fn set_long_length(&mut self, at: usize, length: usize) {
        let rest = self.bytes[at + 1..self.end].to_vec();
        self.end = at;
        self.varint(length as u64);
        self.put(&rest);
    }

    /// Writes a short message.
    #[inline(always)]
    pub(super) fn short(&mut self, fill: impl FnOnce(&mut Short<'_>)) {
        if self.bytes.len() - self.end < ROOM {
            self.grow(ROOM);
        }
        let bytes = self.bytes[self.end..].first_chunk_mut().expect("the buffer has room");
        let mut short = Short { bytes, end: 0 };
        fill(&mut short);
        let end = short.end;
        assert!(end <= ROOM, "a short message exceeds its room");
        self.end += end;
    }
}

impl Short<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        // The index wraps if the message is too long, which `Output::short` detects at the end.
        self.bytes[self.end % ROOM] = byte;
        self.end += 1;
    }

    #[inline(always)]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    #[inline(always)]
    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(tag(field, wire_type));
    }

    #[inline(always)]
    pub(super) fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    #[inline(always)]
    pub(super) fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value as u64);
    }

    #[inline(always)]
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        value.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    /// Writes a nested message, whose length takes one byte.
    #[inline(always)]
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        self.tag(field, BYTES);
        let at = self.end;
        self.byte(0);
        fill(self);
        let length = self.end - at - 1;
        assert!(length < 0x80, "a nested message exceeds one byte of length");
        self.bytes[at % ROOM] = length as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_preceded_by_their_length() {
        let mut out = Output::new();
        out.message(1, |out| out.text(2, &"x".repeat(300)));
        assert_eq!(out.bytes()[..6], [0x0a, 0xaf, 0x02, 0x12, 0xac, 0x02]);
        assert_eq!(out.len(), 3 + 3 + 300);
    }

    #[test]
    fn numbers_are_encoded_as_varints() {
        let mut out = Output::new();
        out.uint(9, 300);
        out.short(|out| out.fixed64(47, 1));
        assert_eq!(out.bytes(), [0x48, 0xac, 0x02, 0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn short_messages_are_encoded_like_others() {
        let (mut any, mut short) = (Output::new(), Output::new());
        for value in [0, 1, 127, 128, 1 << 20, u64::MAX] {
            any.message(11, |out| out.message(4, |out| out.uint(3, value)));
            short.short(|out| out.message(11, |out| out.message(4, |out| out.uint(3, value))));
        }
        assert_eq!(any.bytes(), short.bytes());
    }
}
