//! What the tests of unmodified crates share: many jobs at once on fibers or threads, a ticker that
//! shows that waits leave the worker free, and servers on loopback.

mod crowd;
mod http;
mod server;
mod smtp;

pub use crowd::{Waits, at_most, crowd, in_runtime, on_fibers, with_threads_as_fibers};
pub use http::HttpServer;
pub use server::{Database, Server, listener};
pub use smtp::MailSink;

use std::time::Duration;

/// How long a server lets its client wait.
pub const WAIT: Duration = Duration::from_millis(200);
