//! Decodes Protobuf: a message is a sequence of numbered fields.

use cringle::trace::wire::wire_type::{BYTES, FIXED32, FIXED64, VARINT};

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(_) => 0,
        }
    }

    pub(super) fn fields(self) -> Fields<'a> {
        match self {
            Value::Number(_) => Fields { rest: &[] },
            Value::Bytes(bytes) => Fields { rest: bytes },
        }
    }

    /// Returns the value as text. Control characters are replaced, because the text may go to a
    /// terminal.
    pub(super) fn text(self) -> String {
        let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        match self {
            Value::Number(number) => number.to_string(),
            Value::Bytes(bytes) => String::from_utf8_lossy(bytes).chars().map(shown).collect(),
        }
    }
}

/// Iterates over the fields of a message with their numbers. Ends at the first malformed field.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<(u32, Value<'a>)> {
        let tag = varint(&mut self.rest)?;
        let value = match (tag & 7) as u32 {
            VARINT => Value::Number(varint(&mut self.rest)?),
            FIXED64 => Value::Number(u64::from_le_bytes(take(&mut self.rest, 8)?.try_into().ok()?)),
            BYTES => {
                let length = usize::try_from(varint(&mut self.rest)?).ok()?;
                Value::Bytes(take(&mut self.rest, length)?)
            }
            FIXED32 => {
                let bytes = take(&mut self.rest, 4)?.try_into().ok()?;
                Value::Number(u32::from_le_bytes(bytes).into())
            }
            _ => return None,
        };
        Some(((tag >> 3) as u32, value))
    }
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// Decodes a number of seven bits a byte, and advances `rest` past it.
#[inline]
pub(super) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (n, &byte) in rest.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * n as u32).min(63);
        if byte < 0x80 {
            *rest = &rest[n + 1..];
            return Some(value);
        }
    }
    None
}
