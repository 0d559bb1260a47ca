//! A web server: the files of a directory, over HTTP/1.1.
//!
//!     cargo run --release --example web -- [DIRECTORY] [ADDRESS] [LIMIT=NUMBER]...
//!
//! serves DIRECTORY (default: the current one) at ADDRESS (default: 127.0.0.1:8080) until Ctrl-C or
//! SIGTERM. The server then answers unfinished requests, and the first request of each new
//! connection; it closes idle connections at once. GET and HEAD return files, and `index.html` for
//! a directory; no path or link leads out of DIRECTORY. `POST /length` returns the length of the
//! request's body. [`Limits`] has the names of the limits; those of times end with `_ms`.
//!
//! Each connection has a fiber, whose code reads like a blocking program. Every wait has a
//! deadline: a client that is too slow or sends too much gets an error response (408, 413, 431) and
//! is disconnected. `web/http.rs` decides which requests are valid.

#[path = "web/http.rs"]
mod http;

use cringle::cancel::{self, Reason};
use cringle::fs::Dir;
use cringle::net::{Served, Server, Shutdown, Stopper, TcpStream};
use cringle::signal::{Signal, Signals};
use cringle::{fiber, time};
use http::{Body, Request};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The limits of the server.
#[derive(Clone, Copy)]
struct Limits {
    /// The size of a request's head: its request line and header fields.
    head_bytes: usize,
    /// The size of a request's body.
    body_bytes: u64,
    /// The time from the first byte of a head to its last one, and the same for a body.
    request: Duration,
    /// The time between two requests.
    idle: Duration,
    /// The time for unfinished requests after the server is stopped.
    grace: Duration,
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

impl Limits {
    /// Sets a limit by an argument, such as `request_ms=500`.
    fn set(&mut self, argument: &str) -> io::Result<()> {
        let usage = || {
            let text =
                format!("{argument}: no limit; usage: web [DIRECTORY] [ADDRESS] [LIMIT=NUMBER]...");
            io::Error::new(ErrorKind::InvalidInput, text)
        };
        let (name, number) = argument.split_once('=').ok_or_else(usage)?;
        let number: u32 = number.parse().map_err(|_| usage())?;
        let time = Duration::from_millis(number.into());
        match name {
            "head_bytes" => self.head_bytes = number as usize,
            "body_bytes" => self.body_bytes = number.into(),
            "request_ms" => self.request = time,
            "idle_ms" => self.idle = time,
            "grace_ms" => self.grace = time,
            _ => return Err(usage()),
        }
        Ok(())
    }
}

/// Serves `directory` until a signal arrives. Calls `started` with the address that the server
/// listens on.
fn run(
    directory: &Path,
    addr: &str,
    limits: Limits,
    started: impl FnOnce(SocketAddr),
) -> io::Result<Served> {
    cringle::run(|| {
        let dir = Dir::open(directory)?;
        let server = Server::bind(addr)?.grace(limits.grace);
        let stopper = server.stopper();
        let signals = Signals::new(&[Signal::Interrupt, Signal::Terminate])?;
        let stopper_for_signals = stopper.clone();
        // The fiber drops `signals` after the first signal, so the second one ends the process.
        let _ = fiber::spawn(move || signals.wait().map(|_| stopper_for_signals.stop()));
        started(server.local_addr()?);
        server.run(|stream, _peer| {
            // Without this, Nagle's algorithm could delay the file, which is written after the
            // head.
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(limits.request))?;
            let connection = Connection {
                stream: &stream,
                dir: &dir,
                limits,
                stopper: &stopper,
                buffered: Vec::new(),
                has_answered: false,
            };
            connection.serve()
        })
    })
}

/// Why a connection ends without a full response.
enum Refusal {
    /// The request is invalid or exceeds a limit. The client gets this status.
    Status(u16),
    /// The connection failed or was closed.
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match cancel::reason(&error) {
            Some(Reason::Elapsed(_)) => Refusal::Status(408),
            _ => Refusal::Io(error),
        }
    }
}

