//! Process-level support of Cringle's commands: failures, output, interruption, units.
//!
//! | module | content |
//! |---|---|
//! | [`failure`] | a message with an exit status |
//! | [`fn@print`], [`mod@stdout`], [`mod@file`] | standard output, and files written completely or not at all |
//! | [`outputs`] | result files that would destroy another file |
//! | [`interrupt`], [`startup`] | signals, and children that must not outlive the command |
//! | [`recording`] | the trace of `--trace` |
//! | [`units`] | sizes and figures as text |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

mod console;
pub mod failure;
pub mod file;
pub mod interrupt;
pub mod outputs;
pub mod recording;
pub mod startup;
pub mod stdout;
pub mod units;

pub use console::{
    MAX_HELP_WIDTH, PIPE_WIDTH, complain, is_stdout, print, print_bytes, save, write_error,
};
