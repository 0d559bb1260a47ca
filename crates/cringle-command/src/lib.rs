//! What a command of Cringle needs of its process: how it fails, prints and is interrupted.
//!
//! | module | content |
//! |---|---|
//! | [`failure`] | a message with an exit status |
//! | [`fn@print`], [`mod@stdout`], [`mod@file`] | standard output; files that are written whole or not at all |
//! | [`interrupt`], [`inherited`] | signals, and children that must not outlive the command |
//! | [`recording`] | `--trace` |
//! | [`units`] | sizes and figures |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

pub mod failure;
pub mod file;
pub mod inherited;
pub mod interrupt;
mod output;
pub mod recording;
pub mod stdout;
pub mod units;

pub use output::{complain, is_stdout, print, print_bytes, save};
