//! Locks and meeting points: nobody is inside with somebody who must not be, no count is lost, and
//! afterwards they are free and not poisoned.

use super::Share;
use super::env::{Env, Stop};
use super::shared::{User, run};
use cringle::sim::Checker;
use cringle::sync::{Barrier, Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use std::io;
use std::sync::Arc;
use std::sync::LockResult;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Who is inside, and how often somebody was.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    done: AtomicUsize,
}

impl Inside {
    /// Comes in and, after a pause, goes; says whether too many were there.
    fn visit(&self, user: &mut User<'_>, most: usize) -> io::Result<()> {
        struct Leave<'a>(&'a AtomicUsize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        let there = self.now.fetch_add(1, SeqCst);
        let _leave = Leave(&self.now);
        if there >= most {
            let text = format!("{} are in where {most} may be", there + 1);
            user.env.fail(Checker::Outcome, text);
        }
        user.pause()
    }

    fn complete(&self, env: &Env, share: &Share, ended: bool) -> Result<(), Stop> {
        complete(env, share, ended, self.done.load(SeqCst), share.fibers * share.rounds)
    }
}

/// Fibers that went to their end have done all there was.
pub(super) fn complete(
    env: &Env,
    share: &Share,
    ended: bool,
    did: usize,
    all: usize,
) -> Result<(), Stop> {
    match ended && did != all {
        true => {
            let text = format!("{:?}: {did} of {all} were done", share.what);
            Err(env.fail(Checker::Outcome, text))
        }
        false => Ok(()),
    }
}

pub(super) fn sound<T>(env: &Env, locked: LockResult<T>) -> T {
    locked.unwrap_or_else(|poisoned| {
        env.fail(Checker::Outcome, "a lock is poisoned, and nobody panicked");
        poisoned.into_inner()
    })
}

pub(super) fn mutex(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (lock, inside) = (Mutex::new(0), Inside::default());
    let ended = run(
        env,
        share,
        |user| {
            for _ in 0..user.rounds() {
                user.persist(|user| {
                    let locked = if user.twin() { lock.lock_cancellable()? } else { lock.lock() };
                    let mut count = sound(user.env, locked);
                    let before = *count;
                    inside.visit(user, 1)?;
                    *count = before + 1;
                    inside.done.fetch_add(1, SeqCst);
                    Ok(())
                })?;
            }
            Ok(())
        },
        || match lock.try_lock() {
            Ok(count) if *count == inside.done.load(SeqCst) => Ok(()),
            Ok(count) => Err(format!("{} of {:?} counts are there", *count, inside.done)),
            Err(e) => Err(format!("afterwards: {e}")),
        },
    )?;
    inside.complete(env, share, ended)
}

pub(super) fn rwlock(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (lock, writers, readers) = (RwLock::new(0), Inside::default(), Inside::default());
    let ended = run(
        env,
        share,
        |user| {
            for _ in 0..user.rounds() {
                let reads = user.rng.one_in(2);
                user.persist(|user| {
                    let twin = user.twin();
                    if reads {
                        let read = if twin { lock.read_cancellable()? } else { lock.read() };
                        let count = sound(user.env, read);
                        let before = *count;
                        readers.visit(user, usize::MAX)?;
                        if *count != before || writers.now.load(SeqCst) > 0 {
                            user.env.fail(Checker::Outcome, "a reader has met a writer");
                        }
                        readers.done.fetch_add(1, SeqCst);
                        return Ok(());
                    }
                    let write = if twin { lock.write_cancellable()? } else { lock.write() };
                    let mut count = sound(user.env, write);
                    writers.visit(user, 1)?;
                    *count += 1;
                    writers.done.fetch_add(1, SeqCst);
                    Ok(())
                })?;
            }
            Ok(())
        },
        || match lock.try_write() {
            Ok(count) if *count == writers.done.load(SeqCst) => Ok(()),
            Ok(count) => Err(format!("{} of {:?} counts are there", *count, writers.done)),
            Err(e) => Err(format!("afterwards: {e}")),
        },
    )?;
    let did = readers.done.load(SeqCst) + writers.done.load(SeqCst);
    complete(env, share, ended, did, share.fibers * share.rounds)
}

