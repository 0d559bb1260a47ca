//! A web server: the files of a directory, over HTTP/1.1.
//!
//!     cargo run --release --example web -- [DIRECTORY] [ADDRESS]
//!
//! serves DIRECTORY (default: here) at ADDRESS (default: 127.0.0.1:8080) until Ctrl-C or SIGTERM.
//! Then requests that have begun to arrive are still answered, a new connection may send one
//! request, and idle connections end at once. GET and HEAD return files, and `index.html` for a
//! directory; no path and no link leads out of DIRECTORY. `POST /length` returns the length of the
//! body.
//!
//! Each connection is a fiber, whose code is written as for a blocking thread. Each wait has a
//! deadline and each buffer a limit: a peer that is too slow, or sends too much, gets the status
//! 408, 413 or 431 and is disconnected. `web/http.rs` decides which requests are valid.

#[path = "web/http.rs"]
pub(crate) mod http;

use cringle::fs::Dir;
use cringle::net::{Served, Server, Shutdown, Stopper, TcpStream};
use cringle::signal::{Signal, Signals};
use cringle::{fiber, time};
use http::{Body, Request};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The limits on a peer.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: u64,
    /// The time for the head of a request, from its first byte, and the time for its body.
    pub(crate) request: Duration,
    /// The time between two requests.
    pub(crate) idle: Duration,
    /// The time for open requests after the server is stopped.
    pub(crate) grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 16 << 10,
            body_bytes: 1 << 20,
            request: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            grace: Duration::from_secs(5),
        }
    }
}

/// Serves until it is stopped. `started` receives the address, and the handle that stops it.
pub(crate) fn run(
    directory: &Path,
    addr: &str,
    limits: Limits,
    started: impl FnOnce(SocketAddr, Stopper),
) -> io::Result<Served> {
    cringle::run(|| {
        let dir = Dir::open(directory)?;
        let server = Server::bind(addr)?.grace(limits.grace);
        let stopper = server.stopper();
        let interrupts = Signals::new(&[Signal::Interrupt, Signal::Terminate])?;
        let interrupted = stopper.clone();
        // The fiber drops the listener after the first signal, so a second one kills the process.
        let _ = fiber::spawn(move || interrupts.wait().map(|_| interrupted.stop()));
        started(server.local_addr()?, stopper.clone());
        server.run(|stream, _peer| {
            // A head and a file are two writes, which the kernel would delay otherwise.
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(limits.request))?;
            let connection = Connection {
                stream: &stream,
                dir: &dir,
                limits,
                stopper: &stopper,
                ahead: Vec::new(),
                kept: false,
            };
            connection.serve()
        })
    })
}

/// Why a request fails. The connection ends then, after an answer with the status, if any.
enum Refusal {
    Status(u16),
    Broken(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Broken(error)
    }
}

struct Connection<'a> {
    stream: &'a TcpStream,
    dir: &'a Dir,
    limits: Limits,
    stopper: &'a Stopper,
    /// Bytes that were read and not used yet: the rest of a request, or further requests.
    ahead: Vec<u8>,
    /// Whether a request was answered.
    kept: bool,
}

