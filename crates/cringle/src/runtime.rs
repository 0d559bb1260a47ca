//! The runtime of a [`run`](crate::run): its workers and driver, its counters, and dumps of its
//! fibers.
//!
//! | to | see |
//! |---|---|
//! | find out whether rings are used, and why not | [`driver`], [`Feature`] |
//! | choose the driver | [`DriverChoice`], [`Builder::driver`](crate::Builder::driver) |
//! | find the calling fiber's worker, and the number of workers | [`worker`](fn@worker), [`workers`] |
//! | see which fiber waits for what | [`dump()`], [`dump_all`], [`dump_with_backtraces`] |
//! | read the counters | [`stats`] |
//!
//! The runtime owns every started fiber, resumes it only on the worker that hosts it and only while
//! it is suspended, and leaves nothing behind when it ends.
//!
//! ```
//! use cringle::runtime;
//!
//! cringle::Builder::new().workers(2).run(|| {
//!     assert_eq!((runtime::worker(), runtime::workers()), (Some(0), Some(2)));
//!     println!("driver: {:?}", runtime::driver());
//!     println!("{}", runtime::dump().expect("there is a runtime here"));
//! })?;
//! # std::io::Result::Ok(())
//! ```

pub use cringle_core::choices::{Balance, DriverChoice, NoRing, Threads};
pub use cringle_core::here::{
    Driver, balance, driver, thread_locals, threads, why_shared, worker, workers,
};
pub use cringle_driver::{Feature, Features};
pub use cringle_run::diagnostics::{
    Dump, EntryCounts, FiberReport, FiberState, Holder, OpenedScope, PoolStats, SilentWorker,
    Stats, WaitsFor, Who, WorkerStats, dump, dump_all, dump_with_backtraces, stats,
};
pub use cringle_tls::ThreadLocals;
