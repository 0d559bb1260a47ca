//! The web server of `examples/`, tested by correct, unusual and slow clients.

mod judge;

use crate::program::{self, Server, rest, with};
use cringle_testing::disk;
use fastrand::Rng;
use judge::{Verdict, judge};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::thread;

/// A running server, with the directory that it serves.
struct Running {
    server: Server,
    _files: tempfile::TempDir,
}

impl Deref for Running {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Running {
    /// Starts the server with these limits, and with [`ENDLESS`] times otherwise.
    fn start(limits: &[&str]) -> Running {
        let files = disk::directory();
        fill(files.path());
        let mut command = with("web", &[&files.path().join("site"), &"127.0.0.1:0"]);
        command.args(ENDLESS).args(limits);
        Running { server: Server::start(command), _files: files }
    }

    fn get(&self, path: &str) -> String {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    }

    /// Stops the server, and returns the counters that it prints.
    fn stop(self) -> String {
        self.server.stop()
    }
}

/// Limits so long that a test does not end if one is used.
pub(crate) const ENDLESS: [&str; 3] = ["idle_ms=3600000", "request_ms=3600000", "grace_ms=3600000"];

fn fill(directory: &Path) {
    let site = directory.join("site");
    std::fs::create_dir_all(site.join("below")).unwrap();
    std::fs::write(directory.join("secret"), "not for you").unwrap();
    std::fs::write(site.join("index.html"), "<p>home").unwrap();
    std::fs::write(site.join("a file"), "with a blank").unwrap();
    std::fs::write(site.join("large"), large()).unwrap();
    std::os::unix::fs::symlink("../secret", site.join("link")).unwrap();
    std::os::unix::fs::symlink("loop", site.join("loop")).unwrap();
    assert!(Command::new("mkfifo").arg(site.join("pipe")).status().unwrap().success());
}

fn large() -> Vec<u8> {
    disk::pattern(3_000_001)
}

fn statuses(text: &str) -> Vec<u16> {
    let after = |part: &str| part[..3].parse().unwrap();
    text.split("HTTP/1.1 ").skip(1).map(after).collect()
}

/// A short limit, where the server waits for it.
const QUICK: &str = "request_ms=300";

#[test]
fn only_files_of_the_directory_are_served() {
    let server = Running::start(&[]);
    assert!(server.get("/").ends_with("\r\n\r\n<p>home"));
    assert!(server.get("/?query").ends_with("\r\n\r\n<p>home"));
    assert!(server.get("/a%20file").ends_with("with a blank"));
    for path in [
        "/nothing",
        "/below",
        "/pipe",
        "/loop",
        "/link",
        "/../secret",
        "/%2e%2e/secret",
        "//etc/passwd/x",
    ] {
        let answer = server.get(path);
        assert_eq!(statuses(&answer), [404], "{path}: {answer}");
        assert!(!answer.contains("not for you"));
    }
    for path in ["/%zz", "/%", "/a%00b", "nothing"] {
        assert_eq!(statuses(&server.get(path)), [400], "{path}");
    }
    let mut stream = server.connect();
    stream.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&large()) && answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[test]
fn head_omits_the_body_and_other_methods_fail() {
    let server = Running::start(&[]);
    let answer =
        server.exchange(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /no HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(statuses(&answer), [200, 404]);
    assert!(answer.contains("Content-Length: 7") && !answer.contains("home"), "{answer}");
    let answer = server.exchange(b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(statuses(&answer) == [405] && answer.contains("Allow: GET, HEAD"), "{answer}");
}

#[test]
fn requests_may_arrive_pipelined_or_byte_by_byte() {
    let server = Running::start(&[]);
    let all = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\
        12345GET /nothing HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\nGET / ";
    let expected = [200, 200, 404, 200];
    assert_eq!(statuses(&server.exchange(all)), expected);
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    let end = all.len() - b"GET / ".len();
    all[..end].iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
    assert_eq!(statuses(&rest(&mut stream)), expected);
}

#[test]
fn connection_persists_until_one_side_closes() {
    let server = Running::start(&[]);
    for (head, lasts) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, close\r\n\r\n", false),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
    ] {
        let answers = statuses(&server.exchange(head.repeat(2).as_bytes()));
        assert_eq!(answers.len(), if lasts { 2 } else { 1 }, "{head}");
    }
}

#[test]
fn chunks_form_one_body() {
    let server = Running::start(&[]);
    let post = |body: &str| {
        let head = "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        server.exchange(format!("{head}{body}GET / HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    };
    let answer = post("3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n");
    assert!(answer.contains("\r\n\r\n13HTTP/1.1 200") && answer.ends_with("home"), "{answer}");
    for wrong in ["x\r\n", "3\r\nabcd\r\n", "-1\r\n", "fffffffffffffffff\r\n"] {
        assert_eq!(statuses(&post(wrong)), [400], "{wrong}");
    }
}

#[test]
fn expect_header_gets_a_continue_response() {
    let server = Running::start(&[]);
    let mut stream = server.connect();
    let head =
        "POST /length HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut go = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut go).unwrap();
    assert!(go.starts_with(b"HTTP/1.1 100 "));
    stream.write_all(b"four").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut stream).ends_with("\r\n\r\n4"));
    // A refused body is not requested.
    let head = head.replace("Content-Length: 4", "Content-Length: 9999999");
    assert_eq!(statuses(&server.exchange(head.as_bytes())), [413]);
}