impl Connection<'_> {
    fn serve(mut self) -> io::Result<()> {
        loop {
            match self.next_request().and_then(|request| self.answer(request)) {
                Ok(true) => self.kept = true,
                Ok(false) => return self.close(),
                Err(Refusal::Broken(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(());
                }
                Err(Refusal::Broken(error)) => return Err(error),
                Err(Refusal::Status(status)) => {
                    self.reply(status, "", reason(status).as_bytes(), false, true)?;
                    return self.close();
                }
            }
        }
    }

    /// Ends the connection. Closing a socket that has unread bytes resets the connection, and the
    /// peer may lose the last answer. So this sends the end of the stream first, and then reads for
    /// up to a second.
    fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let drained = time::timeout(Duration::from_secs(1), || {
            io::copy(&mut self.stream.take(1 << 20), &mut io::sink())
        });
        match drained {
            Err(error)
                if cringle::cancel::reason(&error) == Some(cringle::cancel::Reason::Cancelled) =>
            {
                Err(error)
            }
            // Errors of the peer do not matter any more.
            _ => Ok(()),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer)?;
        self.ahead.extend_from_slice(&buffer[..count]);
        if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Reads the first bytes of a request. A connection that had an answer is at its end when the
    /// server is stopped.
    fn fill_unless_stopped(&mut self) -> io::Result<()> {
        if !self.kept {
            return self.fill();
        }
        let filled = self.stopper.until_stopped(|| self.fill())?;
        filled.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    fn next_request(&mut self) -> Result<Request, Refusal> {
        if self.ahead.is_empty() {
            match time::timeout(self.limits.idle, || self.fill_unless_stopped()) {
                // No request has begun, so none is answered.
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
                }
                filled => filled?,
            }
        }
        let limits = self.limits;
        within(limits.request, || {
            loop {
                if let Some((request, end)) = http::parse(&self.ahead).map_err(Refusal::Status)? {
                    self.ahead.drain(..end);
                    return Ok(request);
                }
                if self.ahead.len() >= limits.head_bytes {
                    return Err(Refusal::Status(431));
                }
                self.fill().map_err(cut_off)?;
            }
        })
    }

    /// Answers a request. Returns whether the connection stays open.
    fn answer(&mut self, request: Request) -> Result<bool, Refusal> {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/length") => {
                let length = self.read_body(&request)?.to_string();
                let stays_open = self.stays_open(&request);
                self.reply(200, "", length.as_bytes(), stays_open, true)?;
                Ok(stays_open)
            }
            ("GET" | "HEAD", path) => {
                self.read_body(&request)?;
                let stays_open = self.stays_open(&request);
                let with_body = request.method == "GET";
                self.give_file(path.trim_start_matches('/'), stays_open, with_body)?;
                Ok(stays_open)
            }
            _ => {
                // The body of a refused request is not read.
                let stays_open = self.stays_open(&request) && request.body == Body::Length(0);
                let text = reason(405).as_bytes();
                self.reply(405, "Allow: GET, HEAD\r\n", text, stays_open, true)?;
                Ok(stays_open)
            }
        }
    }

    fn stays_open(&self, request: &Request) -> bool {
        request.keep_alive && !self.stopper.is_stopped()
    }

    fn give_file(&mut self, path: &str, keep_alive: bool, with_body: bool) -> Result<(), Refusal> {
        let found = self.open(path);
        let (mut file, length) = match found {
            Ok(found) => found,
            Err(error) => {
                let status = status_of(error)?;
                self.reply(status, "", reason(status).as_bytes(), keep_alive, with_body)?;
                return Ok(());
            }
        };
        self.stream.write_all(head(200, "", length, keep_alive).as_bytes())?;
        if with_body {
            let sent = cringle::io::copy(&mut (&mut file).take(length), &mut self.stream)?;
            if sent < length {
                // The file was truncated meanwhile. The peer sees that the answer is too short.
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    fn open(&self, path: &str) -> io::Result<(cringle::fs::File, u64)> {
        let mut path = Path::new(if path.is_empty() { "." } else { path }).to_path_buf();
        if self.dir.metadata(&path)?.is_dir() {
            path.push("index.html");
        }
        // Opening a FIFO would wait for a writer.
        if !self.dir.metadata(&path)?.is_file() {
            return Err(ErrorKind::NotFound.into());
        }
        let file = self.dir.open_file(&path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    /// Reads the body and drops it. Returns its length.
    fn read_body(&mut self, request: &Request) -> Result<u64, Refusal> {
        let most = self.limits.body_bytes;
        if matches!(request.body, Body::Length(length) if length > most) {
            return Err(Refusal::Status(413));
        }
        if request.body == Body::Length(0) {
            return Ok(0);
        }
        if request.expects_continue && self.ahead.is_empty() {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        within(self.limits.request, || match request.body {
            Body::Length(length) => self.skip(length).map(|()| length),
            Body::Chunked => self.skip_chunks(most),
        })
    }

    fn skip(&mut self, mut length: u64) -> Result<(), Refusal> {
        loop {
            let here = self.ahead.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            self.ahead.drain(..here);
            length -= here as u64;
            if length == 0 {
                return Ok(());
            }
            self.fill().map_err(cut_off)?;
        }
    }

    fn skip_chunks(&mut self, most: u64) -> Result<u64, Refusal> {
        let (mut sum, mut extensions) = (0u64, 0);
        loop {
            let line = self.line()?;
            let (size, extension) = http::chunk_size(&line).ok_or(Refusal::Status(400))?;
            sum = sum.saturating_add(size);
            extensions += extension;
            if sum > most || extensions > self.limits.head_bytes {
                return Err(Refusal::Status(413));
            }
            if size == 0 {
                return self.skip_trailer().map(|()| sum);
            }
            self.skip(size)?;
            if !self.line()?.is_empty() {
                return Err(Refusal::Status(400));
            }
        }
    }

    fn skip_trailer(&mut self) -> Result<(), Refusal> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            fields.extend_from_slice(&line);
            fields.extend_from_slice(b"\r\n");
            if fields.len() > self.limits.head_bytes {
                return Err(Refusal::Status(431));
            }
            if line.is_empty() {
                return if http::is_trailer(&fields) { Ok(()) } else { Err(Refusal::Status(400)) };
            }
        }
    }

    /// Returns the bytes up to the next CRLF, without it. Refuses a CR or LF by itself.
    fn line(&mut self) -> Result<Vec<u8>, Refusal> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|two| two == b"\r\n") {
                let mut line: Vec<u8> = self.ahead.drain(..end + 2).collect();
                line.truncate(end);
                let whole = !line.contains(&b'\r') && !line.contains(&b'\n');
                return whole.then_some(line).ok_or(Refusal::Status(400));
            }
            if self.ahead.len() >= self.limits.head_bytes {
                return Err(Refusal::Status(431));
            }
            self.fill().map_err(cut_off)?;
        }
    }

    fn reply(
        &mut self,
        status: u16,
        headers: &str,
        body: &[u8],
        keep_alive: bool,
        with_body: bool,
    ) -> io::Result<()> {
        let mut reply = head(status, headers, body.len() as u64, keep_alive).into_bytes();
        if with_body {
            reply.extend_from_slice(body);
        }
        self.stream.write_all(&reply)
    }
}

