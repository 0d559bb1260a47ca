//! Fibers that use something together: what all such statements have in common.

use super::env::{Env, Stop};
use super::frames::Frame;
use super::{Share, Shared, channels, handover, locks};
use cringle::cancel::{self, Reason};
use cringle::sim::{Checker, Rng};
use cringle::{fiber, time};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Tries that may run out of time, before one that may not.
const HURRIED_TRIES: usize = 4;

pub(super) fn share(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    match share.what {
        Shared::Mutex => locks::mutex(env, share),
        Shared::RwLock => locks::rwlock(env, share),
        Shared::Semaphore => locks::semaphore(env, share),
        Shared::Condvar => locks::condvar(env, share),
        Shared::Tokens => handover::tokens(env, share),
        Shared::Patience { rwlock } => handover::patience(env, share, rwlock),
        Shared::Barrier => locks::barrier(env, share),
        Shared::WaitGroup => locks::wait_group(env, share),
        Shared::Mpsc(bound) => channels::mpsc(env, share, bound),
        Shared::Mpmc(capacity) => channels::mpmc(env, share, capacity),
        Shared::Oneshot => channels::oneshot(env, share),
        Shared::Watch => channels::watch(env, share),
    }
}

/// One of the fibers.
pub(super) struct User<'a> {
    pub(super) env: &'a Arc<Env>,
    share: &'a Share,
    pub(super) number: usize,
    pub(super) rng: Rng,
}

/// Runs the fibers, and in a scope that is to be cut cancels them after a while; whether they went to
/// their end. What holds in any case is looked at by `afterwards`, whatever happens to the caller.
pub(super) fn run(
    env: &Arc<Env>,
    share: &Share,
    user: impl Fn(&mut User<'_>) -> Result<(), Stop> + Sync,
    afterwards: impl FnOnce() -> Result<(), String>,
) -> Result<bool, Stop> {
    let flag = Arc::new(AtomicBool::new(false));
    let within = &env.within(Frame::scope(env, &flag));
    let (user, flag) = (&user, &flag);
    let ended = fiber::scope(|s| {
        s.on_exit_local(|| {
            if let Err(text) = afterwards() {
                env.fail(Checker::Outcome, format!("{:?}: {text}", share.what));
            }
        });
        let handles: Vec<_> = (0..share.fibers)
            .map(|number| {
                let run = move || {
                    let rng = Rng::new(share.salt ^ number as u64);
                    user(&mut User { env: within, share, number, rng })
                };
                if share.local { s.spawn_local(run) } else { s.spawn(run) }
            })
            .collect();
        if let Some(delay) = share.cut {
            delay.pass();
            flag.store(true, Ordering::Release);
            s.cancel();
            return Vec::new();
        }
        handles.into_iter().map(|handle| handle.join()).collect()
    });
    env.go_on()?;
    for result in ended {
        match result {
            Ok(result) => result?,
            Err(payload) if payload.is::<cringle::Cancelled>() => return Err(env.cut_short()),
            Err(_) => return Err(env.fail(Checker::Panic, "a fiber panicked")),
        }
    }
    Ok(share.cut.is_none())
}

impl User<'_> {
    pub(super) fn rounds(&self) -> usize {
        self.share.rounds
    }

    /// Whether nothing has cut the others short.
    pub(super) fn is_safe(&self) -> bool {
        self.share.cut.is_none() && !self.env.may_be_cut()
    }

    /// Whether the twin is called this time.
    pub(super) fn twin(&mut self) -> bool {
        self.rng.one_in(2)
    }

    /// Does what may run out of time until it has not.
    pub(super) fn persist<T>(
        &mut self,
        mut f: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> Result<T, Stop> {
        for _ in 0..if self.share.hurried { HURRIED_TRIES } else { 0 } {
            if self.rng.one_in(3) {
                continue;
            }
            let nanos = self.rng.below(1000);
            let limit = Duration::from_nanos(self.rng.magnitude(1, 500) * 1000 + nanos);
            let at = time::now() + limit;
            match time::timeout(limit, || f(self)) {
                Ok(value) => return Ok(value),
                Err(e) => match cancel::reason(&e) {
                    Some(Reason::Elapsed(elapsed)) if elapsed.limit() == Some(limit) => {
                        if time::now() < at {
                            return Err(self.env.fail(Checker::Outcome, "a deadline came early"));
                        }
                        self.env.go_on()?;
                    }
                    _ => return Err(self.env.told(&e)),
                },
            }
        }
        f(self).map_err(|e| self.env.told(&e))
    }

    /// Does it with little time, or not at all.
    pub(super) fn try_once(&mut self, f: impl FnOnce() -> io::Result<()>) -> Result<(), Stop> {
        let limit = Duration::from_nanos(self.rng.magnitude(1, 200_000));
        match time::timeout(limit, f) {
            Err(e) if !matches!(cancel::reason(&e), Some(Reason::Elapsed(elapsed)) if elapsed.limit() == Some(limit)) => {
                Err(self.env.told(&e))
            }
            _ => self.env.go_on(),
        }
    }

    /// Something else in between, where a cancel may come.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        let duration = Duration::from_micros(self.rng.magnitude(1, 200));
        match self.rng.below(5) {
            0 => fiber::yield_now(),
            1 => fiber::yield_now_cancellable()?,
            2 => fiber::sleep(duration),
            3 => time::sleep(duration)?,
            _ => {}
        }
        Ok(())
    }
}
