//! What a worker counts of itself. It alone writes; whoever asks for [`stats`](super::stats) reads.

use super::about::Label;
use crate::driver::Counter;
use std::sync::atomic::AtomicPtr;

/// See the module. (On cache lines of its own: what others read must not be written beside it.)
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    pub(super) turns: Counter,
    /// Fibers that were ready when the turn began.
    pub(super) ready: Counter,
    /// Resumptions in the turns before.
    pub(super) resumed: Counter,
    pub(super) started: Counter,
    pub(super) ended: Counter,
    /// Fibers there were at once, at most: each has a stack.
    pub(super) most: Counter,
    pub(super) inline_hits: Counter,
    pub(super) inline_misses: Counter,
    /// Times that a fiber waited for room among the ops in flight.
    pub(super) room_waits: Counter,
    /// Fibers taken from other workers before they had started.
    pub(super) steals: Counter,
    /// Times that it went to sleep.
    pub(super) sleeps: Counter,
    /// Sleeping workers that it has woken.
    pub(super) wakes: Counter,
    /// Messages of other threads that it has read.
    pub(super) messages: Counter,
    /// The fiber that runs; null between turns.
    pub(super) running: AtomicPtr<Label>,
}