#[test]
fn ambiguous_framing_is_refused() {
    let server = Running::start(&[]);
    for headers in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Host: b\r\n",
        "Na me: x\r\n",
    ] {
        let answer = server
            .exchange(format!("POST /length HTTP/1.1\r\nHost: a\r\n{headers}\r\nabc").as_bytes());
        assert_eq!(statuses(&answer), [400], "{headers}: {answer}");
    }
    for text in ["GET / HTTP/1.1\r\n\r\n", "hello\r\n\r\n", "\0\0\0\0", "GET / HTTP/3.0\r\n\r\n"] {
        assert_eq!(statuses(&server.exchange(text.as_bytes())), [400], "{text:?}");
    }
}

const TAIL: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Requests that parsers read differently: the first response refuses them, and no other follows.
#[test]
fn ambiguous_requests_are_refused() {
    let server = Running::start(&[]);
    let chunked = "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = |body: &str| format!("{chunked}{body}");
    let with = |fields: &str| format!("POST /length HTTP/1.1\r\nHost: a\r\n{fields}\r\n0\r\n\r\n");
    let cases = [
        // Sizes of chunks.
        chunked("\r\n\r\n"),
        chunked(";a\r\n\r\n"),
        chunked(" 0\r\n\r\n"),
        chunked("0 \r\n\r\n"),
        chunked("0x0\r\n\r\n"),
        chunked("+0\r\n\r\n"),
        chunked("-0\r\n\r\n"),
        chunked("0 0\r\n\r\n"),
        chunked("1_0\r\n\r\n"),
        chunked("10000000000000000\r\n\r\n"),
        chunked("ffffffffffffffff\r\n\r\n"),
        // Line ends, NUL and other controls in chunks.
        chunked("0\n\r\n"),
        chunked("0\n\n"),
        chunked("0\r\n\n"),
        chunked("3;a\nb\r\nabc\r\n0\r\n\r\n"),
        chunked("3;a\rb\r\nabc\r\n0\r\n\r\n"),
        chunked("3;a\0b\r\nabc\r\n0\r\n\r\n"),
        chunked("3\r\nabc\n0\r\n\r\n"),
        chunked("3\r\nabcd\r\n0\r\n\r\n"),
        chunked("3\r\nabc0\r\n\r\n"),
        // Trailers.
        chunked("0\r\nno field\r\n\r\n"),
        chunked("0\r\na : b\r\n\r\n"),
        chunked("0\r\na: b\r\n c\r\n\r\n"),
        chunked("0\r\na: b\nc: d\r\n\r\n"),
        chunked("0\r\na: \0\r\n\r\n"),
        // Two framings, or an invalid one.
        with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        with("Transfer-Encoding: chunked, identity\r\n"),
        with("Transfer-Encoding: identity, chunked\r\n"),
        with("Transfer-Encoding: \"chunked\"\r\n"),
        with("Transfer-Encoding: \x0bchunked\r\n"),
        with("Transfer-Encoding: chunked\x0c\r\n"),
        with("Transfer-Encoding:\r\n"),
        with("Transfer-Encoding\r\n"),
        with("Transfer-Encoding : chunked\r\n"),
        with("Transfer-Encoding\t: chunked\r\n"),
        with(" Transfer-Encoding: chunked\r\n"),
        with("X: y\r\n Transfer-Encoding: chunked\r\n"),
        with("X: y\rTransfer-Encoding: chunked\r\n"),
        with("X: y\nTransfer-Encoding: chunked\r\n"),
        with("X: \0\r\n"),
        with(": y\r\n"),
        "POST /length HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        "POST /length HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        // Lengths.
        with("Content-Length: 5\r\nContent-Length: 5\r\n"),
        with("Content-Length: 5, 5\r\n"),
        with("Content-Length: 5 5\r\n"),
        with("Content-Length:\r\n"),
        with("Content-Length: -5\r\n"),
        with("Content-Length: 0x5\r\n"),
        with("Content-Length: 5.0\r\n"),
        with("Content-Length: 18446744073709551621\r\n"),
        with("Content-Length: 5\x0b\r\n"),
        // The request line, and Host.
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n".into(),
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /  HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n".into(),
        "GET / HTTP/1.1\nHost: a\n\n".into(),
        "GET / HTTP/1.1\r\nHost: a\n\r\n".into(),
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n".into(),
        "GET / HTTP/01.1\r\nHost: a\r\n\r\n".into(),
        "GET / http/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n".into(),
    ];
    for case in cases {
        let answers = statuses(&server.exchange(format!("{case}{TAIL}").as_bytes()));
        assert!(matches!(answers[..], [400 | 413]), "{case:?}: {answers:?}");
    }
}

