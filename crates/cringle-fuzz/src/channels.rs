//! Channels: each value is received once, or still there afterwards, or back with its sender. None is
//! lost or doubled, whoever was cancelled; and each sender's come in order.

use super::Share;
use super::env::{Env, Stop};
use super::locks::complete;
use super::parcels::{Ledger, Parcel};
use super::shared::{User, run};
use cringle::sim::Checker;
use cringle::sync::{mpmc, mpsc, oneshot, watch};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a receiver waits at first, where it has a limit.
const SHORT: Duration = Duration::from_micros(20);

/// Those who send: all but the first.
fn senders(share: &Share) -> usize {
    share.fibers - 1
}

/// Sends all values of a sender, some again that came back.
fn send_all(
    user: &mut User<'_>,
    ledger: &Arc<Ledger>,
    send: impl Fn(bool, Parcel) -> io::Result<Result<(), ()>>,
) -> Result<(), Stop> {
    for round in 0..user.rounds() {
        let id = (user.number - 1) * user.rounds() + round;
        user.persist(|user| {
            if ledger.is_received(id) {
                // The wait was cut short when it had been handed over.
                return Ok(());
            }
            if send(user.twin(), ledger.parcel(id))?.is_err() {
                user.env.fail(Checker::Outcome, "a channel has no receiver, and has one");
            }
            ledger.sent(id);
            Ok(())
        })?;
        user.pause().map_err(|e| user.env.told(&e))?;
    }
    Ok(())
}

/// Receives until there are no senders; each sender's values come in order.
fn receive_all(
    user: &mut User<'_>,
    ledger: &Ledger,
    recv: impl Fn(bool) -> io::Result<Option<Parcel>>,
) -> Result<(), Stop> {
    let mut last = vec![None; ledger.values()];
    loop {
        let parcel = user.persist(|user| {
            let parcel = recv(user.twin())?;
            if let Some(parcel) = &parcel {
                ledger.received(parcel);
            }
            Ok(parcel)
        })?;
        let Some(parcel) = parcel else { return Ok(()) };
        let last = &mut last[parcel.id / user.rounds()];
        if last.replace(parcel.id) > Some(parcel.id) {
            user.env.fail(Checker::Outcome, "a value has overtaken another of its sender");
        }
        user.pause().map_err(|e| user.env.told(&e))?;
    }
}

/// What each sender takes its own of.
fn one_each<T>(count: usize, make: impl Fn() -> T) -> Vec<Mutex<Option<T>>> {
    (0..count).map(|_| Mutex::new(Some(make()))).collect()
}

fn take<T>(ends: &[Mutex<Option<T>>], number: usize) -> T {
    let end = ends[number].lock().expect("no code panics under this lock").take();
    end.expect("each takes its own")
}

enum AnySender {
    Unbounded(mpsc::Sender<Parcel>),
    Bounded(mpsc::SyncSender<Parcel>),
}

impl AnySender {
    fn send(&self, twin: bool, parcel: Parcel) -> io::Result<Result<(), ()>> {
        Ok(match self {
            AnySender::Unbounded(sender) => sender.send(parcel).map_err(drop),
            AnySender::Bounded(sender) if twin => sender.send_cancellable(parcel)?.map_err(drop),
            AnySender::Bounded(sender) => sender.send(parcel).map_err(drop),
        })
    }
}

pub(super) fn mpsc(env: &Arc<Env>, share: &Share, bound: Option<usize>) -> Result<(), Stop> {
    let ledger = Ledger::new(senders(share) * share.rounds);
    let (sending, receiver) = match bound {
        None => {
            let (sender, receiver) = mpsc::channel();
            (one_each(senders(share), || AnySender::Unbounded(sender.clone())), receiver)
        }
        Some(bound) => {
            let (sender, receiver) = mpsc::sync_channel(bound);
            (one_each(senders(share), || AnySender::Bounded(sender.clone())), receiver)
        }
    };
    let receiver = Mutex::new(Some(receiver));
    let ended = run(
        env,
        share,
        |user| {
            if user.number > 0 {
                let sender = take(&sending, user.number - 1);
                return send_all(user, &ledger, |twin, parcel| sender.send(twin, parcel));
            }
            let taken = receiver.lock().expect("no code panics under this lock").take();
            let back = PutBack(&receiver, taken);
            let receiver = back.1.as_ref().expect("one takes it");
            receive_all(user, &ledger, |twin| match twin {
                true => match receiver.recv_timeout_cancellable(SHORT)? {
                    Err(mpsc::RecvTimeoutError::Timeout) => Ok(receiver.recv_cancellable()?.ok()),
                    received => Ok(received.ok()),
                },
                false => Ok(receiver.recv().ok()),
            })
        },
        || {
            // What is still in it.
            let receiver = receiver.lock().expect("no code panics under this lock").take();
            for parcel in receiver.iter().flat_map(|receiver| receiver.try_iter()) {
                ledger.received(&parcel);
            }
            drop(receiver);
            ledger.settle()
        },
    )?;
    complete(env, share, ended, ledger.received_count(), senders(share) * share.rounds)
}

