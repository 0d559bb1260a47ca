//! `std::sync::mpsc`.

use cringle_ecosystem_interposed::{WAIT, Waits};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError, channel, sync_channel};
use std::thread;
use std::time::Duration;

fn channels(n: usize, waits: &Waits) {
    let (sender, receiver) = channel();
    let senders: Vec<_> = (0..3)
        .map(|index| {
            let sender = sender.clone();
            thread::spawn(move || {
                thread::sleep(WAIT);
                (0..10).for_each(|value| sender.send((index, value * n)).unwrap());
            })
        })
        .collect();
    drop(sender);
    let first = waits.during(|| receiver.recv().unwrap());
    let mut all: Vec<_> = std::iter::once(first).chain(&receiver).collect();
    all.sort_unstable();
    let expected: Vec<_> =
        (0..3).flat_map(|index| (0..10).map(move |value| (index, value * n))).collect();
    assert_eq!(all, expected);
    assert!(receiver.recv().is_err());
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

fn bounded_channels(n: usize, waits: &Waits) {
    let (sender, receiver) = sync_channel(1);
    let receiving = thread::spawn(move || {
        thread::sleep(WAIT);
        receiver.iter().collect::<Vec<usize>>()
    });
    sender.send(0).unwrap();
    waits.during(|| sender.send(1).unwrap());
    (2..50).for_each(|value| sender.send(value * n).unwrap());
    drop(sender);
    let received = receiving.join().unwrap();
    assert_eq!((received.len(), received[49]), (50, 49 * n));
}

/// What a channel holds does not depend on when its sender runs.
fn channels_that_are_empty(_: usize, waits: &Waits) {
    let (sender, receiver) = channel::<()>();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    waits.during(|| thread::sleep(WAIT));
    drop(sender);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
}

fn channels_without_room(n: usize, waits: &Waits) {
    let (sender, receiver) = mpsc::sync_channel::<usize>(0);
    let sending = thread::spawn(move || {
        thread::sleep(WAIT);
        (0..10).for_each(|value| sender.send(value + n).unwrap());
    });
    assert_eq!(waits.during(|| receiver.recv().unwrap()), n);
    assert!(receiver.iter().eq((1..10).map(|value| value + n)));
    sending.join().unwrap();
}

fn time_limits_of_channels(_: usize, waits: &Waits) {
    let (sender, receiver) = channel::<()>();
    let error = waits.during(|| receiver.recv_timeout(WAIT));
    assert_eq!(error, Err(RecvTimeoutError::Timeout));
    sender.send(()).unwrap();
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(()));
    drop(sender);
    assert_eq!(receiver.recv_timeout(WAIT), Err(RecvTimeoutError::Disconnected));
}

crate::programs! {
    channels, bounded_channels, channels_that_are_empty, channels_without_room,
    time_limits_of_channels
}
