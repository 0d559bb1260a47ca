//! Stackful fibers over one `io_uring` per core, in the shape of std.
//!
//! Code reads like plain `std`: a [`File`](fs::File) is `Read`, `Write` and `Seek`, buffers are
//! borrowed, [`fiber::scope`] is `std::thread::scope`. Only the calling fiber waits; its worker goes
//! on with the others, and one call to the kernel submits what all of them have asked for.
//!
//! ```
//! use cringle::{block::Batch, fiber, fs::File};
//! use std::io;
//! use std::os::unix::fs::FileExt;
//!
//! fn main() -> io::Result<()> {
//!     cringle::run(|| {
//!         let file = File::open("/proc/self/exe")?;
//!
//!         // Fibers: each waits for its own read.
//!         let (mut head, mut next) = ([0; 4], [0; 4]);
//!         fiber::scope(|s| {
//!             s.spawn_local(|| file.read_exact_at(&mut head, 0));
//!             s.spawn_local(|| file.read_exact_at(&mut next, 4));
//!         });
//!         assert_eq!(&head, b"\x7fELF");
//!
//!         // A batch: many reads, one wait.
//!         let mut pages = vec![0; 8 * 512];
//!         let mut batch = Batch::new();
//!         for (page, offset) in pages.chunks_mut(512).zip((0..).step_by(512)) {
//!             batch.read(&file, page, offset);
//!         }
//!         for count in batch.submit() {
//!             assert_eq!(count?, 512);
//!         }
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Where to look
//!
//! | to | see |
//! |---|---|
//! | start and size a runtime | [`run`], [`Builder`] |
//! | spawn, join, sleep, park, borrow | [`fiber`], as `std::thread` |
//! | use files | [`fs`], as `std::fs` |
//! | use sockets | [`net`], as `std::net` |
//! | lock, send, wait for each other | [`sync`], as `std::sync` |
//! | read or write many blocks at once | [`block::Batch`]; without fibers [`block::BlockIo`] |
//! | read and write pipes and the standard streams | [`io`], as `std::io` |
//! | wait for any other descriptor | [`io::ready`] |
//! | start other programs | [`process`], as `std::process` |
//! | await a future | [`fiber::block_on`] |
//! | bound how long something takes, stop it | [`time::timeout`], [`cancel`], [`fiber::try_scope`] |
//! | end on Ctrl-C, wait for signals | [`signal`] |
//! | see who waits for what, and how much is done | [`runtime::dump`], [`runtime::stats`] |
//! | call what blocks | [`fiber::unblock`] |
//! | use an opcode that is not wrapped | `ring::submit`, feature `raw` |
//! | see who waits for what, where the time goes | [`trace`] |
//! | test in virtual time, with faults | `sim`, feature `sim` |
//!
//! # Sound with borrowed buffers
//!
//! A fiber's stack can neither move nor vanish while the kernel writes into it: the fiber that asked
//! is suspended until the last completion is in, cancelled or not, and [`run`] returns only when
//! nothing is in the kernel any more. This holds for std, and for every crate that does not assume that the
//! scopes of a *thread* nest, or that nothing else runs on it during a call: the book's chapter on hazards lists
//! what may not be held over a wait.
//!
//! # Requirements
//!
//! Linux; x86-64 or aarch64. From 6.1 on, and with `io_uring` allowed, each worker has a ring; newer kernels
//! bring more, each [`Feature`](runtime::Feature) probed alone. Where rings are denied (Docker's default
//! seccomp profile, `sysctl kernel.io_uring_disabled`) the same is done by `epoll` and threads, and
//! [`runtime::driver`] says why. The environment variable `CRINGLE_DRIVER`, `uring` or `epoll`, chooses
//! where [`Builder::driver`] does not; `CRINGLE_WATCHDOG` names a limit for [`Builder::watchdog`], and
//! `CRINGLE_TRACE` a file for a [`trace`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("cringle stands on io_uring and epoll: it is for Linux only");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("cringle needs a 64-bit address space: fibers' stacks are mapped by the mebibyte");

pub mod block;
pub mod cancel;
mod driver;
pub mod fiber;
pub mod fs;
pub mod io;
pub mod net;
pub mod os;
pub mod process;
#[cfg(feature = "raw")]
pub mod ring;
pub mod runtime;
pub mod signal;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sync;
mod sys;
pub mod time;
pub mod trace;
mod tracing_events;

pub use runtime::cancelled::Cancelled;
pub use runtime::run::{Builder, run};

#[cfg(doctest)]
mod compile_fail;

/// The README and the chapters of the book: their programs are compiled and run as doctests. Those on
/// tokio and on other crates are tested by `crates/ecosystem`, which has those crates.
#[cfg(doctest)]
mod pages {
    macro_rules! pages {
        ($($(#[$attribute:meta])* $name:ident: $path:literal,)*) => {
            $($(#[$attribute])* #[doc = include_str!(concat!("../../../", $path))] struct $name;)*
        };
    }

    pages! {
        Readme: "README.md",
        Introduction: "docs/book/src/introduction.md",
        #[cfg(feature = "sim")]
        FirstProgram: "docs/book/src/first-program.md",
        Fibers: "docs/book/src/fibers.md",
        Cancellation: "docs/book/src/cancellation.md",
        Files: "docs/book/src/files.md",
        Sockets: "docs/book/src/sockets.md",
        Sync: "docs/book/src/sync.md",
        Futures: "docs/book/src/futures.md",
        Hazards: "docs/book/src/hazards.md",
        #[cfg(feature = "sim")]
        Simulation: "docs/book/src/simulation.md",
        Diagnosing: "docs/book/src/diagnosing.md",
        Deploying: "docs/book/src/deploying.md",
        FromThreads: "docs/book/src/from-threads.md",
    }
}
