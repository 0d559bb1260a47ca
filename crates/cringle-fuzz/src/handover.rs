//! What a waiter that gives up must leave to the next: a notification it was given, and its place in
//! front of those who need less. Nothing else would let them go on.

use super::Share;
use super::env::{Env, Stop};
use super::locks::{complete, sound};
use super::shared::{User, run};
use cringle::sync::{Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The first makes tokens and notifies one for each; the others take them.
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
                    // Or it is held meanwhile: who was notified has to wait for it.
                    let held = user.twin().then(|| sound(user.env, tokens.lock()));
                    user.pause().map_err(|e| user.env.told(&e))?;
                    drop(held);
                }
                return Ok(());
            }
            // Who gives up does not come back: whoever stays is to be notified in its place.
            let stays = user.number == 1;
            let take = |twin: bool| {
                let there = sound(env, tokens.lock());
                let none = |count: &mut usize| *count == 0 && taken.load(SeqCst) < all;
                let waited = match twin {
                    true => more.wait_while_cancellable(there, none)?,
                    false => more.wait_while(there, none),
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
                    true => take(twin).map_err(|e| user.env.told(&e))?,
                    false if user.rng.one_in(4) => break,
                    false => user.try_once(|| take(twin))?,
                }
            }
            Ok(())
        },
        || tokens.try_lock().map(drop).map_err(|e| format!("afterwards: {e}")),
    )?;
    complete(env, share, ended, taken.load(SeqCst), all)
}

/// The first holds one until all others had one; some of those want all before, and give up.
pub(super) fn patience(env: &Arc<Env>, share: &Share, rwlock: bool) -> Result<(), Stop> {
    let (semaphore, lock, had) = (Semaphore::new(2), RwLock::new(()), AtomicUsize::new(0));
    let group = WaitGroup::new();
    let members: Vec<_> =
        (0..share.fibers).map(|_| std::sync::Mutex::new(Some(group.clone()))).collect();
    drop(group);
    let all = || -> io::Result<()> {
        match rwlock {
            true => drop(lock.write_cancellable()?),
            false => drop(semaphore.acquire_many_cancellable(2)?),
        }
        Ok(())
    };
    let one = |user: &mut User<'_>, then: &dyn Fn()| {
        match rwlock {
            true => {
                let _read = sound(user.env, lock.read());
                then();
            }
            false => {
                let _permit = semaphore.acquire();
                then();
            }
        }
        had.fetch_add(1, SeqCst);
    };
    let ended = run(
        env,
        share,
        |user| {
            let member = members[user.number].lock().expect("no code panics here").take();
            let member = std::cell::Cell::new(member);
            if user.number == 0 {
                one(user, &|| member.take().expect("it is there").wait());
                return Ok(());
            }
            user.pause().map_err(|e| user.env.told(&e))?;
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
