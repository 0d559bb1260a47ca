//! The start and the end of a run, and what observes it, for the crate `cringle`.
//!
//! It is a part of the crate `cringle`, is published for it alone, and has no stable API.
//!
//! Nothing below needs this crate: it asks workers by messages, and reads what they publish. A run
//! ends when the last worker has closed its ring, and leaves nothing behind (**I2**, **I9**).
//!
//! | module | content |
//! |---|---|
//! | [`mod@run`] | `run` and `Builder`: what a runtime is made of, its start and its end |
//! | [`diagnostics`] | counters, dumps, the watchdog, the detection of deadlocks, roots for debuggers |
//! | [`dump_on`] | dumps at a signal |
//! | [`crash`] | overflows of stacks, and the fiber on which a process dies |
//! | [`trace`] | the file of a trace, from the records of `cringle-driver` |
//! | [`detect`] | std's cells and locks, for the detector in `cringle-core` |

#![debugger_visualizer(gdb_script_file = "../debugger/cringle_debug.py")]
#![deny(missing_docs)]

#[macro_use]
extern crate cringle_sys;

pub mod crash;
pub mod detect;
pub mod diagnostics;
pub mod dump_on;
pub mod run;
pub mod trace;
