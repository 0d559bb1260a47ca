//! A seeded simulation for tests: the same fibers and the same library over files in memory, in
//! virtual time, with injected faults. (Feature `sim`.)
//!
//! [`run`] is [`cringle::run`](cringle_run::run::run) in a simulated world. One seed determines
//! every choice: when an operation completes, whether it is short, whether it fails. So the same
//! seed reproduces a failure. When all fibers wait, virtual time advances to the next event: a
//! timeout of an hour takes microseconds.
//!
//! ```
//! use cringle::{fiber, fs::File, sim, time};
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! let options = sim::Options::new().faults(sim::Faults::hidden());
//! let report = sim::run(7, &options, || {
//!     let start = time::now();
//!     File::create("/log")?.write_all(b"rope strands")?;
//!     fiber::sleep(Duration::from_secs(3600));
//!     let mut text = String::new();
//!     File::open("/log")?.read_to_string(&mut text)?;
//!     assert!(time::now() - start >= Duration::from_secs(3600));
//!     std::io::Result::Ok(text)
//! })?;
//! assert_eq!(report.value?, "rope strands");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked
//!
//! Every run checks that each operation completes once; that memory lent to an operation does not
//! change until its fiber is resumed; that some fiber can run (otherwise the [`Failure`] lists the
//! fibers and what they wait for); that the run ends; and that no descriptor of a simulated file
//! stays open. Each check is a [`Checker`].
//!
//! # What is simulated
//!
//! - **Files**: [`fs::File`](cringle_std::fs::File) and the functions built on it. A world starts
//!   without files, and does not contain the machine's. Files can be created below any directory;
//!   directories can be opened, synced and examined, but not listed or removed.
//! - **Time**: [`fiber::sleep`](cringle_std::fiber::sleep), timeouts and
//!   [`time::now`](cringle_std::time::now), but not `std::time::Instant::now` and
//!   `SystemTime::now`.
//! - **Streams**: [`stream_pair`], `std::io::pipe` and `UnixStream::pair` converted into a `File`,
//!   and [`io::ready`](cringle_std::io::ready).
//! - **Servers**: Unix sockets and their listeners ([`os::unix::net`](cringle_std::os::unix::net)),
//!   preferably at abstract addresses, because paths are the machine's. Connecting and accepting
//!   take virtual time, and connections are reset. TCP is refused (`ENOSYS`), because the machine
//!   would determine the order of connections.
//! - **Loss of power**: [`World::crash`] and [`World::run_until_power_loss`].
//!
//! # What is not simulated
//!
//! - Workers ([`Options::workers`]) run one at a time, and alternate between the runs of fibers. So
//!   a fiber that waits for one of another worker by a lock or a channel of std waits for ever: a
//!   line on standard error says so after some seconds. Use the locks and channels of
//!   [`sync`](cringle_std::sync).
//! - [`fiber::unblock`](cringle_std::fiber::unblock) calls its closure at once, on the fiber, so
//!   that it cannot start a runtime.
//! - OS threads run at their own pace, so a seed does not determine what they do. A fiber that
//!   waits for one of them looks like a deadlock.
//! - `std::fs` accesses the machine's files.
//! - `block::BlockIo` has its own rings and threads, and is refused. A raw ring entry fails with
//!   `EOPNOTSUPP`.

// The page above is that of `cringle::sim`. This crate is a part of the crate `cringle`, is
// published for it alone, and has no stable API.
//
// - `run`: runs in a simulated world, for one seed or many. `world`: what persists across runs.
// - `stream`: a pair of connected sockets.
// - `driver`: implements the traits of `cringle_driver::simulation`. It keeps I1 and I5, and checks
//   them at run time; its header lists what else it promises.
// - `tests`: each checker reports a bug that the test injects.

#![deny(missing_docs)]

#[macro_use]
extern crate cringle_sys;

mod driver;
mod run;
mod stream;
#[cfg(test)]
mod tests;
mod world;

#[cfg(any(test, feature = "sabotage"))]
#[doc(hidden)]
pub use driver::Sabotage;
pub use driver::{Checker, Failure, Fault, Faults, Options, Rng, Stats};
pub use run::{Report, each, run};
pub use stream::stream_pair;
pub use world::World;
