//! What a statement needs besides its own fiber: partners that unpark, talk or stay silent, and guards.

use super::env::{Env, Stop};
use super::{Never, Over};
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
        Never::Readiness => drop(env.persist(|| cringle::io::ready(&reader, Interest::READABLE))?),
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
pub(super) fn talk(bytes: Vec<u8>, over: Over, ready: bool) -> io::Result<Vec<u8>> {
    let (reader, writer) = match over {
        Over::Connection => return talk_to_listener(bytes, ready),
        Over::SocketPair => stream_pair()?,
        Over::Pipe => {
            let (reader, writer) = io::pipe()?;
            (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)))
        }
    };
    let len = bytes.len();
    let sender = send(bytes, move || Ok(writer));
    let heard = hear(reader, len, ready);
    finish(sender, heard)
}

/// The sender connects, at an address that is nobody else's.
fn talk_to_listener(bytes: Vec<u8>, ready: bool) -> io::Result<Vec<u8>> {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let addr = SocketAddr::from_abstract_name(format!("cringle-{}-{number}", std::process::id()))?;
    let listener = UnixListener::bind_addr(&addr)?;
    let len = bytes.len();
    let sender = send(bytes, move || UnixStream::connect_addr(&addr).map(into_file));
    let accepted = listener.accept();
    // Without it a sender that comes too late is refused, and ends.
    drop(listener);
    let heard = accepted.and_then(|(reader, _)| hear(into_file(reader), len, ready));
    finish(sender, heard)
}

fn into_file(stream: UnixStream) -> File {
    File::from(OwnedFd::from(stream))
}

fn send(
    bytes: Vec<u8>,
    writer: impl FnOnce() -> io::Result<File> + Send + 'static,
) -> fiber::JoinHandle<io::Result<()>> {
    // It ends with the reader, if not before.
    fiber::spawn(move || fiber::protect(|| writer()?.write_all(&bytes)))
}

fn hear(mut reader: File, len: usize, ready: bool) -> io::Result<Vec<u8>> {
    let mut heard = vec![0; len];
    if ready {
        cringle::io::ready(&reader, Interest::READABLE)?;
    }
    reader.read_exact(&mut heard).map(|()| heard)
}

/// What was heard, when the sender has ended; its own error, where that is why there was no more.
fn finish(
    sender: fiber::JoinHandle<io::Result<()>>,
    heard: io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    match sender.join() {
        Ok(Err(e)) if heard.as_ref().is_err_and(|e| e.kind() == ErrorKind::UnexpectedEof) => Err(e),
        Ok(_) => heard,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}
