//! The load: a closed loop. Each connection sends a request, waits for the whole response, and
//! sends the next request; without keep-alive it also waits for the end of the connection, and
//! opens a new one.
//!
//! Each processor of the load has a thread with a part of the connections. The clock starts when
//! all of them are connected and some warm-up requests are done.

use super::args::Extent;
use super::exchange::{self, Expected, ResponseReader};
use crate::latency::Latencies;
use crate::{joined, no_thread};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long the load waits for a response before the run fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// The warm-up requests: not more than the measured ones, but at least one for each connection.
const WARMUP: u64 = 2000;
/// The number of errors after which a run fails, since the load repeats failed requests.
const MOST_ERRORS: u64 = 1000;

/// The parameters of a run.
pub(super) struct Plan {
    pub(super) addr: SocketAddr,
    pub(super) connections: usize,
    pub(super) keepalive: bool,
    pub(super) extent: Extent,
    pub(super) expected: Expected,
    /// The processors to which the threads are pinned. If empty, one thread runs unpinned.
    pub(super) cpus: Vec<usize>,
}

impl Plan {
    fn warmup(&self) -> u64 {
        let few = match self.extent {
            Extent::Requests(requests) => requests.min(WARMUP),
            Extent::Time(_) => WARMUP,
        };
        few.max(self.connections as u64)
    }
}

/// The result of a run.
#[derive(Clone)]
pub(super) struct LoadResult {
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) latencies: Latencies,
}

impl LoadResult {
    fn new() -> LoadResult {
        LoadResult { requests: 0, errors: 0, latencies: Latencies::new() }
    }
}

/// Makes the load. Calls `started` immediately before the measured part, and `ended` after it.
/// Returns the result of the load, and that of `ended`.
pub(super) fn drive<T, U>(
    plan: &Plan,
    started: impl FnOnce() -> io::Result<T>,
    ended: impl FnOnce(T) -> io::Result<U>,
) -> io::Result<(LoadResult, U)> {
    let threads = plan.cpus.len().clamp(1, plan.connections);
    let warmup = Quota::requests(plan.warmup());
    let quota = OnceLock::new();
    thread::scope(|s| {
        let (ready, prepared) = mpsc::channel();
        let start = |thread: usize| {
            let (ready, warmup, quota) = (ready.clone(), &warmup, &quota);
            let (go, begins) = mpsc::channel::<()>();
            let work = move || {
                let prepared = Load::prepare(plan, thread, threads, warmup);
                let _ = ready.send(prepared.is_ok());
                drop(ready);
                let mut load = prepared?;
                let mut result = LoadResult::new();
                // It does not begin if another thread has failed.
                if let (Ok(()), Some(quota)) = (begins.recv(), quota.get()) {
                    load.run(quota, &mut result)?;
                }
                Ok((result, load))
            };
            let started = thread::Builder::new().spawn_scoped(s, work);
            started.map(|thread| (thread, go)).map_err(|error| no_thread(&error, ""))
        };
        let (all, goes): (Vec<_>, Vec<_>) =
            (0..threads).map(start).collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        drop(ready);
        let is_ready = prepared.iter().filter(|ready| *ready).count() == threads;
        let begun = is_ready.then(started).transpose();
        let _ = quota.set(Quota::new(plan.extent));
        if let Ok(Some(_)) = begun {
            // A thread that has panicked no longer receives.
            goes.iter().for_each(|go| go.send(()).unwrap_or_default());
        }
        drop(goes);
        // The connections stay open until `ended` has read the server's use: closing them is work.
        let results: Vec<io::Result<(LoadResult, Load<'_>)>> =
            all.into_iter().map(|thread| joined(thread.join())).collect();
        let ended = begun?.map(ended).transpose()?;
        let mut sum = LoadResult::new();
        for result in results {
            let (result, _load) = result?;
            sum.requests += result.requests;
            sum.errors += result.errors;
            sum.latencies.merge(&result.latencies);
        }
        // A thread that is not ready has returned an error.
        Ok((sum, ended.ok_or(ErrorKind::NotConnected)?))
    })
}

/// The requests that all threads together may still send.
enum Quota {
    Requests(AtomicU64),
    Until(Instant),
}

impl Quota {
    fn new(extent: Extent) -> Quota {
        match extent {
            Extent::Requests(requests) => Quota::requests(requests),
            Extent::Time(time) => Quota::Until(Instant::now() + time),
        }
    }

    fn requests(requests: u64) -> Quota {
        Quota::Requests(AtomicU64::new(requests))
    }

    #[inline]
    fn takes_one(&self, now: Instant) -> bool {
        match self {
            Quota::Until(end) => now < *end,
            Quota::Requests(left) => {
                left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
            }
        }
    }
}

/// A connection of the load.
struct Peer {
    stream: Option<TcpStream>,
    response: ResponseReader,
    /// Whether a request is under way.
    busy: bool,
    started: Instant,
    /// Whether the request has been sent.
    sent: bool,
    /// Whether the response is complete (the connection may still be open).
    answered: bool,
}

/// The connections of one thread.
struct Load<'a> {
    plan: &'a Plan,
    request: &'static [u8],
    poll: Poll,
    peers: Vec<Peer>,
    /// The number of peers with a request under way.
    busy: usize,
    buffer: Vec<u8>,
}

