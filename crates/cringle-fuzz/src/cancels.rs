//! Runs scopes that are cancelled, deadlines and protected calls.

use super::env::{Env, Stop};
use super::expected::whole_digest;
use super::frames::Frame;
use super::interpret::{finished, run_body};
use super::peers::{OnDrop, Presence, on_exits};
use super::{Body, CancelBy, Delay};
use cringle::fs::File;
use cringle::sim::Checker;
use cringle::{cancel, fiber, time};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

type Children<'a> = &'a [(bool, Arc<Body>)];

/// The error or panic payload of a fiber that fails on purpose.
#[derive(Debug)]
struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failed on purpose")
    }
}

impl std::error::Error for Failed {}

/// Runs a scope that is cancelled, and checks that the fiber that opened it continues.
pub(super) fn cancel_scope(
    env: &Arc<Env>,
    file: &File,
    how: CancelBy,
    delay: Delay,
    children: Children<'_>,
    exits: usize,
) -> Result<(), Stop> {
    let (flag, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let within = env.within(Frame::scope(env, &flag));
    let cancelled =
        CancelledScope { env: &within, file, children, delay, flag: &flag, inside: &inside };
    match how {
        CancelBy::Owner | CancelBy::Child => cancelled.by_member(how == CancelBy::Owner, exits),
        CancelBy::Sibling => cancelled.by_sibling(exits),
        CancelBy::Failure => cancelled.by_failure(env)?,
        CancelBy::Panic => cancelled.by_panic(env)?,
    }
    match inside.load(Ordering::Acquire) {
        0 => env.check_cancelled(),
        left => {
            let text = format!("{left} fibers of a cancelled scope outlive it");
            Err(env.fail(Checker::Scopes, text))
        }
    }
}

struct CancelledScope<'a> {
    env: &'a Arc<Env>,
    file: &'a File,
    children: Children<'a>,
    delay: Delay,
    flag: &'a AtomicBool,
    inside: &'a Arc<AtomicUsize>,
}

impl CancelledScope<'_> {
    fn child(&self, body: &Arc<Body>) -> impl FnOnce() + Send {
        let (presence, env, file) = (Presence::of(self.inside), self.env, self.file);
        let body = Arc::clone(body);
        move || {
            let _presence = presence;
            let _waits = OnDrop(|| wait_while_unwinding(env));
            // `finished` records a wrong outcome; that the body ended early is no error here.
            let _ = finished(env, &body, run_body(env, &body, Some(file)));
        }
    }

    /// Waits, sets the flag, and cancels.
    fn end(&self, cancel: impl FnOnce()) {
        self.delay.pass();
        self.flag.store(true, Ordering::Release);
        cancel();
    }

    fn spawn<'s>(&'s self, s: &'s fiber::Scope<'s, '_>) {
        for (local, body) in self.children {
            let run = self.child(body);
            let _handle = if *local { s.spawn_local(run) } else { s.spawn(run) };
        }
    }

    fn by_member(&self, owner: bool, exits: usize) {
        fiber::scope(|s| {
            on_exits(self.env, s, exits, self.inside);
            self.spawn(s);
            if !owner {
                s.spawn(|| self.end(|| s.cancel()));
                return;
            }
            self.end(|| s.cancel());
            if cancel::check().is_ok() || !s.is_cancelled() {
                self.env.fail(Checker::Outcome, "cancelling a scope did not cancel its owner");
            }
        });
    }

    /// Uses `try_scope`, since `scope` would propagate that its own closure was unwound.
    fn by_sibling(&self, exits: usize) {
        let _result: io::Result<()> = fiber::try_scope(|s| {
            s.spawn(|| {
                fiber::scope(|inner| {
                    inner.spawn_local(|| self.end(|| s.cancel()));
                });
                Ok(())
            });
            fiber::scope(|inner| {
                on_exits(self.env, inner, exits, self.inside);
                self.spawn(inner);
            });
            Ok(())
        });
    }

    /// Spawns the children in a scope that a failure cancels.
    fn spawn_fallible<'s>(&'s self, s: &'s fiber::TryScope<'s, '_, io::Error>) {
        for (local, body) in self.children {
            let run = self.child(body);
            let run = move || {
                run();
                io::Result::Ok(())
            };
            let _handle = if *local { s.spawn_local(run) } else { s.spawn(run) };
        }
    }

    fn by_failure(&self, outside: &Env) -> Result<(), Stop> {
        let result = fiber::try_scope(|s| {
            self.spawn_fallible(s);
            s.spawn(|| {
                self.end(|| ());
                io::Result::<()>::Err(io::Error::other(Failed))
            });
            Ok(())
        });
        match result {
            Err(e) if e.get_ref().is_some_and(|inner| inner.is::<Failed>()) => Ok(()),
            // Otherwise this fiber itself was cancelled.
            other => {
                outside.check_cancelled()?;
                let text = format!("a fiber failed, but its scope returned {other:?}");
                Err(outside.fail(Checker::Outcome, text))
            }
        }
    }

    fn by_panic(&self, outside: &Env) -> Result<(), Stop> {
        let result = fiber::scope(|o| {
            let opens = o.spawn_local(|| {
                fiber::try_scope(|s| {
                    self.spawn_fallible(s);
                    s.spawn_local(|| -> io::Result<()> {
                        self.end(|| ());
                        std::panic::resume_unwind(Box::new(Failed))
                    });
                    Ok(())
                })
            });
            opens.join()
        });
        match result {
            Err(payload) if payload.is::<Failed>() => Ok(()),
            _ => {
                outside.check_cancelled()?;
                Err(outside.fail(Checker::Panic, "a scope did not propagate a panic"))
            }
        }
    }
}

