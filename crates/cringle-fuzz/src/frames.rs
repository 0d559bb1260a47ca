//! The interpreter's own model of what may cancel a fiber: a fiber that observes a cancel or a
//! deadline must be inside a scope that was cancelled or a deadline that has passed, with no shield
//! in between.

use super::env::{Env, Stop};
use cringle::cancel::{self, Reason};
use cringle::time;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A region of a fiber that can be cancelled as one, and the region around it.
#[derive(Default)]
pub(super) struct Frame {
    edge: Edge,
    outer: Option<Arc<Frame>>,
}

#[derive(Default)]
enum Edge {
    /// A fiber outside of any scope, which the end of the run cancels.
    #[default]
    Root,
    /// A scope, with a flag that is set before it is cancelled.
    Scope(Arc<AtomicBool>),
    /// A daemon of a scope, with the number of other fibers in it; at 0 the scope cancels its
    /// daemons.
    Daemon(Arc<AtomicUsize>),
    Deadline {
        limit: Duration,
        /// The earliest time at which the deadline can pass.
        at: Instant,
    },
    /// A protected call.
    Shield,
}

impl Frame {
    /// The frame of a fiber outside of any scope.
    pub(super) fn root() -> Frame {
        Frame::default()
    }

    pub(super) fn scope(env: &Env, cancelled: &Arc<AtomicBool>) -> Frame {
        Frame::in_env(env, Edge::Scope(Arc::clone(cancelled)))
    }

    pub(super) fn daemon(env: &Env, others: &Arc<AtomicUsize>) -> Frame {
        Frame::in_env(env, Edge::Daemon(Arc::clone(others)))
    }

    /// The frame of a deadline. Create it before the deadline itself, so that `at` is not too late.
    pub(super) fn deadline(env: &Env, limit: Duration) -> Frame {
        Frame::in_env(env, Edge::Deadline { limit, at: time::now() + limit })
    }

    pub(super) fn shield(env: &Env) -> Frame {
        Frame::in_env(env, Edge::Shield)
    }

    fn in_env(env: &Env, edge: Edge) -> Frame {
        Frame { edge, outer: Some(Arc::clone(&env.frame)) }
    }

    /// Returns whether a fiber in this frame may observe `reason` now, or with `None` any reason.
    fn explains(&self, env: &Env, reason: Option<Reason>) -> bool {
        let mut next = Some(self);
        let cancelled = matches!(reason, None | Some(Reason::Cancelled));
        while let Some(frame) = next {
            let explains = match &frame.edge {
                Edge::Shield => return false,
                Edge::Root => cancelled && env.may_end_all(),
                Edge::Scope(flag) => cancelled && flag.load(Ordering::Acquire),
                Edge::Daemon(others) => cancelled && others.load(Ordering::Acquire) == 0,
                Edge::Deadline { limit, at } => {
                    let is_this = match reason {
                        Some(Reason::Elapsed(elapsed)) => elapsed.limit() == Some(*limit),
                        other => other.is_none(),
                    };
                    is_this && *at <= time::now()
                }
            };
            if explains {
                return true;
            }
            next = frame.outer.as_deref();
        }
        false
    }
}

impl Env {
    /// Ends the fiber because a call returned this cancel. Fails the run if nothing explains it.
    pub(super) fn stopped_by(&self, error: &io::Error) -> Stop {
        match cancel::reason(error) {
            None => self.fail(
                cringle::sim::Checker::Outcome,
                format!("a wait returned {error:?}, which is not a cancel"),
            ),
            Some(reason) => {
                if !self.frame.explains(self, Some(reason)) {
                    self.note_unexplained(format!("{reason:?} without a cause"));
                }
                Stop
            }
        }
    }

    /// Returns whether a cancel or deadline may have reached the fiber by now.
    pub(super) fn may_be_cancelled(&self) -> bool {
        self.frame.explains(self, None)
    }

    /// Ends the fiber early, whether it unwinds or returns. Fails the run if nothing explains it.
    pub(super) fn ended_early(&self) -> Stop {
        if !self.may_be_cancelled() && !self.has_lost_power() {
            self.note_unexplained("ended early without a cause".into());
        }
        Stop
    }

    /// Ends the fiber if it is cancelled here.
    pub(super) fn check_cancelled(&self) -> Result<(), Stop> {
        cancel::check().map_err(|e| self.stopped_by(&e))
    }

    fn note_unexplained(&self, what: String) {
        self.unexplained().get_or_insert(format!("a fiber was {what}"));
    }
}