impl Load<'_> {
    fn prepare<'a>(
        plan: &'a Plan,
        thread: usize,
        threads: usize,
        warmup: &Quota,
    ) -> io::Result<Load<'a>> {
        if let Some(&cpu) = plan.cpus.get(thread) {
            cringle_report::machine::cpus::pin_to(&[cpu])?;
        }
        let mine = (plan.connections + threads - 1 - thread) / threads;
        let peer = || Peer {
            stream: None,
            response: ResponseReader::default(),
            busy: false,
            started: Instant::now(),
            sent: false,
            answered: false,
        };
        let request = if plan.keepalive { exchange::REQUEST } else { exchange::LAST_REQUEST };
        let mut load = Load {
            plan,
            request,
            poll: Poll::new()?,
            peers: std::iter::repeat_with(peer).take(mine).collect(),
            busy: 0,
            buffer: vec![0; 64 << 10],
        };
        if plan.keepalive {
            (0..mine).try_for_each(|index| load.connect(index))?;
        }
        let mut result = LoadResult::new();
        load.run(warmup, &mut result)?;
        match result.errors {
            0 => Ok(load),
            n => Err(io::Error::other(format!("{n} of the first requests failed"))),
        }
    }

    /// Sends requests until the quota is used up, and waits for all responses.
    fn run(&mut self, quota: &Quota, result: &mut LoadResult) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        for index in 0..self.peers.len() {
            self.request_next(index, quota, Instant::now())?;
        }
        while self.busy > 0 {
            match self.poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if events.is_empty() {
                return Err(self.timed_out());
            }
            for event in &events {
                let Token(index) = event.token();
                if let Err(error) = self.advance(index, quota, result) {
                    result.errors += 1;
                    if result.errors > MOST_ERRORS {
                        let text =
                            format!("{} requests failed, the last one: {error}", result.errors);
                        return Err(io::Error::new(error.kind(), text));
                    }
                    self.retry(index)?;
                }
            }
        }
        Ok(())
    }

    /// The error of a server that is silent, or that keeps a connection which it has to close.
    #[cold]
    fn timed_out(&self) -> io::Error {
        let has_answers = self.peers.iter().any(|peer| peer.answered);
        let awaited = match has_answers && !self.plan.keepalive {
            true => "the server's close after the response (does it run with --no-keepalive?)",
            false => "a response",
        };
        let text = format!(
            "nothing arrived for {} s, and {} connections wait for {awaited}",
            PATIENCE.as_secs(),
            self.busy
        );
        io::Error::new(ErrorKind::TimedOut, text)
    }

    /// Repeats a failed request on a new connection.
    fn retry(&mut self, index: usize) -> io::Result<()> {
        self.busy -= 1;
        self.peers[index].stream = None;
        if self.plan.keepalive {
            self.connect(index)?;
        }
        self.request(index, Instant::now())
    }

    /// Opens a connection for many requests.
    fn connect(&mut self, index: usize) -> io::Result<()> {
        let stream = std::net::TcpStream::connect(self.plan.addr)?;
        stream.set_nonblocking(true)?;
        self.register(index, TcpStream::from_std(stream), Interest::READABLE)
    }

    fn register(
        &mut self,
        index: usize,
        mut stream: TcpStream,
        interest: Interest,
    ) -> io::Result<()> {
        self.poll.registry().register(&mut stream, Token(index), interest)?;
        self.peers[index].stream = Some(stream);
        Ok(())
    }

    #[inline]
    fn request_next(&mut self, index: usize, quota: &Quota, now: Instant) -> io::Result<()> {
        if quota.takes_one(now) { self.request(index, now) } else { Ok(()) }
    }

    fn request(&mut self, index: usize, now: Instant) -> io::Result<()> {
        self.busy += 1;
        let peer = &mut self.peers[index];
        peer.busy = true;
        peer.response.reset();
        (peer.started, peer.sent, peer.answered) = (now, false, false);
        if self.plan.keepalive {
            return self.peers[index].send(self.request);
        }
        let stream = TcpStream::connect(self.plan.addr)?;
        self.register(index, stream, Interest::READABLE | Interest::WRITABLE)
    }

    /// Advances a connection that has an event.
    fn advance(&mut self, index: usize, quota: &Quota, result: &mut LoadResult) -> io::Result<()> {
        let peer = &mut self.peers[index];
        // The server may also end an idle connection: the next request finds it out.
        let Some(stream) = peer.stream.as_mut().filter(|_| peer.busy) else { return Ok(()) };
        if !peer.sent {
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            if stream.peer_addr().is_err() {
                return Ok(());
            }
            peer.send(self.request)?;
        }
        if !peer.receive(&mut self.buffer, &self.plan.expected, self.plan.keepalive)? {
            return Ok(());
        }
        let now = Instant::now();
        let ns = now.duration_since(peer.started).as_nanos() as u64;
        result.latencies.record([ns]);
        result.requests += 1;
        if !self.plan.keepalive {
            peer.stream = None;
        }
        peer.busy = false;
        self.busy -= 1;
        self.request_next(index, quota, now)
    }
}