/// Checks that a destructor which runs while its fiber unwinds can wait.
fn wait_while_unwinding(env: &Env) {
    if fiber::panicking() {
        let (start, pause) = (time::now(), Duration::from_micros(3));
        fiber::sleep(pause);
        if time::now() < start + pause {
            env.fail(Checker::Outcome, "a wait in a destructor returned early");
        }
    }
}

/// Runs a body with a deadline: it runs to its end, or this deadline or an outer frame cancels it.
pub(super) fn timeout(
    env: &Arc<Env>,
    file: &File,
    limit: Duration,
    body: &Arc<Body>,
) -> Result<(), Stop> {
    let within = env.within(Frame::deadline(env, limit));
    let result = time::timeout(limit, || {
        finished(&within, body, run_body(&within, body, Some(file)))
            .map_err(|Stop| io::Error::other(Failed))
    });
    match result {
        Err(e) if !e.get_ref().is_some_and(|inner| inner.is::<Failed>()) => {
            within.stopped_by(&e);
        }
        Err(_) => drop(within.ended_early()),
        Ok(_) => {}
    }
    env.check_cancelled()
}

/// Runs a body in a protected call, which must run to its end though its fiber is cancelled before
/// or during the call.
pub(super) fn protect(
    env: &Arc<Env>,
    file: &File,
    cancelled: Option<Delay>,
    body: &Arc<Body>,
) -> Result<u64, Stop> {
    let flag = Arc::new(AtomicBool::new(false));
    let within = env.within(Frame::scope(env, &flag));
    let digest = fiber::scope(|s| {
        let inner = &within;
        let cancel = || {
            flag.store(true, Ordering::Release);
            s.cancel();
        };
        match cancelled {
            None => {}
            Some(Delay::Yields(0)) => cancel(),
            Some(delay) => drop(s.spawn_local(move || {
                delay.pass();
                cancel();
            })),
        }
        let shielded = inner.within(Frame::shield(inner));
        let digest = fiber::protect(|| {
            let digest = run_body(&shielded, body, Some(file));
            shielded.check_cancelled().and(digest)
        });
        // After the call, the cancel is in effect again.
        if flag.load(Ordering::Acquire) && cancel::check().is_ok() {
            inner.fail(Checker::Outcome, "a protected call undid the cancel around it");
        }
        digest
    });
    match digest {
        Ok(digest) if digest == whole_digest(body) => env.check_cancelled().map(|()| digest),
        Ok(_) => Err(env.fail(Checker::Outcome, "a protected call has an unexpected digest")),
        Err(Stop) if env.has_lost_power() => Err(Stop),
        Err(Stop) => Err(env.fail(Checker::Outcome, "a cancel ended a protected call")),
    }
}
