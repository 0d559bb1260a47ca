//! Reports of Cringle's commands: titles, tables, plots, pages, and a description of the machine.
//!
//! | module | content |
//! |---|---|
//! | [`outputs`] | `--json` and `--html` |
//! | [`page`], [`table`], [`plot`], [`html`] | a report's titles, rows and plots; as text and as a page for a browser |
//! | [`machine`] | cores, kernel, file system, device, caches |
//! | [`stats`] | medians and ranges |
//! | [`cringle_command`] | failures, standard output, signals, units; re-exported here |

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
pub use cringle_command::outputs::{CommandFiles, SVG_START};
pub use cringle_command::{
    MAX_HELP_WIDTH, PIPE_WIDTH, complain, is_stdout, print, print_bytes, save,
};
pub use cringle_command::{failure, file, interrupt, startup, stdout, units};
pub use outputs::Outputs;

/// The version of the JSON that the commands write. New fields do not change it.
pub const SCHEMA: u32 = 1;
