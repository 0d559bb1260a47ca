//! Scopes that are cancelled, deadlines and protected calls.

use super::env::{Env, Stop};
use super::expected::alone;
use super::frames::Frame;
use super::interpret::{finished, run_body};
use super::peers::{OnDrop, Presence, on_exits};
use super::{Body, Cut, Delay};
use cringle::fs::File;
use cringle::sim::Checker;
use cringle::{cancel, fiber, time};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

type Children<'a> = &'a [(bool, Arc<Body>)];

/// What the fiber of a `try_scope` fails or panics with.
#[derive(Debug)]
struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("failed on purpose")
    }
}

impl std::error::Error for Failed {}

/// A scope that somebody cancels; the fiber that opened it goes on as before.
pub(super) fn cut(
    env: &Arc<Env>,
    file: &File,
    how: Cut,
    delay: Delay,
    children: Children<'_>,
    exits: usize,
) -> Result<(), Stop> {
    let (flag, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let within = env.within(Frame::scope(env, &flag));
    let cutting = Cutting { env: &within, file, children, delay, flag: &flag, inside: &inside };
    match how {
        Cut::Owner | Cut::Child => cutting.by_member(how == Cut::Owner, exits),
        Cut::Sibling => cutting.by_sibling(exits),
        Cut::Failure => cutting.by_failure(env)?,
        Cut::Panic => cutting.by_panic(env)?,
    }
    match inside.load(Ordering::Acquire) {
        0 => env.go_on(),
        left => {
            let text = format!("{left} fibers are left of a scope that was cancelled");
            Err(env.fail(Checker::Scopes, text))
        }
    }
}

struct Cutting<'a> {
    env: &'a Arc<Env>,
    file: &'a File,
    children: Children<'a>,
    delay: Delay,
    flag: &'a AtomicBool,
    inside: &'a Arc<AtomicUsize>,
}

impl Cutting<'_> {
    fn child(&self, body: &Arc<Body>) -> impl FnOnce() + Send {
        let (presence, env, file) = (Presence::of(self.inside), self.env, self.file);
        let body = Arc::clone(body);
        move || {
            let _presence = presence;
            let _lingers = OnDrop(|| linger(env));
            // It was cut short, or has come to what it should.
            let _ = finished(env, &body, run_body(env, &body, Some(file)));
        }
    }

    /// After a while, says so and cancels.
    fn end(&self, cancel: impl FnOnce()) {
        self.delay.pass();
        self.flag.store(true, Ordering::Release);
        cancel();
    }

    fn by_member(&self, owner: bool, exits: usize) {
        fiber::scope(|s| {
            on_exits(self.env, s, exits, self.inside);
            for (local, body) in self.children {
                let run = self.child(body);
                if *local {
                    s.spawn_local(run)
                } else {
                    s.spawn(run)
                };
            }
            if !owner {
                s.spawn(|| self.end(|| s.cancel()));
                return;
            }
            self.end(|| s.cancel());
            if cancel::check().is_ok() || !s.is_cancelled() {
                self.env.fail(Checker::Outcome, "a scope's owner is not cancelled with it");
            }
        });
    }

    /// (A plain scope would pass on that its own closure was unwound.)
    fn by_sibling(&self, exits: usize) {
        let _told: io::Result<()> = fiber::try_scope(|s| {
            s.spawn(|| {
                fiber::scope(|inner| {
                    inner.spawn_local(|| self.end(|| s.cancel()));
                });
                Ok(())
            });
            fiber::scope(|inner| {
                on_exits(self.env, inner, exits, self.inside);
                for (local, body) in self.children {
                    let run = self.child(body);
                    if *local {
                        inner.spawn_local(run)
                    } else {
                        inner.spawn(run)
                    };
                }
            });
            Ok(())
        });
    }

    fn by_failure(&self, outside: &Env) -> Result<(), Stop> {
        let result = fiber::try_scope(|s| {
            for (local, body) in self.children {
                let run = self.child(body);
                let run = || {
                    run();
                    Ok::<_, io::Error>(())
                };
                if *local {
                    s.spawn_local(run)
                } else {
                    s.spawn(run)
                };
            }
            s.spawn(|| {
                self.end(|| ());
                io::Result::<()>::Err(io::Error::other(Failed))
            });
            Ok(())
        });
        match result {
            Err(e) if e.get_ref().is_some_and(|inner| inner.is::<Failed>()) => Ok(()),
            // It was cancelled itself, or did not get so far.
            other => {
                outside.go_on()?;
                let text = format!("a fiber failed, and its scope says {other:?}");
                Err(outside.fail(Checker::Outcome, text))
            }
        }
    }

    fn by_panic(&self, outside: &Env) -> Result<(), Stop> {
        let told = fiber::scope(|o| {
            let opens = o.spawn_local(|| {
                fiber::try_scope(|s| {
                    for (local, body) in self.children {
                        let run = self.child(body);
                        let run = || {
                            run();
                            Ok::<_, io::Error>(())
                        };
                        if *local {
                            s.spawn_local(run)
                        } else {
                            s.spawn(run)
                        };
                    }
                    s.spawn_local(|| -> io::Result<()> {
                        self.end(|| ());
                        std::panic::resume_unwind(Box::new(Failed))
                    });
                    Ok(())
                })
            });
            opens.join()
        });
        match told {
            Err(payload) if payload.is::<Failed>() => Ok(()),
            _ => {
                outside.go_on()?;
                Err(outside.fail(Checker::Panic, "a panic was not told by its scope"))
            }
        }
    }
}

/// What a destructor waits for while its fiber unwinds is waited for.
fn linger(env: &Env) {
    if fiber::panicking() {
        let (start, pause) = (time::now(), Duration::from_micros(3));
        fiber::sleep(pause);
        if time::now() < start + pause {
            env.fail(Checker::Outcome, "a wait of a destructor was cut short");
        }
    }
}

/// A body with a deadline: it is through, or was cut short by that or what is around it.
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
            within.told(&e);
        }
        Err(_) => drop(within.cut_short()),
        Ok(_) => {}
    }
    env.go_on()
}

/// A body that has to go to its end, though its fiber may be cancelled before or meanwhile.
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
            shielded.go_on().and(digest)
        });
        // As before, then.
        if flag.load(Ordering::Acquire) && cancel::check().is_ok() {
            inner.fail(Checker::Outcome, "a protected call has undone the cancel around it");
        }
        digest
    });
    match digest {
        Ok(digest) if digest == alone(body) => env.go_on().map(|()| digest),
        Ok(_) => Err(env.fail(Checker::Outcome, "a protected call came to something else")),
        Err(Stop) if env.is_dead() => Err(Stop),
        Err(Stop) => Err(env.fail(Checker::Outcome, "a protected call was cut short")),
    }
}