pub(super) fn semaphore(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let permits = 1 + share.salt as usize % 3;
    let (semaphore, inside) = (Semaphore::new(permits), Inside::default());
    let ended = run(
        env,
        share,
        |user| {
            for _ in 0..user.rounds() {
                let count = 1 + user.rng.below(permits as u64) as usize;
                user.persist(|user| {
                    let _permit = match user.twin() {
                        true => semaphore.acquire_many_cancellable(count)?,
                        false => semaphore.acquire_many(count),
                    };
                    inside.visit(user, permits)?;
                    inside.done.fetch_add(1, SeqCst);
                    Ok(())
                })?;
            }
            Ok(())
        },
        || match semaphore.available() {
            all if all == permits => Ok(()),
            left => Err(format!("{left} of {permits} permits are left")),
        },
    )?;
    inside.complete(env, share, ended)
}

/// Each in its turn.
pub(super) fn condvar(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    let ended = run(
        env,
        share,
        |user| {
            for round in 0..user.rounds() {
                let mine = round * share.fibers + user.number;
                user.persist(|user| {
                    let turns = sound(user.env, turn.lock());
                    let waited = match user.twin() {
                        true => changed.wait_while_cancellable(turns, |turn| *turn != mine)?,
                        false => changed.wait_while(turns, |turn| *turn != mine),
                    };
                    *sound(user.env, waited) += 1;
                    changed.notify_all();
                    Ok(())
                })?;
            }
            Ok(())
        },
        || turn.try_lock().map(drop).map_err(|e| format!("afterwards: {e}")),
    )?;
    let turns = turn.into_inner().unwrap_or(0);
    complete(env, share, ended, turns, share.fibers * share.rounds)
}

/// All of them in each round. Who was there once must not come again: nothing is hurried.
pub(super) fn barrier(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (barrier, leaders) = (Barrier::new(share.fibers), AtomicUsize::new(0));
    let ended = run(
        env,
        share,
        |user| {
            for round in 0..user.rounds() {
                user.pause().map_err(|e| user.env.told(&e))?;
                let met = match user.twin() {
                    true => barrier.wait_cancellable().map_err(|e| user.env.told(&e))?,
                    false => barrier.wait(),
                };
                let led = leaders.fetch_add(met.is_leader().into(), SeqCst);
                if led > round + 1 {
                    user.env.fail(Checker::Outcome, "a barrier has let somebody through early");
                }
            }
            Ok(())
        },
        || Ok(()),
    )?;
    complete(env, share, ended, leaders.into_inner(), share.rounds)
}

/// The first waits for the others.
pub(super) fn wait_group(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (group, gone) = (WaitGroup::new(), AtomicUsize::new(0));
    let members: Vec<_> =
        (0..share.fibers).map(|_| std::sync::Mutex::new(Some(group.clone()))).collect();
    drop(group);
    let ended = run(
        env,
        share,
        |user| {
            let member = members[user.number].lock().expect("no code panics here").take();
            let member = member.expect("each takes its own");
            user.pause().map_err(|e| user.env.told(&e))?;
            if user.number > 0 {
                gone.fetch_add(1, SeqCst);
                return Ok(());
            }
            match user.twin() {
                true => member.wait_cancellable().map_err(|e| user.env.told(&e))?,
                false => member.wait(),
            }
            gone.fetch_add(1, SeqCst);
            if gone.load(SeqCst) != share.fibers && user.is_safe() {
                user.env.fail(Checker::Outcome, "a wait for a group has ended early");
            }
            Ok(())
        },
        || Ok(()),
    )?;
    complete(env, share, ended, gone.into_inner(), share.fibers)
}