struct Connection<'a> {
    stream: &'a TcpStream,
    dir: &'a Dir,
    limits: Limits,
    stopper: &'a Stopper,
    /// Received bytes that are not parsed yet: the rest of a request, or further requests.
    buffered: Vec<u8>,
    /// Whether a request on this connection has been answered.
    has_answered: bool,
}

impl Connection<'_> {
    /// Answers requests until one side closes the connection.
    fn serve(mut self) -> io::Result<()> {
        loop {
            match self.next_request().and_then(|request| self.answer(request)) {
                Ok(true) => self.has_answered = true,
                Ok(false) => return self.close(),
                Err(Refusal::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(());
                }
                Err(Refusal::Io(error)) => return Err(error),
                Err(Refusal::Status(status)) => {
                    self.reply(status, "", reason(status).as_bytes(), false, true)?;
                    return self.close();
                }
            }
        }
    }

    /// Closes the connection so that the client receives the last response. The kernel resets a
    /// connection that is closed with unread bytes, and a reset may discard the response. Therefore
    /// this method closes the sending side, and reads for a moment until the client closes its own.
    fn close(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let drained = time::timeout(Duration::from_secs(1), || {
            io::copy(&mut self.stream.take(1 << 20), &mut io::sink())
        });
        match drained {
            Err(error) if cancel::reason(&error) == Some(Reason::Cancelled) => Err(error),
            // The connection ends here, even if the client has reset it or is still sending.
            _ => Ok(()),
        }
    }

    /// Reads more bytes into `buffered`. Fails with `UnexpectedEof` at the end of the stream.
    fn read_more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer)?;
        self.buffered.extend_from_slice(&buffer[..count]);
        if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Reads the first bytes of a request. A stopped server waits for the first request of a
    /// connection, but not for further ones.
    fn read_first_bytes(&mut self) -> io::Result<()> {
        if !self.has_answered {
            return self.read_more();
        }
        let filled = self.stopper.until_stopped(|| self.read_more())?;
        filled.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    fn next_request(&mut self) -> Result<Request, Refusal> {
        if self.buffered.is_empty() {
            match time::timeout(self.limits.idle, || self.read_first_bytes()) {
                // No request has begun, so the connection ends without a response.
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
                }
                filled => filled?,
            }
        }
        let limits = self.limits;
        time::try_timeout(limits.request, || {
            loop {
                if let Some((request, end)) =
                    http::parse(&self.buffered).map_err(Refusal::Status)?
                {
                    self.buffered.drain(..end);
                    return Ok(request);
                }
                if self.buffered.len() >= limits.head_bytes {
                    return Err(Refusal::Status(431));
                }
                self.read_more().map_err(cut_off)?;
            }
        })
    }

    /// Answers a request, and returns whether the connection stays open.
    fn answer(&mut self, request: Request) -> Result<bool, Refusal> {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/length") => {
                let length = self.read_body(&request)?.to_string();
                let keeps_open = self.keeps_open(&request);
                self.reply(200, "", length.as_bytes(), keeps_open, true)?;
                Ok(keeps_open)
            }
            ("GET" | "HEAD", path) => {
                self.read_body(&request)?;
                let keeps_open = self.keeps_open(&request);
                let with_body = request.method == "GET";
                self.send_file(path.trim_start_matches('/'), keeps_open, with_body)?;
                Ok(keeps_open)
            }
            _ => {
                // The body is not read, so the connection cannot be used after it.
                let keeps_open = self.keeps_open(&request) && request.body == Body::Length(0);
                let text = reason(405).as_bytes();
                self.reply(405, "Allow: GET, HEAD\r\n", text, keeps_open, true)?;
                Ok(keeps_open)
            }
        }
    }

    /// Returns whether the connection stays open after this request.
    fn keeps_open(&self, request: &Request) -> bool {
        request.keep_alive && !self.stopper.is_stopped()
    }

    fn send_file(&mut self, path: &str, keep_alive: bool, with_body: bool) -> Result<(), Refusal> {
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
                // The file has become shorter. Closing the connection early shows the client that
                // the response is incomplete.
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    /// Opens a file of the directory, and returns it with its length.
    fn open(&self, path: &str) -> io::Result<(cringle::fs::File, u64)> {
        let mut path = Path::new(if path.is_empty() { "." } else { path }).to_path_buf();
        if self.dir.metadata(&path)?.is_dir() {
            path.push("index.html");
        }
        // Opening a named pipe would wait for a writer.
        if !self.dir.metadata(&path)?.is_file() {
            return Err(ErrorKind::NotFound.into());
        }
        let file = self.dir.open_file(&path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    /// Reads and discards the body of a request, and returns its length.
    fn read_body(&mut self, request: &Request) -> Result<u64, Refusal> {
        let limit = self.limits.body_bytes;
        if matches!(request.body, Body::Length(length) if length > limit) {
            return Err(Refusal::Status(413));
        }
        if request.body == Body::Length(0) {
            return Ok(0);
        }
        if request.expects_continue && self.buffered.is_empty() {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        time::try_timeout(self.limits.request, || match request.body {
            Body::Length(length) => self.skip(length).map(|()| length),
            Body::Chunked => self.skip_chunks(limit),
        })
    }

    /// Discards this number of bytes.
    fn skip(&mut self, mut length: u64) -> Result<(), Refusal> {
        loop {
            let here = self.buffered.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            self.buffered.drain(..here);
            length -= here as u64;
            if length == 0 {
                return Ok(());
            }
            self.read_more().map_err(cut_off)?;
        }
    }

    /// Discards a chunked body of at most `limit` bytes, and returns its length.
    fn skip_chunks(&mut self, limit: u64) -> Result<u64, Refusal> {
        let (mut sum, mut extensions) = (0u64, 0);
        loop {
            let line = self.line()?;
            let (size, extension_bytes) = http::chunk_size(&line).ok_or(Refusal::Status(400))?;
            sum = sum.saturating_add(size);
            extensions += extension_bytes;
            if sum > limit || extensions > self.limits.head_bytes {
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

    /// Discards the fields after the last chunk.
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

    /// Reads up to the next CRLF, and returns the line without it. Refuses a lone CR or LF.
    fn line(&mut self) -> Result<Vec<u8>, Refusal> {
        loop {
            if let Some(end) = self.buffered.windows(2).position(|two| two == b"\r\n") {
                let mut line: Vec<u8> = self.buffered.drain(..end + 2).collect();
                line.truncate(end);
                let whole = !line.contains(&b'\r') && !line.contains(&b'\n');
                return whole.then_some(line).ok_or(Refusal::Status(400));
            }
            if self.buffered.len() >= self.limits.head_bytes {
                return Err(Refusal::Status(431));
            }
            self.read_more().map_err(cut_off)?;
        }
    }

    /// Writes a response, without its body for a HEAD request.
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

/// Converts an error of a read within a request. The client of an incomplete request may still read
/// the response.
fn cut_off(error: io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::UnexpectedEof => Refusal::Status(400),
        _ => error.into(),
    }
}

/// Returns the status for an error of a file. A path that leads out of the directory gets 404, as
/// if it did not exist.
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

/// Returns the head of a response.
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

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().unwrap_or_else(|| ".".into());
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let mut limits = Limits::default();
    args.try_for_each(|argument| limits.set(&argument))?;
    let served = run(directory.as_ref(), &addr, limits, |addr| {
        eprintln!("serving {directory} at http://{addr}/; stop with Ctrl-C or SIGTERM");
    })?;
    let Served { connections, failed, panicked, cut_off, .. } = served;
    eprintln!("{connections} connections, {failed} failed, {panicked} panicked, {cut_off} cut off");
    Ok(())
}
