//! Views of a runtime from outside: counters as [`stats`], a [`dump()`] of all fibers, and a
//! watchdog.
//!
//! They read what workers publish (counters, labels), or ask the workers by message. Nothing below
//! uses this module.

mod debugger;
pub(super) mod dump;
mod stall;
mod stats;
pub(super) mod watchdog;

pub(super) use debugger::note_crash;
pub use dump::{
    Dump, FiberReport, FiberState, Holder, OpenedScope, SilentWorker, WaitsFor, Who, dump,
    dump_all, dump_with_backtraces,
};
pub use stats::{EntryCounts, PoolStats, Stats, WorkerStats, stats, stats_of};