/// Puts a receiver back when its fiber ends, for what is left in it to be seen.
struct PutBack<'a, T>(&'a Mutex<Option<T>>, Option<T>);

impl<T> Drop for PutBack<'_, T> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = self.1.take();
    }
}

pub(super) fn mpmc(env: &Arc<Env>, share: &Share, capacity: usize) -> Result<(), Stop> {
    let (sending, values) = (senders(share).div_ceil(2), share.rounds);
    let ledger = Ledger::new(sending * values);
    let (sender, receiver) = mpmc::bounded(capacity);
    let ends = one_each(sending, || sender.clone());
    drop(sender);
    let left = receiver.clone();
    let ended = run(
        env,
        share,
        |user| {
            if (1..=sending).contains(&user.number) {
                let sender = take(&ends, user.number - 1);
                return send_all(user, &ledger, |twin, parcel| match twin {
                    true => Ok(sender.send_cancellable(parcel)?.map_err(drop)),
                    false => Ok(sender.send(parcel).map_err(drop)),
                });
            }
            let receiver = receiver.clone();
            receive_all(user, &ledger, |twin| match twin {
                true => match receiver.recv_timeout_cancellable(SHORT)? {
                    Err(mpsc::RecvTimeoutError::Timeout) => Ok(receiver.recv_cancellable()?.ok()),
                    received => Ok(received.ok()),
                },
                false => Ok(receiver.recv().ok()),
            })
        },
        || {
            while let Ok(parcel) = left.try_recv() {
                ledger.received(&parcel);
            }
            drop(left);
            ledger.settle()
        },
    )?;
    complete(env, share, ended, ledger.received_count(), sending * values)
}

/// From each of the others to the first.
pub(super) fn oneshot(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let ledger = Ledger::new(senders(share));
    let (mut sending, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..senders(share) {
        let (sender, receiver) = oneshot::channel();
        sending.push(Mutex::new(Some(sender)));
        receivers.push(receiver);
    }
    let receivers = Mutex::new(Some(receivers));
    let ended = run(
        env,
        share,
        |user| {
            if user.number > 0 {
                let sender = take(&sending, user.number - 1);
                user.pause().map_err(|e| user.env.told(&e))?;
                let id = user.number - 1;
                if sender.send(ledger.parcel(id)).is_ok() {
                    ledger.sent(id);
                }
                return Ok(());
            }
            let taken = receivers.lock().expect("no code panics under this lock").take();
            let back = PutBack(&receivers, taken);
            for receiver in back.1.as_ref().expect("one takes them") {
                user.persist(|_| {
                    if let Ok(parcel) = receiver.recv_cancellable()? {
                        ledger.received(&parcel);
                    }
                    Ok(())
                })?;
            }
            Ok(())
        },
        || {
            let receivers = receivers.lock().expect("no code panics under this lock").take();
            for receiver in receivers.into_iter().flatten() {
                if let Ok(parcel) = receiver.try_recv() {
                    ledger.received(&parcel);
                }
            }
            ledger.settle()
        },
    )?;
    complete(env, share, ended, ledger.received_count(), senders(share))
}

/// The first counts up, the others see it rise to the last.
pub(super) fn watch(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (sender, receiver) = watch::channel(0);
    let sending = Mutex::new(Some(sender));
    run(
        env,
        share,
        |user| {
            if user.number == 0 {
                let sender = sending.lock().expect("no code panics under this lock").take();
                let sender = sender.expect("one takes it");
                for count in 1..=user.rounds() {
                    user.persist(|user| match user.twin() {
                        true => Ok(sender.send_cancellable(count)?.is_ok()),
                        false => Ok(sender.send(count).is_ok()),
                    })?;
                    user.pause().map_err(|e| user.env.told(&e))?;
                }
                return Ok(());
            }
            let (mut receiver, mut seen) = (receiver.clone(), 0);
            loop {
                let changed = user.persist(|user| match user.twin() {
                    true => receiver.changed_cancellable(),
                    false => Ok(receiver.changed()),
                })?;
                let now = *receiver.borrow_and_update();
                if now < seen {
                    user.env.fail(Checker::Outcome, "a watched count has fallen");
                }
                seen = now;
                if changed.is_err() {
                    break;
                }
            }
            if seen != user.rounds() && user.is_safe() {
                user.env.fail(Checker::Outcome, "the last change was not seen");
            }
            Ok(())
        },
        || Ok(()),
    )?;
    Ok(())
}
