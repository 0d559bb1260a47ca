//! The load: a closed loop. Each connection sends a request, waits for the whole answer, and sends the
//! next one; without keep-alive it waits for the end of the connection, too, and makes another one.
//!
//! There is a thread for each processor that the load has, and each has its part of the connections.
//! The clock starts when all of them have connected and some requests are done that do not count.

use super::args::Extent;
use super::exchange::{self, Expected, ResponseReader};
use crate::latency::Latencies;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A server that says nothing for so long will say nothing any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests before the clock starts, at most as many as after it; but each connection has one.
const WARMING: u64 = 2000;
/// After so many the run has failed: the load would go on for ever.
const MOST_ERRORS: u64 = 1000;

/// What the load's threads are told.
pub(super) struct Plan {
    pub(super) addr: SocketAddr,
    pub(super) connections: usize,
    pub(super) keepalive: bool,
    pub(super) extent: Extent,
    pub(super) expected: Expected,
    /// Each tied to one of these; a thread without a tie if there is none.
    pub(super) cpus: Vec<usize>,
}

impl Plan {
    fn warming(&self) -> u64 {
        let few = match self.extent {
            Extent::Requests(requests) => requests.min(WARMING),
            Extent::Time(_) => WARMING,
        };
        few.max(self.connections as u64)
    }
}

/// What came of it.
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

/// Makes the load; calls `started` right before the measured part, and `ended` after it.
pub(super) fn drive<T>(
    plan: &Plan,
    started: impl FnOnce() -> io::Result<T>,
    ended: impl FnOnce(T) -> io::Result<()>,
) -> io::Result<LoadResult> {
    let threads = plan.cpus.len().clamp(1, plan.connections);
    let (gate, failed) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let warming = Quota::requests(plan.warming());
    let quota = std::sync::OnceLock::new();
    thread::scope(|s| {
        let worker = |thread: usize| {
            let (gate, failed, warming, quota) = (&gate, &failed, &warming, &quota);
            move || {
                let prepared = Load::prepare(plan, thread, threads, warming);
                failed.fetch_or(prepared.is_err(), Relaxed);
                gate.wait();
                gate.wait();
                let mut load = prepared?;
                let mut result = LoadResult::new();
                match quota.get() {
                    Some(quota) if !failed.load(Relaxed) => load.go(quota, &mut result)?,
                    _ => {}
                }
                Ok((result, load))
            }
        };
        let all: Vec<_> = (0..threads).map(|thread| s.spawn(worker(thread))).collect();
        gate.wait();
        let begun = started();
        let _ = quota.set(Quota::new(plan.extent));
        failed.fetch_or(begun.is_err(), Relaxed);
        gate.wait();
        // The connections stay until the server's use was asked for: their end is work, too.
        let results: Vec<io::Result<(LoadResult, Load<'_>)>> = all
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        ended(begun?)?;
        let mut sum = LoadResult::new();
        for result in results {
            let (result, _load) = result?;
            sum.requests += result.requests;
            sum.errors += result.errors;
            sum.latencies.merge(&result.latencies);
        }
        Ok(sum)
    })
}

/// What all threads together may still ask.
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

/// A connection's side here.
struct Peer {
    stream: Option<TcpStream>,
    answer: ResponseReader,
    started: Instant,
    /// The request is on its way.
    asked: bool,
    /// The answer is there, and the end of the connection is not.
    answered: bool,
}

struct Load<'a> {
    plan: &'a Plan,
    request: &'static [u8],
    poll: Poll,
    peers: Vec<Peer>,
    /// Peers that wait for something.
    busy: usize,
    buffer: Vec<u8>,
}

