//! What the commands of Cringle share: how they fail, what they print, and what they know of the machine.
//!
//! | module | what it has |
//! |---|---|
//! | [`failure`] | a message with an exit status |
//! | [`fn@print`], [`mod@stdout`], [`mod@file`], [`outputs`] | standard output, files written at once, `--json` and `--html` |
//! | [`page`], [`table`], [`plot`], [`html`] | a report's titles, rows and plots; as text and as a page for a browser |
//! | [`interrupt`], [`inherited`] | signals, and children that must not outlive the command |
//! | [`machine`] | cores, kernel, file system, device, caches |
//! | [`units`], [`stats`] | sizes and figures; medians |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

pub mod failure;
pub mod file;
pub mod html;
pub mod inherited;
pub mod interrupt;
pub mod machine;
mod output;
pub mod outputs;
pub mod page;
pub mod plot;
pub mod stats;
pub mod stdout;
pub mod table;
pub mod units;

pub use output::{Color, colored, complain, is_stdout, print, print_bytes, save, set_color};
pub use outputs::Outputs;

/// The version of the JSON that the commands write. Fields are added, never changed.
pub const SCHEMA: u32 = 1;
