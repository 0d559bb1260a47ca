//! The processor time of a request to tiny_http, on threads and on fibers:
//!
//!     cargo run --release --no-default-features --features tiny_http \
//!         --example tiny_http_cost [ROUNDS]
//!
//! A server of tiny_http, with one loop that answers requests, has one core. 50 clients with a
//! connection each are fibers on another core; each sends a request when it has read the last
//! answer. Rounds alternate between two servers:
//!
//! - `threads`: the program as its author wrote it, outside of any runtime;
//! - `fibers`: the same within `run`, where the threads that tiny_http starts are fibers.
//!
//! A round's figure is the time of the server's process, user and system, for each request.

cringle_interpose::install!();

use cringle::fiber;
use cringle::runtime::Threads;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use tiny_http::{Response, Server};

const CONNECTIONS: usize = 50;
const REQUESTS: usize = 400;
const ROUNDS: usize = 15;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", "threads"] => serve(),
        ["serve", "fibers"] => {
            pin(0);
            let builder = cringle::Builder::new().workers(1).threads(Threads::Fibers);
            builder.run(serve).unwrap();
        }
        [] => compare(ROUNDS),
        [rounds] => compare(rounds.parse().expect("a number of rounds")),
        _ => panic!("usage: tiny_http_cost [ROUNDS]"),
    }
}

/// The server, as in tiny_http's documentation.
fn serve() {
    pin(0);
    let server = Server::http("127.0.0.1:0").unwrap();
    println!("{}", server.server_addr());
    for request in server.incoming_requests() {
        let answer = match request.url() {
            "/time" => time_us().to_string(),
            _ => "Hello, world!".to_owned(),
        };
        request.respond(Response::from_string(answer)).unwrap();
    }
}

/// The processor time of this process in microseconds.
fn time_us() -> i64 {
    // SAFETY: all zeros are a value; the call fills the structure.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        [usage.ru_utime, usage.ru_stime].iter().map(|it| it.tv_sec * 1_000_000 + it.tv_usec).sum()
    }
}

/// Gives the calling thread, and those that it starts, one core.
fn pin(core: usize) {
    // SAFETY: all zeros are a set of cores, which outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0, "core {core} is needed");
    }
}

fn compare(rounds: usize) {
    pin(1);
    let (threads, fibers) = (Running::start("threads"), Running::start("fibers"));
    let round = |server: &Running| {
        let builder = cringle::Builder::new().workers(1).threads(Threads::System);
        builder.run(|| server.round()).unwrap()
    };
    for server in [&threads, &fibers] {
        round(server);
    }
    let mut samples: Vec<(f64, f64)> =
        (0..rounds).map(|_| (round(&fibers), round(&threads))).collect();
    println!("µs of processor time a request, fibers / threads: {samples:.2?}");
    let mut median = |of: fn(&(f64, f64)) -> f64| {
        samples.sort_by(|a, b| of(a).total_cmp(&of(b)));
        of(&samples[rounds / 2])
    };
    let (fibers, threads, ratio) = (median(|it| it.0), median(|it| it.1), median(|it| it.0 / it.1));
    println!("medians: {fibers:.2} / {threads:.2}, ratio {ratio:.3}");
}

/// A server's process.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start(on: &str) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args(["serve", on]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Running { child, address: line.trim().parse().unwrap() }
    }

    /// Returns the processor time of the server for each request, in microseconds.
    fn round(&self) -> f64 {
        let mut control = Connection::new(self.address);
        let before: i64 = control.ask("/time").parse().unwrap();
        fiber::scope(|s| {
            for _ in 0..CONNECTIONS {
                s.spawn(|| {
                    let mut connection = Connection::new(self.address);
                    for _ in 0..REQUESTS {
                        assert_eq!(connection.ask("/"), "Hello, world!");
                    }
                });
            }
        });
        let after: i64 = control.ask("/time").parse().unwrap();
        (after - before) as f64 / (CONNECTIONS * REQUESTS) as f64
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    fn new(address: SocketAddr) -> Connection {
        Connection(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    /// Returns the body of the answer.
    fn ask(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}
