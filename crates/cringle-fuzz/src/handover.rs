//! Checks that a waiter that gives up passes on what it holds: a notification it received, and its
//! place in the queue before waiters that need fewer permits. Otherwise the next waiter would wait
//! for ever.

use super::Share;
use super::env::{Env, Stop};
use super::locks::{complete, sound};
use super::shared::{User, one_each, run, take};
use cringle::sync::{Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The first fiber makes tokens and notifies one waiter for each; the others take them.
pub(super) fn tokens(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (tokens, more, taken) = (Mutex::new(0), Condvar::new(), AtomicUsize::new(0));
    let all = (share.fibers - 1) * share.rounds;
    let ended = run(
        env,
        share,
        |user| {
            if user.number == 0 {
                for _ in 0..all {
                    *sound(user.env, tokens.lock()) += 1;
                    more.notify_one();
                    // Sometimes keep the lock, so that the notified fiber has to wait for it.
                    let held = user.twin().then(|| sound(user.env, tokens.lock()));
                    user.pause().map_err(|e| user.env.stopped_by(&e))?;
                    drop(held);
                }
                return Ok(());
            }
            // Only one fiber never gives up. A notification to a fiber that gives up must reach it.
            let stays = user.number == 1;
            let take = |twin: bool| {
                let available = sound(env, tokens.lock());
                let none = |count: &mut usize| *count == 0 && taken.load(SeqCst) < all;
                let waited = if twin {
                    more.wait_while_cancellable(available, none)?
                } else {
                    more.wait_while(available, none)
                };
                let mut count = sound(env, waited);
                if *count > 0 {
                    *count -= 1;
                    if taken.fetch_add(1, SeqCst) + 1 == all {
                        more.notify_all();
                    }
                }
                Ok(())
            };
            while taken.load(SeqCst) < all {
                let twin = user.twin();
                match stays {
                    true => take(twin).map_err(|e| user.env.stopped_by(&e))?,
                    false if user.rng.one_in(4) => break,
                    false => user.try_once(|| take(twin))?,
                }
            }
            Ok(())
        },
        || tokens.try_lock().map(drop).map_err(|e| format!("the lock is not free at the end: {e}")),
    )?;
    complete(env, share, ended, taken.load(SeqCst), all)
}

/// The first fiber holds a permit until every other had one; some of the others first wait for all
/// permits and give up.
pub(super) fn patience(env: &Arc<Env>, share: &Share, rwlock: bool) -> Result<(), Stop> {
    let (semaphore, lock, had) = (Semaphore::new(2), RwLock::new(()), AtomicUsize::new(0));
    let group = WaitGroup::new();
    let members = one_each(share.fibers, || group.clone());
    drop(group);
    let all = || -> io::Result<()> {
        if rwlock {
            drop(lock.write_cancellable()?);
        } else {
            drop(semaphore.acquire_many_cancellable(2)?);
        }
        Ok(())
    };
    let one = |user: &mut User<'_>, then: &dyn Fn()| {
        if rwlock {
            let _read = sound(user.env, lock.read());
            then();
        } else {
            let _permit = semaphore.acquire();
            then();
        }
        had.fetch_add(1, SeqCst);
    };
    let ended = run(
        env,
        share,
        |user| {
            let member = std::cell::Cell::new(Some(take(&members, user.number)));
            if user.number == 0 {
                one(user, &|| member.take().expect("taken once").wait());
                return Ok(());
            }
            user.pause().map_err(|e| user.env.stopped_by(&e))?;
            if user.rng.one_in(2) {
                user.try_once(all)?;
            }
            one(user, &|| ());
            Ok(())
        },
        || Ok(()),
    )?;
    complete(env, share, ended, had.load(SeqCst), share.fibers)
}
