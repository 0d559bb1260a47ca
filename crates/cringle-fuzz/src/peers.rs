//! Helpers of statements: fibers that unpark, talk or stay silent, counters of fibers, and guards.

use super::env::{Env, Stop};
use super::{Never, Transport};
use cringle::fs::File;
use cringle::io::Interest;
use cringle::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use cringle::sim::Checker;
use cringle::sim::stream_pair;
use cringle::{cancel, fiber};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Counts a fiber of a scope while it exists.
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

/// Registers closures that check how a scope runs its `on_exit` closures: in reverse order, after
/// its fibers have ended, and shielded from cancels.
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
                env.fail(Checker::Scopes, "a scope called its `on_exit` closures out of order");
            }
            if inside.load(Ordering::Acquire) > 0 {
                env.fail(Checker::Scopes, "a scope called `on_exit` while its fibers ran");
            }
            fiber::sleep(Duration::from_micros(5));
            if cancel::check().is_err() {
                env.fail(Checker::Outcome, "a cancel reached an `on_exit` closure");
            }
        });
    }
}

/// Calls a closure when it is dropped, unwinding or not.
pub(super) struct OnDrop<F: FnMut()>(pub(super) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Waits until the fiber is cancelled.
pub(super) fn never(env: &Env, what: Never) -> Result<(), Stop> {
    let (reader, writer) = env.persist(io::pipe)?;
    // Kept open, so that the reader sees no end of file.
    let _writer = writer;
    let mut reader = File::from(OwnedFd::from(reader));
    match what {
        Never::Byte => drop(env.persist(|| reader.read(&mut [0; 8]))?),
        Never::Readiness => drop(env.persist(|| cringle::io::ready(&reader, Interest::READABLE))?),
        Never::Timer => fiber::sleep(Duration::MAX),
        Never::Unpark => loop {
            fiber::park();
        },
    }
    Err(env.fail(Checker::Outcome, format!("{what:?}: a wait without an event returned")))
}

/// Parks until another fiber sets a flag and unparks this one.
pub(super) fn park(yields: u64) {
    let flag = Arc::new(AtomicBool::new(false));
    let (sets, sleeper) = (Arc::clone(&flag), fiber::current());
    fiber::spawn(move || {
        // Protected, since the parked fiber may be in a protected call when the run ends.
        fiber::protect(|| (0..yields).for_each(|_| fiber::yield_now()));
        sets.store(true, Ordering::Release);
        sleeper.unpark();
    });
    while !flag.load(Ordering::Acquire) {
        fiber::park();
    }
}

/// Sends bytes from another fiber to this one.
pub(super) fn talk(bytes: Vec<u8>, over: Transport, ready: bool) -> io::Result<Vec<u8>> {
    let (reader, writer) = match over {
        Transport::Connection => return talk_to_listener(bytes, ready),
        Transport::SocketPair => stream_pair()?,
        Transport::Pipe => {
            let (reader, writer) = io::pipe()?;
            (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)))
        }
    };
    let len = bytes.len();
    let sender = send(bytes, move || Ok(writer));
    let received = receive(reader, len, ready);
    finish(sender, received)
}

/// Sends bytes over a connection: the sender connects to a listener with a unique address.
fn talk_to_listener(bytes: Vec<u8>, ready: bool) -> io::Result<Vec<u8>> {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let addr = SocketAddr::from_abstract_name(format!("cringle-{}-{number}", std::process::id()))?;
    let listener = UnixListener::bind_addr(&addr)?;
    let len = bytes.len();
    let sender = send(bytes, move || UnixStream::connect_addr(&addr).map(into_file));
    let accepted = listener.accept();
    // If `accept` failed, a sender that connects later is refused instead of waiting for ever.
    drop(listener);
    let received = accepted.and_then(|(reader, _)| receive(into_file(reader), len, ready));
    finish(sender, received)
}

fn into_file(stream: UnixStream) -> File {
    File::from(OwnedFd::from(stream))
}

fn send(
    bytes: Vec<u8>,
    writer: impl FnOnce() -> io::Result<File> + Send + 'static,
) -> fiber::JoinHandle<io::Result<()>> {
    // Protected: the sender ends at the latest when the reader closes.
    fiber::spawn(move || fiber::protect(|| writer()?.write_all(&bytes)))
}

fn receive(mut reader: File, len: usize, ready: bool) -> io::Result<Vec<u8>> {
    let mut received = vec![0; len];
    if ready {
        cringle::io::ready(&reader, Interest::READABLE)?;
    }
    reader.read_exact(&mut received).map(|()| received)
}

/// Joins the sender and returns what was received. If the stream ended early because the sender
/// failed, returns the sender's error.
fn finish(
    sender: fiber::JoinHandle<io::Result<()>>,
    received: io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    match sender.join() {
        Ok(Err(e)) if received.as_ref().is_err_and(|e| e.kind() == ErrorKind::UnexpectedEof) => {
            Err(e)
        }
        Ok(_) => received,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}
