//! The test is in `tests/`.