#[test]
fn unusual_but_valid_requests_are_answered() {
    let server = Running::start(&[]);
    let chunked = "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for case in [
        format!("{chunked}000000000000000000003 ;a=\"b\"; c\r\nabc\r\n000\r\nx: y\r\n\r\n"),
        "GET / HTTP/1.1\r\nhOsT:a\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost:\r\n\r\n".into(),
        "\r\n\r\nGET / HTTP/1.1\r\nHost: \t a\t \r\n\r\n".into(),
        "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET HTTP://a:80/?query HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 0003\r\n\r\nabc".into(),
        "POST /length HTTP/1.1\r\nHost: a\r\ntransfer-encoding:CHUNKED\r\n\r\n0\r\n\r\n".into(),
    ] {
        let answers = statuses(&server.exchange(format!("{case}{TAIL}").as_bytes()));
        assert_eq!(answers, [200, 200], "{case:?}");
    }
}

/// Mutates a request in a few places.
fn changed(request: &str, rng: &mut Rng) -> Vec<u8> {
    const BYTES: &[u8] = b"\r\n\0 \t:;,+-05aFx\"\x0b\x0c\x7f\x80";
    let mut bytes = request.as_bytes().to_vec();
    for _ in 0..=rng.usize(..3) {
        let (at, byte) = (rng.usize(..bytes.len()), BYTES[rng.usize(..BYTES.len())]);
        match rng.usize(..5) {
            0 => bytes[at] = byte,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, byte),
            3 => bytes.splice(at..at, *b"\r\n").for_each(drop),
            _ => {
                // Repeats a part, such as a field or a chunk.
                let end = bytes.len().min(at + rng.usize(..40));
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part).for_each(drop);
            }
        }
    }
    bytes
}