impl Load<'_> {
    fn prepare<'a>(
        plan: &'a Plan,
        thread: usize,
        threads: usize,
        warming: &Quota,
    ) -> io::Result<Load<'a>> {
        if let Some(&cpu) = plan.cpus.get(thread) {
            cringle_report::machine::cpus::pin_to(cpu)?;
        }
        let mine = (plan.connections + threads - 1 - thread) / threads;
        let peer = || Peer {
            stream: None,
            answer: ResponseReader::default(),
            started: Instant::now(),
            asked: false,
            answered: false,
        };
        let request: &[u8] = match plan.keepalive {
            true => exchange::REQUEST,
            false => exchange::LAST_REQUEST,
        };
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
        load.go(warming, &mut result)?;
        match result.errors {
            0 => Ok(load),
            n => Err(io::Error::other(format!("{n} of the first requests failed"))),
        }
    }

    /// Asks until the quota is used up, and every answer is there.
    fn go(&mut self, quota: &Quota, result: &mut LoadResult) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        for index in 0..self.peers.len() {
            self.ask_next(index, quota, Instant::now())?;
        }
        while self.busy > 0 {
            match self.poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            if events.is_empty() {
                let text = format!(
                    "no answer came for {} s, and {} connections wait for one",
                    PATIENCE.as_secs(),
                    self.busy
                );
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            for event in &events {
                let Token(index) = event.token();
                if let Err(error) = self.go_on(index, quota, result) {
                    result.errors += 1;
                    if result.errors > MOST_ERRORS {
                        let text =
                            format!("{} requests have failed, the last: {error}", result.errors);
                        return Err(io::Error::new(error.kind(), text));
                    }
                    self.retry(index)?;
                }
            }
        }
        Ok(())
    }

    /// A request that failed is made again, by another connection.
    fn retry(&mut self, index: usize) -> io::Result<()> {
        self.busy -= 1;
        self.peers[index].stream = None;
        if self.plan.keepalive {
            self.connect(index)?;
        }
        self.ask(index, Instant::now())
    }

    /// One that stays.
    fn connect(&mut self, index: usize) -> io::Result<()> {
        let stream = std::net::TcpStream::connect(self.plan.addr)?;
        stream.set_nonblocking(true)?;
        self.keep(index, TcpStream::from_std(stream), Interest::READABLE)
    }

    fn keep(&mut self, index: usize, mut stream: TcpStream, interest: Interest) -> io::Result<()> {
        self.poll.registry().register(&mut stream, Token(index), interest)?;
        self.peers[index].stream = Some(stream);
        Ok(())
    }

    #[inline]
    fn ask_next(&mut self, index: usize, quota: &Quota, now: Instant) -> io::Result<()> {
        if quota.takes_one(now) { self.ask(index, now) } else { Ok(()) }
    }

    fn ask(&mut self, index: usize, now: Instant) -> io::Result<()> {
        self.busy += 1;
        let peer = &mut self.peers[index];
        peer.answer.reset();
        (peer.started, peer.asked, peer.answered) = (now, false, false);
        if self.plan.keepalive {
            return self.peers[index].send(self.request);
        }
        let stream = TcpStream::connect(self.plan.addr)?;
        self.keep(index, stream, Interest::READABLE | Interest::WRITABLE)
    }

    /// What an event's connection can do.
    fn go_on(&mut self, index: usize, quota: &Quota, result: &mut LoadResult) -> io::Result<()> {
        let peer = &mut self.peers[index];
        let Some(stream) = &mut peer.stream else { return Ok(()) };
        if !peer.asked {
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
        self.busy -= 1;
        self.ask_next(index, quota, now)
    }
}

impl Peer {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
        self.asked = true;
        // It is far smaller than a socket's buffer.
        match stream.write(request)? {
            count if count == request.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Takes what is there. Whether the request is over.
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
                _ => self.answered = self.answer.take(&buffer[..count], expected)?,
            }
            if self.answered && keepalive {
                return Ok(true);
            }
            // A short read has emptied the socket: what comes next makes an event.
            if !self.answered && count < buffer.len() {
                return Ok(false);
            }
        }
    }
}