impl Peer {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
        self.sent = true;
        // The request is much smaller than the socket's buffer, so the write is complete.
        match stream.write(request)? {
            count if count == request.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Reads the available bytes. Returns whether the request is finished.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        expected: &Expected,
        keepalive: bool,
    ) -> io::Result<bool> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        loop {
            let count = match stream.read(buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            match count {
                0 if self.answered => return Ok(true),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                _ => self.answered = self.response.take(&buffer[..count], expected)?,
            }
            if self.answered && keepalive {
                return Ok(true);
            }
            // A short read has emptied the socket: later bytes cause another event.
            if !self.answered && count < buffer.len() {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    /// As a server does that ends while the load waits for the last responses.
    #[test]
    fn an_end_of_an_idle_connection_is_no_response() {
        const CONNECTIONS: usize = 10;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let plan = Plan {
            addr: listener.local_addr().unwrap(),
            connections: CONNECTIONS,
            keepalive: true,
            extent: Extent::Requests(0),
            expected: Expected::Good,
            cpus: Vec::new(),
        };
        let answered = AtomicU64::new(0);
        thread::scope(|s| {
            s.spawn(|| {
                let accepted = listener.incoming().take(CONNECTIONS);
                let mut streams: Vec<_> = accepted.map(Result::unwrap).collect();
                for stream in &mut streams {
                    stream.read_exact(&mut [0; exchange::REQUEST.len()]).unwrap();
                }
                for mut stream in streams {
                    answered.fetch_add(1, Relaxed);
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").unwrap();
                    stream.write_all(b"ok").unwrap();
                    // The load has the time to read it before the end, which is an event by itself.
                    thread::sleep(Duration::from_millis(5));
                }
            });
            // All requests are those of the warm-up.
            drive(&plan, || Ok(()), |()| Ok(())).unwrap();
            assert_eq!(answered.load(Relaxed), CONNECTIONS as u64);
        });
    }

    #[test]
    fn a_wrong_response_fails_the_run() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let plan = Plan {
            addr: listener.local_addr().unwrap(),
            connections: 1,
            keepalive: true,
            extent: Extent::Requests(0),
            expected: Expected::Good,
            cpus: Vec::new(),
        };
        thread::scope(|s| {
            // The load repeats the request on a new connection, which is refused.
            s.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 8]).unwrap();
                stream.write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").unwrap();
            });
            assert!(drive(&plan, || Ok(()), |()| Ok(())).is_err());
        });
    }
}
