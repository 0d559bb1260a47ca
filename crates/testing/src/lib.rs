//! What the tests of several crates share.
//!
//! A dependency of tests alone: it is not published.

pub mod child;
pub mod disk;
pub mod fuse;
pub mod same;
pub mod terminal;
pub mod tools;