/// `CRINGLE_REQUESTS=100000` sets the number of requests.
#[test]
fn mutated_requests_are_handled_per_standard() {
    let requests = [
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nahoy!",
        "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nahoy!\r\n0\r\nX: y\r\n\r\n",
        "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0a\r\n0123456789\r\n0\r\n\r\n",
    ];
    let count = std::env::var("CRINGLE_REQUESTS").map_or(300, |count| count.parse().unwrap());
    let server = Running::start(&[]);
    let mut seen = [0; 3];
    for seed in 0..count {
        let mut rng = Rng::with_seed(seed);
        let request = requests[rng.usize(..requests.len())];
        let bytes = [&changed(request, &mut rng), TAIL.as_bytes()].concat();
        let mut answers = statuses(&server.exchange(&bytes)).into_iter();
        let text = || format!("seed {seed}: {:?}", String::from_utf8_lossy(&bytes));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (verdict, answer) = (judge(rest), answers.next());
            match verdict {
                Verdict::Valid { len, persists } => {
                    assert!(matches!(answer, Some(200 | 404 | 405)), "{answer:?} to {}", text());
                    seen[0] += 1;
                    // After 405 the server may close, because it need not read a refused body.
                    rest = if persists { &rest[len..] } else { &[] };
                    if answer == Some(405) && answers.len() == 0 {
                        break;
                    }
                }
                Verdict::Invalid => {
                    // (405 comes before the body is read.)
                    assert!(
                        matches!(answer, Some(400 | 405 | 413 | 431)),
                        "{answer:?} to {}",
                        text()
                    );
                    seen[1] += 1;
                    break;
                }
                Verdict::Incomplete => {
                    assert!(
                        matches!(answer, None | Some(400 | 405 | 413)),
                        "{answer:?} to {}",
                        text()
                    );
                    seen[2] += 1;
                    break;
                }
            }
        }
        assert_eq!(answers.next(), None, "one answer too many to {}", text());
    }
    assert!(seen[..2].iter().all(|seen| *seen > count / 100), "{seen:?}");
}

#[test]
fn oversized_requests_are_refused_with_a_response() {
    let server = Running::start(&["body_bytes=1000"]);
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nLong: {}\r\n\r\n", "x".repeat(100_000));
    assert_eq!(statuses(&server.exchange(long.as_bytes())), [431]);
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "a: b\r\n".repeat(100));
    assert_eq!(statuses(&server.exchange(many.as_bytes())), [431]);
    let body = |length: usize| {
        let head = format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        [head.into_bytes(), vec![b'x'; length]].concat()
    };
    assert_eq!(statuses(&server.exchange(&body(1000))), [200]);
    assert_eq!(statuses(&server.exchange(&body(100_000))), [413]);
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    let head = "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(statuses(&server.exchange(format!("{head}{}", chunk.repeat(2)).as_bytes())), [413]);
}

#[test]
fn slow_clients_get_a_timeout_response() {
    let server = Running::start(&[QUICK]);
    for begun in [
        "G",
        "GET / HTTP/1.1\r\nHost:",
        "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabc",
        "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab",
    ] {
        let mut stream = server.connect();
        stream.write_all(begun.as_bytes()).unwrap();
        assert_eq!(statuses(&rest(&mut stream)), [408], "{begun}");
    }
}

#[test]
fn silent_clients_are_closed_without_a_response() {
    let server = Running::start(&[QUICK, "idle_ms=1000"]);
    assert_eq!(rest(&mut server.connect()), "");
    // The request is there when the server accepts its connection.
    server.pause();
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.resume();
    assert_eq!(statuses(&rest(&mut stream)), [200]);
}

