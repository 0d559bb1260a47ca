//! Stackful fibers over one `io_uring` per core, with std's API.
//!
//! Code reads like plain `std`: a [`File`](fs::File) is `Read`, `Write` and `Seek`, buffers are
//! borrowed, and [`fiber::scope`] is `std::thread::scope`. A call that waits suspends only the
//! calling fiber. Its worker runs other fibers meanwhile, and one system call submits the requests
//! of all of them.
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
//!         // Two fibers, each with its own read.
//!         let (mut head, mut next) = ([0; 4], [0; 4]);
//!         let (first, second) = fiber::join(
//!             || file.read_exact_at(&mut head, 0),
//!             || file.read_exact_at(&mut next, 4),
//!         );
//!         first.and(second)?;
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
//! | start a runtime and choose its size | [`run`], [`Builder`] |
//! | spawn, join, sleep, park, borrow | [`fiber`], as `std::thread` |
//! | use files | [`fs`], as `std::fs` |
//! | use sockets | [`net`], as `std::net` |
//! | use locks and channels | [`sync`], as `std::sync` |
//! | read or write many blocks at once | [`block::Batch`]; without fibers [`block::BlockIo`] |
//! | use pipes and the standard streams | [`io`], as `std::io` |
//! | wait for any other descriptor | [`io::ready`] |
//! | start other programs | [`process`], as `std::process` |
//! | await a future | [`fiber::block_on`] |
//! | limit the time of a call, stop it | [`time::timeout`], [`cancel`], [`fiber::try_scope`] |
//! | end on Ctrl-C, receive signals | [`signal`] |
//! | see which fiber waits for what | [`runtime::dump`] |
//! | find what a fiber must not hold over a wait | [`detect`] |
//! | read the runtime's counters | [`runtime::stats`] |
//! | record where the time goes | [`trace`] |
//! | make a call that blocks | [`fiber::unblock`] |
//! | use an opcode that has no wrapper | `ring::submit`, feature `raw` |
//! | test in virtual time, with faults | `sim`, feature `sim` |
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `sim` | the simulator, for tests |
//! | `raw` | `ring::submit`: any opcode, by an unsafe call |
//! | `detect` | the [hazard detector](detect) in release builds, too, and for spans of `tracing` |
//! | `tracing` | spans of the `tracing` crate follow their fiber; the library's own events |
//!
//! # Soundness with borrowed buffers
//!
//! A fiber's stack can neither move nor vanish while the kernel writes into it. The fiber stays
//! suspended until the kernel has finished with its request, cancelled or not, and [`run`] returns
//! only when no request is left in the kernel.
//!
//! A fiber that is started with `Send` bounds has [thread-locals of its
//! own](Builder::thread_locals), so code that assumes that the scopes of a *thread* nest, or that
//! nothing else runs on the thread during a call, is right on it. Fibers of
//! [`spawn_local`](fiber::spawn_local()) share those of the fiber that started them, and where libc
//! is not glibc, all fibers of a worker share its thread's: the book's chapter "What not to hold
//! over a wait" lists what code must not do there.
//!
//! # Requirements
//!
//! Linux on x86-64 or aarch64. On Linux 6.1 and newer, if `io_uring` is allowed, each worker has a
//! ring. Each [`Feature`](runtime::Feature) of newer kernels is used if the kernel has it. Where
//! rings are denied (Docker's default seccomp profile, `sysctl kernel.io_uring_disabled`), epoll
//! and threads do the same work, and [`runtime::driver`] returns the reason.
//!
//! Environment variables apply where the program does not choose: `CRINGLE_WORKERS` (a number)
//! for [`Builder::workers`], `CRINGLE_DRIVER` (`uring` or `epoll`) for [`Builder::driver`],
//! `CRINGLE_RESTRICT` (`on` or `off`) for [`Builder::restrict_rings`],
//! `CRINGLE_THREAD_LOCALS` (`private` or `shared`) for [`Builder::thread_locals`],
//! `CRINGLE_BALANCE` (`moving` or `fixed`) for [`Builder::balance`],
//! `CRINGLE_THREADS` (`system` or `fibers`) for [`Builder::threads`],
//! `CRINGLE_WATCHDOG` (milliseconds, `locks` or `off`) for [`Builder::watchdog`], `CRINGLE_TRACE`
//! (a file) for [`trace`], `CRINGLE_DETECT` (`off`, `report` or `abort`) for [`detect`], and
//! `CRINGLE_DUMP` (`usr1` or a file) for [`signal::dump_on`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

pub mod runtime;
pub mod signal;

#[doc(inline)]
pub use cringle_core::cancelled::Cancelled;
#[doc(inline)]
pub use cringle_run::run::{Builder, run};
#[doc(inline)]
pub use cringle_run::{detect, trace};
#[cfg(feature = "sim")]
#[doc(inline)]
pub use cringle_sim as sim;
#[cfg(feature = "raw")]
#[doc(inline)]
pub use cringle_std::ring;
#[doc(inline)]
pub use cringle_std::{cancel, fiber, fiber_local, fs, io, net, os, process, sync, time};
#[doc(inline)]
pub use cringle_storage as block;

// The names of the calls that `cringle-interpose` defines, for `cringle doctor`.
#[doc(hidden)]
pub use cringle_sys::{__interposed_aliases, __interposed_calls, __interposed_for_all};

/// The README and the chapters of the book: their programs are compiled and run as doctests. Those
/// on tokio and on other crates are tested by `ecosystem/crates`, which has those crates.
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
        InterposedCalls: "docs/book/src/interposed-calls.md",
        Hazards: "docs/book/src/hazards.md",
        ThreadLocals: "docs/book/src/thread-locals.md",
        Cores: "docs/book/src/cores.md",
        #[cfg(feature = "sim")]
        Simulation: "docs/book/src/simulation.md",
        Diagnosing: "docs/book/src/diagnosing.md",
        Deploying: "docs/book/src/deploying.md",
        Python: "docs/book/src/python.md",
        PythonRanges: "docs/book/src/python-ranges.md",
        C: "docs/book/src/c.md",
        FromThreads: "docs/book/src/from-threads.md",
        HaskellOcaml: "docs/book/src/haskell-ocaml.md",
    }
}
