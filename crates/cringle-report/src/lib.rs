//! What the reports of Cringle share: titles, tables, plots, pages, and facts about the machine.
//!
//! | module | what it has |
//! |---|---|
//! | [`outputs`] | `--json` and `--html` |
//! | [`page`], [`table`], [`plot`], [`html`] | a report's titles, rows and plots; as text and as a page for a browser |
//! | [`machine`] | cores, kernel, file system, device, caches |
//! | [`stats`] | medians |
//! | [`cringle_command`] | failures, standard output, signals, units; exported again from here |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

mod color;
pub mod html;
pub mod machine;
pub mod outputs;
pub mod page;
pub mod plot;
pub mod stats;
pub mod table;

pub use color::{Color, colored, set_color};
pub use cringle_command::{complain, is_stdout, print, print_bytes, save};
pub use cringle_command::{failure, file, interrupt, startup, stdout, units};
pub use outputs::Outputs;

/// The version of the JSON that the commands write. Fields are added, never changed.
pub const SCHEMA: u32 = 1;
