//! Runs the fibers that share a synchronisation primitive: their scope, cancels and deadlines.

use super::env::{Env, Stop};
use super::frames::Frame;
use super::{Share, Shared, channels, handover, locks};
use cringle::cancel::{self, Reason};
use cringle::sim::{Checker, Rng};
use cringle::{fiber, time};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of attempts with a deadline before the attempt without one.
const TRIES_WITH_DEADLINE: usize = 4;

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

/// Makes something for each fiber to take.
pub(super) fn one_each<T>(count: usize, make: impl Fn() -> T) -> Vec<Mutex<Option<T>>> {
    (0..count).map(|_| Mutex::new(Some(make()))).collect()
}

pub(super) fn take<T>(all: &[Mutex<Option<T>>], number: usize) -> T {
    let own = all[number].lock().expect("no code panics under this lock").take();
    own.expect("each fiber takes its own once")
}

/// One of the fibers that share the primitive.
pub(super) struct User<'a> {
    pub(super) env: &'a Arc<Env>,
    share: &'a Share,
    pub(super) number: usize,
    pub(super) rng: Rng,
}

/// Runs `user` on each fiber of the share, and cancels them if the share says so. Returns whether
/// they ran to their end. `afterwards` checks at the scope's end what must hold in every case, also
/// if the caller unwinds.
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
        if let Some(delay) = share.cancel_after {
            delay.pass();
            flag.store(true, Ordering::Release);
            s.cancel();
            return Vec::new();
        }
        handles.into_iter().map(|handle| handle.join()).collect()
    });
    env.check_cancelled()?;
    for result in ended {
        match result {
            Ok(result) => result?,
            Err(payload) if payload.is::<cringle::Cancelled>() => return Err(env.ended_early()),
            Err(_) => return Err(env.fail(Checker::Panic, "a fiber panicked")),
        }
    }
    Ok(share.cancel_after.is_none())
}

impl User<'_> {
    pub(super) fn rounds(&self) -> usize {
        self.share.rounds
    }

    /// Returns whether none of the fibers can have been cancelled.
    pub(super) fn is_safe(&self) -> bool {
        self.share.cancel_after.is_none() && !self.env.may_be_cancelled()
    }

    /// Decides whether to call the `_cancellable` twin of a function.
    pub(super) fn twin(&mut self) -> bool {
        self.rng.one_in(2)
    }

    /// Retries `f` until no deadline of this function ends it.
    pub(super) fn persist<T>(
        &mut self,
        mut f: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> Result<T, Stop> {
        for _ in 0..if self.share.has_deadlines { TRIES_WITH_DEADLINE } else { 0 } {
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
                            return Err(self.env.fail(Checker::Outcome, "a deadline passed early"));
                        }
                        self.env.check_cancelled()?;
                    }
                    _ => return Err(self.env.stopped_by(&e)),
                },
            }
        }
        f(self).map_err(|e| self.env.stopped_by(&e))
    }

    /// Calls `f` with a short deadline, after which it gives up.
    pub(super) fn try_once(&mut self, f: impl FnOnce() -> io::Result<()>) -> Result<(), Stop> {
        let limit = Duration::from_nanos(self.rng.magnitude(1, 200_000));
        let gave_up = |e: &io::Error| match cancel::reason(e) {
            Some(Reason::Elapsed(elapsed)) => elapsed.limit() == Some(limit),
            _ => false,
        };
        match time::timeout(limit, f) {
            Err(e) if !gave_up(&e) => Err(self.env.stopped_by(&e)),
            _ => self.env.check_cancelled(),
        }
    }

    /// Suspends in one of several ways, or not at all; a cancel may end it.
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
