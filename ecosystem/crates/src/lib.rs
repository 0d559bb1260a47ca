//! The tests are in `tests/`.

/// The book's chapters whose programs use such crates: they are compiled and run as doctests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/book/src/crates.md")]
    struct Crates;
    #[doc = include_str!("../../../docs/book/src/from-tokio.md")]
    struct FromTokio;
    #[doc = include_str!("../../../docs/book/src/unmodified.md")]
    struct Unmodified;
}
