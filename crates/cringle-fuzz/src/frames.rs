//! What may cut a stretch of a fiber short, as the interpreter keeps it by itself: whoever is told of
//! a cancel or a deadline must have one around it that has come, with no shield in between.

use super::env::{Env, Stop};
use cringle::cancel::{self, Reason};
use cringle::time;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What is around a stretch of a fiber, innermost first.
#[derive(Default)]
pub(super) struct Frame {
    edge: Edge,
    outer: Option<Arc<Frame>>,
}

#[derive(Default)]
enum Edge {
    /// Of a fiber that belongs to nobody: the end of the run.
    #[default]
    Root,
    /// Whoever cancels the scope says so first.
    Scope(Arc<AtomicBool>),
    /// A daemon's scope: how many others are in it.
    Daemon(Arc<AtomicUsize>),
    Deadline {
        limit: Duration,
        /// It does not come before this.
        at: Instant,
    },
    Shield,
}

impl Frame {
    /// That of a fiber which belongs to no scope.
    pub(super) fn root() -> Frame {
        Frame::default()
    }

    pub(super) fn scope(env: &Env, cancelled: &Arc<AtomicBool>) -> Frame {
        Frame::in_env(env, Edge::Scope(Arc::clone(cancelled)))
    }

    pub(super) fn daemon(env: &Env, others: &Arc<AtomicUsize>) -> Frame {
        Frame::in_env(env, Edge::Daemon(Arc::clone(others)))
    }

    /// To be made before the deadline is.
    pub(super) fn deadline(env: &Env, limit: Duration) -> Frame {
        Frame::in_env(env, Edge::Deadline { limit, at: time::now() + limit })
    }

    pub(super) fn shield(env: &Env) -> Frame {
        Frame::in_env(env, Edge::Shield)
    }

    fn in_env(env: &Env, edge: Edge) -> Frame {
        Frame { edge, outer: Some(Arc::clone(&env.frame)) }
    }

    /// Whether this, or with no reason any, may be what a fiber in here is told now.
    fn explains(&self, env: &Env, reason: Option<Reason>) -> bool {
        let mut next = Some(self);
        let cancelled = matches!(reason, None | Some(Reason::Cancelled));
        while let Some(frame) = next {
            let explains = match &frame.edge {
                Edge::Shield => return false,
                Edge::Root => cancelled && env.may_be_over(),
                Edge::Scope(flag) => cancelled && flag.load(Ordering::Acquire),
                Edge::Daemon(others) => cancelled && others.load(Ordering::Acquire) == 0,
                Edge::Deadline { limit, at } => {
                    let told = match reason {
                        Some(Reason::Elapsed(elapsed)) => elapsed.limit() == Some(*limit),
                        other => other.is_none(),
                    };
                    told && *at <= time::now()
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
    /// The fiber was told this by a call: it ends. Kept if nothing around it explains that.
    pub(super) fn told(&self, error: &io::Error) -> Stop {
        match cancel::reason(error) {
            None => self.fail(
                cringle::sim::Checker::Outcome,
                format!("a wait was told {error:?}, which is no cancel"),
            ),
            Some(reason) => {
                if !self.frame.explains(self, Some(reason)) {
                    self.note_unasked(format!("told {reason:?}, for which there is no reason"));
                }
                Stop
            }
        }
    }

    /// Whether what is around a fiber may be cutting it short by now.
    pub(super) fn may_be_cut(&self) -> bool {
        self.frame.explains(self, None)
    }

    /// The fiber ends before its time, unwinding or not.
    pub(super) fn cut_short(&self) -> Stop {
        if !self.may_be_cut() && !self.is_dead() {
            self.note_unasked("cut short, for which there is no reason".into());
        }
        Stop
    }

    /// Fails if the fiber is cancelled here: by what is around it, then.
    pub(super) fn go_on(&self) -> Result<(), Stop> {
        cancel::check().map_err(|e| self.told(&e))
    }

    fn note_unasked(&self, what: String) {
        self.unasked().get_or_insert(format!("a fiber was {what}"));
    }
}
