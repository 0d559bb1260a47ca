//! A web server: the files of a directory, over HTTP/1.1.
//!
//!     cargo run --release --example web -- [DIRECTORY] [ADDRESS]
//!
//! serves DIRECTORY (default: here) at ADDRESS (default: 127.0.0.1:8080) until Ctrl-C or SIGTERM.
//! Then requests that are under way are still answered, each connection may ask once more, and idle
//! connections end at once. GET and HEAD answer with files, `index.html` for a directory; no path
//! and no link leads out of it. `POST /length` answers with the length of the body, chunked or not.
//!
//! Each connection is a fiber that reads like a blocking program. A slow peer, or one that sends
//! too much, gets an answer (408, 413, 431) and is disconnected: each wait has a deadline around
//! it. `web/http.rs` decides which requests are valid.

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

/// What a peer may do.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: u64,
    /// From the first byte of a head to its last; the same for a body.
    pub(crate) request: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// For requests that are under way when the server is stopped.
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

/// What `main` does. `started` is told where the server listens, and what ends it.
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
        // Until the end; a second signal ends the process, as the listener is gone.
        let _ = fiber::spawn(move || interrupts.wait().map(|_| interrupted.stop()));
        started(server.local_addr()?, stopper.clone());
        server.run(|stream, _peer| {
            // A head and a file are two writes.
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

/// Why a request has no answer but a status, after which the connection ends.
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
    /// What was read and not used yet: the rest of a request, or more requests.
    ahead: Vec<u8>,
    /// A request was answered.
    kept: bool,
}

impl Connection<'_> {
    fn serve(mut self) -> io::Result<()> {
        loop {
            match self.next_request().and_then(|request| self.answer(request)) {
                Ok(true) => self.kept = true,
                Ok(false) => return self.part(),
                Err(Refusal::Broken(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(());
                }
                Err(Refusal::Broken(error)) => return Err(error),
                Err(Refusal::Status(status)) => {
                    self.reply(status, "", reason(status).as_bytes(), false, true)?;
                    return self.part();
                }
            }
        }
    }

    /// Closing a socket that has unread bytes resets the connection, and the peer may lose what was
    /// sent last: so it is told that no more comes, and has a moment to read.
    fn part(&mut self) -> io::Result<()> {
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
            // However the peer ends it, it ends.
            _ => Ok(()),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let count = self.stream.read(&mut buffer)?;
        self.ahead.extend_from_slice(&buffer[..count]);
        if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// For the first bytes of a request, which a server that ends no longer waits for.
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
                // Nothing was asked, and nothing is owed.
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

    /// Whether the connection goes on.
    fn answer(&mut self, request: Request) -> Result<bool, Refusal> {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/length") => {
                let length = self.read_body(&request)?.to_string();
                let goes_on = self.goes_on(&request);
                self.reply(200, "", length.as_bytes(), goes_on, true)?;
                Ok(goes_on)
            }
            ("GET" | "HEAD", path) => {
                self.read_body(&request)?;
                let goes_on = self.goes_on(&request);
                let with_body = request.method == "GET";
                self.give_file(path.trim_start_matches('/'), goes_on, with_body)?;
                Ok(goes_on)
            }
            _ => {
                // A body that nobody wants is not waited for.
                let goes_on = self.goes_on(&request) && request.body == Body::Length(0);
                let text = reason(405).as_bytes();
                self.reply(405, "Allow: GET, HEAD\r\n", text, goes_on, true)?;
                Ok(goes_on)
            }
        }
    }

    fn goes_on(&self, request: &Request) -> bool {
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
                // It got shorter meanwhile: the peer sees that the answer is cut.
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
        // To open a pipe would wait for who writes to it.
        if !self.dir.metadata(&path)?.is_file() {
            return Err(ErrorKind::NotFound.into());
        }
        let file = self.dir.open_file(&path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    /// Reads and drops it. Says how long it was.
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

    /// Up to the next CRLF, without it; a CR or LF by itself is refused.
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

/// Gives it so much time, or refuses the request.
fn within<T>(limit: Duration, f: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    // An error of ours passes as a value: the deadline has its own.
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

/// In the middle of a request: the peer may still read, what it has sent makes no sense.
fn cut_off(error: io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::UnexpectedEof => Refusal::Status(400),
        _ => Refusal::Broken(error),
    }
}

/// What a file's error means to the peer. A path that leads out is as good as none.
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
    eprintln!("{} connections, {} of them broke", served.connections, served.failed);
    Ok(())
}
