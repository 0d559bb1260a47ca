//! What a command of Cringle needs of its process: how it fails, prints and is interrupted.
//!
//! | module | content |
//! |---|---|
//! | [`failure`] | a message with an exit status |
//! | [`fn@print`], [`mod@stdout`], [`mod@file`] | standard output; files that are written whole or not at all |
//! | [`interrupt`], [`startup`] | signals, and children that must not outlive the command |
//! | [`recording`] | `--trace` |
//! | [`units`] | sizes and figures |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

mod console;
pub mod failure;
pub mod file;
pub mod interrupt;
pub mod recording;
pub mod startup;
pub mod stdout;
pub mod units;

pub use console::{complain, is_stdout, print, print_bytes, save};
