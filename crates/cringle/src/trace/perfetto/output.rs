//! Protobuf's encoding: what little of it there is.

/// Bytes on their way to the file.
pub(in crate::trace) struct Output {
    bytes: Vec<u8>,
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

impl Output {
    pub(in crate::trace) fn new() -> Output {
        Output { bytes: Vec::new() }
    }

    pub(in crate::trace) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(in crate::trace) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(in crate::trace) fn clear(&mut self) {
        self.bytes.clear();
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    #[inline]
    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    #[inline]
    pub(super) fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    #[inline]
    pub(super) fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value as u64);
    }

    #[inline]
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.tag(field, BYTES);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// A message within. Its length comes first, and mostly takes one byte.
    #[inline]
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Output)) {
        self.tag(field, BYTES);
        let at = self.bytes.len();
        self.bytes.push(0);
        fill(self);
        let length = self.bytes.len() - at - 1;
        match length < 0x80 {
            true => self.bytes[at] = length as u8,
            false => self.set_long_length(at, length),
        }
    }

    #[cold]
    fn set_long_length(&mut self, at: usize, length: usize) {
        let mut encoded = Output::new();
        encoded.varint(length as u64);
        self.bytes.splice(at..=at, encoded.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_longer_than_a_byte_can_say_have_their_length_in_front() {
        let mut out = Output::new();
        out.message(1, |out| out.text(2, &"x".repeat(300)));
        assert_eq!(out.bytes()[..6], [0x0a, 0xaf, 0x02, 0x12, 0xac, 0x02]);
        assert_eq!(out.len(), 3 + 3 + 300);
    }

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        let mut out = Output::new();
        out.uint(9, 300);
        out.fixed64(47, 1);
        assert_eq!(out.bytes(), [0x48, 0xac, 0x02, 0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
