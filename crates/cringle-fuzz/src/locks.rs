//! Checks locks, condition variables, barriers and wait groups: exclusion holds, no count is lost,
//! and at the end each is free and not poisoned.

use super::Share;
use super::env::{Env, Stop};
use super::shared::{User, one_each, run, take};
use cringle::sim::Checker;
use cringle::sync::{Barrier, Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use std::io;
use std::sync::Arc;
use std::sync::LockResult;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Counts the fibers inside a critical section, and the visits that are complete.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    done: AtomicUsize,
}

impl Inside {
    /// Enters, pauses and leaves; fails the run if more than `most` fibers are inside.
    fn visit(&self, user: &mut User<'_>, most: usize) -> io::Result<()> {
        struct Leave<'a>(&'a AtomicUsize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        let others = self.now.fetch_add(1, SeqCst);
        let _leave = Leave(&self.now);
        if others >= most {
            let text = format!("{} fibers are inside where {most} may be", others + 1);
            user.env.fail(Checker::Outcome, text);
        }
        user.pause()
    }

    fn complete(&self, env: &Env, share: &Share, ended: bool) -> Result<(), Stop> {
        complete(env, share, ended, self.done.load(SeqCst), share.fibers * share.rounds)
    }
}

/// Checks that fibers which ran to their end did all of their work.
pub(super) fn complete(
    env: &Env,
    share: &Share,
    ended: bool,
    did: usize,
    all: usize,
) -> Result<(), Stop> {
    if ended && did != all {
        let text = format!("{:?}: {did} of {all} were done", share.what);
        return Err(env.fail(Checker::Outcome, text));
    }
    Ok(())
}

/// Returns the guard, and fails the run if the lock is poisoned.
pub(super) fn sound<T>(env: &Env, locked: LockResult<T>) -> T {
    locked.unwrap_or_else(|poisoned| {
        env.fail(Checker::Outcome, "a lock is poisoned though no fiber panicked");
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
            Ok(count) => Err(format!("the count is {}, not {:?}", *count, inside.done)),
            Err(e) => Err(format!("the lock is not free at the end: {e}")),
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
                            user.env.fail(Checker::Outcome, "a reader is inside with a writer");
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
            Ok(count) => Err(format!("the count is {}, not {:?}", *count, writers.done)),
            Err(e) => Err(format!("the lock is not free at the end: {e}")),
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
                    let _permit = if user.twin() {
                        semaphore.acquire_many_cancellable(count)?
                    } else {
                        semaphore.acquire_many(count)
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
            left => Err(format!("{left} of {permits} permits are available at the end")),
        },
    )?;
    inside.complete(env, share, ended)
}

/// Fibers take turns, each waiting for its number.
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
                    let is_not_mine = |turn: &mut usize| *turn != mine;
                    let waited = if user.twin() {
                        changed.wait_while_cancellable(turns, is_not_mine)?
                    } else {
                        changed.wait_while(turns, is_not_mine)
                    };
                    *sound(user.env, waited) += 1;
                    changed.notify_all();
                    Ok(())
                })?;
            }
            Ok(())
        },
        || turn.try_lock().map(drop).map_err(|e| format!("the lock is not free at the end: {e}")),
    )?;
    let turns = turn.into_inner().unwrap_or(0);
    complete(env, share, ended, turns, share.fibers * share.rounds)
}

/// All fibers meet in each round. There are no deadlines: a fiber that gave up and waited again
/// would count twice.
pub(super) fn barrier(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (barrier, leaders) = (Barrier::new(share.fibers), AtomicUsize::new(0));
    let ended = run(
        env,
        share,
        |user| {
            for round in 0..user.rounds() {
                user.pause().map_err(|e| user.env.stopped_by(&e))?;
                let met = if user.twin() {
                    barrier.wait_cancellable().map_err(|e| user.env.stopped_by(&e))?
                } else {
                    barrier.wait()
                };
                let led = leaders.fetch_add(met.is_leader().into(), SeqCst);
                if led > round + 1 {
                    user.env.fail(Checker::Outcome, "a barrier released a fiber early");
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
    let members = one_each(share.fibers, || group.clone());
    drop(group);
    let ended = run(
        env,
        share,
        |user| {
            let member = take(&members, user.number);
            user.pause().map_err(|e| user.env.stopped_by(&e))?;
            if user.number > 0 {
                gone.fetch_add(1, SeqCst);
                return Ok(());
            }
            if user.twin() {
                member.wait_cancellable().map_err(|e| user.env.stopped_by(&e))?;
            } else {
                member.wait();
            }
            gone.fetch_add(1, SeqCst);
            if gone.load(SeqCst) != share.fibers && user.is_safe() {
                user.env.fail(Checker::Outcome, "a wait for a group returned early");
            }
            Ok(())
        },
        || Ok(()),
    )?;
    complete(env, share, ended, gone.into_inner(), share.fibers)
}
