//! What a debugger's script reads in place of type information: tables of offsets and of words.
//!
//! A release build has no type information, and neither has a build with line tables alone. So each
//! module lists the offsets of the fields that the script reads. The order and the sizes of the
//! types here are fixed.

/// An offset or another number, by its name.
#[repr(C)]
pub struct Field {
    name: Text,
    value: u64,
}

impl Field {
    /// An offset, size or other number under a name.
    pub const fn new(name: &'static str, value: usize) -> Field {
        Field { name: Text::new(name), value: value as u64 }
    }
}

/// A text. (The order within a `&str` is not fixed.)
#[repr(C)]
pub struct Text {
    start: *const u8,
    len: usize,
}

impl Text {
    /// Refers to a text, which a debugger reads from memory.
    pub const fn new(text: &'static str) -> Text {
        Text { start: text.as_ptr(), len: text.len() }
    }

    /// The texts of an array.
    pub const fn all<const N: usize>(texts: &[&'static str]) -> [Text; N] {
        assert!(texts.len() == N);
        let mut all = [const { Text::new("") }; N];
        let mut at = 0;
        while at < N {
            all[at] = Text::new(texts[at]);
            at += 1;
        }
        all
    }
}

// SAFETY: I2. The texts are `'static`.
unsafe impl Sync for Text {}
// SAFETY: I2. The texts are `'static`.
unsafe impl Sync for Field {}

/// A slice that lives for ever.
#[repr(C)]
pub struct Table<T: 'static> {
    start: *const T,
    len: usize,
}

impl<T> Table<T> {
    /// Refers to a table of the program.
    pub const fn new(slice: &'static [T]) -> Table<T> {
        Table { start: slice.as_ptr(), len: slice.len() }
    }
}

// SAFETY: I2. The slices are `'static`.
unsafe impl<T: Sync> Sync for Table<T> {}
