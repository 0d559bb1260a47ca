//! Checks channels: each value is received once, remains in the channel, or is returned to its
//! sender. No cancel loses or duplicates a value, and the values of each sender arrive in order.

use super::Share;
use super::env::{Env, Stop};
use super::locks::complete;
use super::parcels::{Ledger, Parcel};
use super::shared::{User, one_each, run, take};
use cringle::sim::Checker;
use cringle::sync::{mpmc, mpsc, oneshot, watch};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The timeout of a receiver's first attempt.
const SHORT: Duration = Duration::from_micros(20);

/// Receives, as the twin at first with a timeout.
macro_rules! receive {
    ($receiver:ident, $twin:ident) => {
        if !$twin {
            Ok($receiver.recv().ok())
        } else {
            match $receiver.recv_timeout_cancellable(SHORT)? {
                Err(mpsc::RecvTimeoutError::Timeout) => Ok($receiver.recv_cancellable()?.ok()),
                received => Ok(received.ok()),
            }
        }
    };
}

/// The number of senders: all fibers but the first.
fn senders(share: &Share) -> usize {
    share.fibers - 1
}

/// Sends all values of a sender, and again those that a cancelled `send` returned.
fn send_all(
    user: &mut User<'_>,
    ledger: &Arc<Ledger>,
    send: impl Fn(bool, Parcel) -> io::Result<Result<(), ()>>,
) -> Result<(), Stop> {
    for round in 0..user.rounds() {
        let id = (user.number - 1) * user.rounds() + round;
        user.persist(|user| {
            if ledger.is_received(id) {
                // The wait was cancelled after the receiver had taken the value.
                return Ok(());
            }
            if send(user.twin(), ledger.parcel(id))?.is_err() {
                user.env.fail(Checker::Outcome, "`send` failed while a receiver exists");
            }
            ledger.sent(id);
            Ok(())
        })?;
        user.pause().map_err(|e| user.env.stopped_by(&e))?;
    }
    Ok(())
}

/// Receives until every sender is gone, and checks that each sender's values arrive in order.
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
            user.env.fail(Checker::Outcome, "values of one sender arrived out of order");
        }
        user.pause().map_err(|e| user.env.stopped_by(&e))?;
    }
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
            let receiver = back.1.as_ref().expect("only the first fiber takes it");
            receive_all(user, &ledger, |twin| receive!(receiver, twin))
        },
        || {
            // Values that remain in the channel count as received.
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

/// Puts a receiver back when its fiber ends, so that the remaining values can be counted.
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
                return send_all(user, &ledger, |twin, parcel| {
                    if twin {
                        Ok(sender.send_cancellable(parcel)?.map_err(drop))
                    } else {
                        Ok(sender.send(parcel).map_err(drop))
                    }
                });
            }
            let receiver = receiver.clone();
            receive_all(user, &ledger, |twin| receive!(receiver, twin))
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

/// Every other fiber sends one value to the first, each over its own channel.
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
                user.pause().map_err(|e| user.env.stopped_by(&e))?;
                let id = user.number - 1;
                if sender.send(ledger.parcel(id)).is_ok() {
                    ledger.sent(id);
                }
                return Ok(());
            }
            let taken = receivers.lock().expect("no code panics under this lock").take();
            let back = PutBack(&receivers, taken);
            for receiver in back.1.as_ref().expect("only the first fiber takes them") {
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

/// The first fiber counts up; the others see the count rise to its last value.
pub(super) fn watch(env: &Arc<Env>, share: &Share) -> Result<(), Stop> {
    let (sender, receiver) = watch::channel(0);
    let sending = [Mutex::new(Some(sender))];
    run(
        env,
        share,
        |user| {
            if user.number == 0 {
                let sender = take(&sending, 0);
                for count in 1..=user.rounds() {
                    user.persist(|user| {
                        if user.twin() {
                            Ok(sender.send_cancellable(count)?.is_ok())
                        } else {
                            Ok(sender.send(count).is_ok())
                        }
                    })?;
                    user.pause().map_err(|e| user.env.stopped_by(&e))?;
                }
                return Ok(());
            }
            let (mut receiver, mut seen) = (receiver.clone(), 0);
            loop {
                let changed = user.persist(|user| {
                    if user.twin() {
                        receiver.changed_cancellable()
                    } else {
                        Ok(receiver.changed())
                    }
                })?;
                let now = *receiver.borrow_and_update();
                if now < seen {
                    user.env.fail(Checker::Outcome, "a watched count decreased");
                }
                seen = now;
                if changed.is_err() {
                    break;
                }
            }
            if seen != user.rounds() && user.is_safe() {
                user.env.fail(Checker::Outcome, "a watcher missed the last change");
            }
            Ok(())
        },
        || Ok(()),
    )?;
    Ok(())
}
