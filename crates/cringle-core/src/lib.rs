//! The scheduler of the crate `cringle`: fibers, their stacks, the workers that resume them, and
//! cancellation.
//!
//! It is a part of the crate `cringle`, is published for it alone, and has no stable API.
//!
//! The runtime owns every started fiber, resumes it only on the worker that hosts it and only while
//! it is suspended, and leaves nothing behind when it ends (**I2**, **I3**, **I9**). It knows that
//! a fiber waits, and not for which call.
//!
//! | module | content |
//! |---|---|
//! | [`worker`] | the turn of a worker, and its parts; [`worker::Current`] is the fiber that calls |
//! | [`fiber`], [`stack`], [`family`] | a started fiber; its memory; the fibers that share thread-locals |
//! | [`shared`], [`inbox`], [`quiescence`], [`load`], [`waiting_runtime`] | what the workers of a run share; how they wake each other, and end |
//! | [`region`], [`members`], [`cancelled`] | cancellation: a tree of regions, and the errors |
//! | [`waker`], [`identity`], [`waiter_list`], [`wait_target`] | the end of a wait; handles; what a dump says of a wait |
//! | [`timers`], [`sync`] | the heap of a worker's timers; primitives that loom replaces |
//! | [`unwinding`], [`unwind_count`], [`frames`], [`foreign`], [`lent_frame`] | which fiber panics; calls of the program's code; frames that are not left (**I8**, **I12**, **I13**) |
//! | [`here`], [`choices`] | what a program asks of its runtime, and chooses |
//! | [`hazards`], [`spans`], [`tracing_events`], [`event_cause`] | the detector; `tracing` |
//! | [`block_index`], [`label`], [`counters`], [`spawn_place`] | what dumps, the watchdog and debuggers read |
//!
//! The [header of `worker`](worker) goes through a turn; `ARCHITECTURE.md` goes through a read.

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

#[macro_use]
extern crate cringle_sys;

pub mod block_index;
pub mod cancelled;
pub mod choices;
pub mod counters;
pub mod event_cause;
pub mod family;
pub mod fiber;
pub mod foreign;
pub mod frames;
pub mod hazards;
pub mod here;
pub mod identity;
pub mod inbox;
pub mod interposition;
pub mod label;
pub mod lent_frame;
mod load;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod members;
mod quiescence;
pub mod region;
pub mod shared;
pub mod spans;
pub mod spawn_place;
pub mod stack;
pub mod sync;
pub mod timers;
#[macro_use]
pub mod tracing_events;
mod unwind_count;
pub mod unwinding;
pub mod wait_target;
pub mod waiter_list;
pub mod waiting_runtime;
pub mod waker;
pub mod worker;

#[cfg(feature = "tracing")]
pub use tracing;

/// The time of the caller's timers: the machine's, or the simulation's.
#[inline]
pub fn now() -> std::time::Instant {
    match worker::Worker::here() {
        Some(worker) => worker.now(),
        None => cringle_sys::now(),
    }
}

/// Whether a call on this thread may reach the kernel without the driver. Not so in a simulation.
pub fn may_bypass() -> bool {
    worker::Worker::here().is_none_or(|worker| worker.may_bypass())
}

/// Refuses what a simulation does not contain. Outside of one it does nothing.
pub fn refuse_in_simulation(text: &'static str) -> std::io::Result<()> {
    if may_bypass() {
        Ok(())
    } else {
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, text))
    }
}
