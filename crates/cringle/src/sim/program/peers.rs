//! What a statement needs besides its own fiber: partners that unpark, talk or stay silent, and guards.

use super::Never;
use super::env::{Env, Stop};
use crate::driver::sim::Checker;
use crate::fs::File;
use crate::io::Interest;
use crate::sim::stream_pair;
use crate::{cancel, fiber};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A fiber's place in a scope, as the interpreter counts it by itself.
pub(super) struct Presence(Arc<AtomicUsize>);

impl Presence {
    pub(super) fn of(inside: &Arc<AtomicUsize>) -> Presence {
        inside.fetch_add(1, Ordering::AcqRel);
        Presence(Arc::clone(inside))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Has closures called at the scope's end: last in, first out, when its fibers have ended, and nothing
/// is cancelled there.
pub(super) fn on_exits<'scope>(
    env: &'scope Arc<Env>,
    s: &'scope fiber::Scope<'scope, '_>,
    exits: usize,
    inside: &'scope Arc<AtomicUsize>,
) {
    let next = Arc::new(AtomicUsize::new(exits));
    for number in 0..exits {
        let next = Arc::clone(&next);
        s.on_exit(move || {
            if next.fetch_sub(1, Ordering::AcqRel) != number + 1 {
                env.fail(Checker::Scopes, "what is to be called at a scope's end is out of order");
            }
            if inside.load(Ordering::Acquire) > 0 {
                env.fail(Checker::Scopes, "a scope's end has come before its fibers'");
            }
            fiber::sleep(Duration::from_micros(5));
            if cancel::check().is_err() {
                env.fail(Checker::Outcome, "a scope's end was cancelled");
            }
        });
    }
}

/// Does something when it is dropped, unwinding or not.
pub(super) struct OnDrop<F: FnMut()>(pub(super) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Waits until the fiber is cancelled.
pub(super) fn never(env: &Env, what: Never) -> Result<(), Stop> {
    let (reader, writer) = env.persist(io::pipe)?;
    let _silent = writer;
    let mut reader = File::from(OwnedFd::from(reader));
    match what {
        Never::Byte => drop(env.persist(|| reader.read(&mut [0; 8]))?),
        Never::Readiness => drop(env.persist(|| crate::io::ready(&reader, Interest::READABLE))?),
        Never::Timer => fiber::sleep(Duration::MAX),
        Never::Unpark => loop {
            fiber::park();
        },
    }
    Err(env.fail(Checker::Outcome, format!("{what:?} never comes, and came")))
}

/// Parks until another fiber says that it may go on.
pub(super) fn park(yields: u64) {
    let said = Arc::new(AtomicBool::new(false));
    let (says, sleeper) = (Arc::clone(&said), fiber::current());
    fiber::spawn(move || {
        // Who parks may be in a protected call when the run ends.
        fiber::protect(|| (0..yields).for_each(|_| fiber::yield_now()));
        says.store(true, Ordering::Release);
        sleeper.unpark();
    });
    while !said.load(Ordering::Acquire) {
        fiber::park();
    }
}

/// Sends bytes from another fiber to this one.
pub(super) fn talk(bytes: Vec<u8>, socket: bool, ready: bool) -> io::Result<Vec<u8>> {
    let (mut reader, mut writer) = match socket {
        true => stream_pair()?,
        false => {
            let (reader, writer) = io::pipe()?;
            (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)))
        }
    };
    let mut heard = vec![0; bytes.len()];
    let sender = fiber::spawn(move || {
        // It ends with the reader, if not before.
        let sent = fiber::protect(|| writer.write_all(&bytes));
        drop(writer);
        sent
    });
    if ready {
        crate::io::ready(&reader, Interest::READABLE)?;
    }
    let read = reader.read_exact(&mut heard);
    drop(reader);
    match sender.join() {
        Ok(sent) => sent.and(read).map(|()| heard),
        Err(payload) => std::panic::resume_unwind(payload),
    }
}