/// Calls `f` with a deadline, after which the request is refused.
fn within<T>(limit: Duration, f: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    // A refusal with a status is no `io::Error`, so it passes through the deadline as a value.
    let result = time::timeout(limit, || match f() {
        Err(Refusal::Broken(error)) => Err(error),
        other => Ok(other),
    });
    match result {
        Ok(result) => result,
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(Refusal::Status(408)),
        Err(error) => Err(Refusal::Broken(error)),
    }
}

/// Converts the error of a read in the middle of a request. A peer that has ended its stream there
/// may still read the answer.
fn cut_off(error: io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::UnexpectedEof => Refusal::Status(400),
        _ => Refusal::Broken(error),
    }
}

/// Returns the status for the error of a file. A path that leads out of the directory is not found.
fn status_of(error: io::Error) -> io::Result<u16> {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::CrossesDevices
        | ErrorKind::InvalidFilename => Ok(404),
        ErrorKind::PermissionDenied => Ok(403),
        _ if error.raw_os_error() == Some(libc::ELOOP) => Ok(404),
        _ => Err(error),
    }
}

fn head(status: u16, headers: &str, length: u64, keep_alive: bool) -> String {
    let (reason, connection) = (reason(status), if keep_alive { "keep-alive" } else { "close" });
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n{headers}\r\n"
    )
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Error",
    }
}

#[allow(dead_code, reason = "the tests call `run`")]
fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().unwrap_or_else(|| ".".into());
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let served = run(directory.as_ref(), &addr, Limits::default(), |addr, _| {
        eprintln!("http://{addr}/ serves {directory}; Ctrl-C or SIGTERM ends it");
    })?;
    eprintln!("{} connections, {} failed", served.connections, served.failed);
    Ok(())
}