#[test]
fn closed_peer_affects_no_other_connection() {
    let server = Running::start(&[]);
    for bytes in [&b""[..], b"GET /", b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"] {
        server.connect().write_all(bytes).unwrap();
    }
    assert_eq!(statuses(&server.exchange(b"GET / HTT")), [400]);
    assert_eq!(statuses(&server.get("/")), [200]);
    let served = server.stop();
    let connections: u64 = served.split(' ').next().unwrap().parse().unwrap();
    // A worker that had no time until the stop has accepted none of the closed ones.
    assert!((2..=5).contains(&connections) && served.contains(" 0 panicked, "), "{served}");
}

#[test]
fn requests_in_progress_are_answered_after_a_stop() {
    let mut server = Running::start(&[]);
    let mut stream = server.connect();
    stream.write_all(b"POST /length HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()]).unwrap();
    server.server.signal();
    // The server has received the signal when it refuses connections.
    while TcpStream::connect(server.addr).is_ok() {
        thread::yield_now();
    }
    stream.write_all(b"hi").unwrap();
    let answer = rest(&mut stream);
    assert!(answer.ends_with("\r\n\r\n2") && answer.contains("Connection: close"), "{answer}");
    let served = server.stop();
    assert!(served.contains(" 0 failed, ") && served.ends_with(" 0 cut off"), "{served}");
}

/// A client that has received a response and keeps its connection.
fn keeps(server: &Server) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    stream
}

/// A client whose request has started: the server waits for its body.
fn begins(server: &Server) -> TcpStream {
    let mut stream = keeps(server);
    let head =
        "POST /length HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()]).unwrap();
    stream
}

#[test]
fn stop_ends_idle_connections_and_answers_requests() {
    let mut server = Running::start(&[]);
    let (kept, mut asks) = ([(); 3].map(|()| keeps(&server)), begins(&server));
    server.server.signal();
    kept.into_iter().for_each(|mut stream| assert_eq!(rest(&mut stream), ""));
    asks.write_all(b"hi").unwrap();
    assert!(rest(&mut asks).ends_with("\r\n\r\n2"));
    assert_eq!(server.stop(), "4 connections, 0 failed, 0 panicked, 0 cut off");
}

#[test]
fn interrupt_ends_the_program_gracefully() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut server = Running::start(&[]);
        server.server.signal = Some(signal);
        let (mut kept, mut asks) = (keeps(&server), begins(&server));
        server.server.signal();
        assert_eq!(rest(&mut kept), "");
        asks.write_all(b"hi").unwrap();
        assert!(rest(&mut asks).ends_with("\r\n\r\n2"));
        assert_eq!(server.stop(), "2 connections, 0 failed, 0 panicked, 0 cut off");
    }
}

#[test]
fn unknown_limit_is_refused_with_the_usage() {
    for wrong in ["fast", "request_ms=", "request_ms=-1", "speed=1"] {
        let error = program::error("web", &[&".", &"127.0.0.1:0", &wrong]);
        assert!(error.contains(&format!("{wrong}: no limit; usage: web ")), "{error}");
    }
}

#[test]
fn curl_accepts_the_responses() {
    let server = Running::start(&[]);
    let url = format!("http://{}", server.addr);
    let curl = |arguments: &[&str]| {
        // (curl sends a body a second after `Expect: 100-continue`, unless it may wait longer.)
        Command::new("curl").args(["-sS", "--expect100-timeout", "3600"]).args(arguments).output()
    };
    let Ok(output) = curl(&[&format!("{url}/large"), &format!("{url}/")]) else {
        return eprintln!("skipped: there is no curl");
    };
    assert!(output.status.success() && output.stdout == [large(), b"<p>home".to_vec()].concat());
    let body = "x".repeat(5000);
    for how in [&["-H", "Transfer-Encoding: chunked"][..], &["-H", "Expect: 100-continue"], &[]] {
        let output = curl(&[how, &["-d", &body, &format!("{url}/length")]].concat()).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "5000", "{how:?}");
    }
    let output = curl(&[
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--path-as-is",
        &format!("{url}/../secret"),
    ]);
    assert_eq!(output.unwrap().stdout, b"404");
}
