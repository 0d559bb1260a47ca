//! `cringle bench http` as a user runs it.

use crate::common::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SERVERS: [&str; 6] = ["threads", "epoll", "tokio", "tokio-mt", "uring", "fibers"];

fn http(place: &Path, arguments: &[&str]) -> Command {
    let mut command = cringle(place);
    command.args(["bench", "http"]).args(arguments);
    command
}

fn small(place: &Path, arguments: &[&str]) -> Command {
    let mut command = http(place, &["--repeat", "2", "--requests", "300"]);
    if !arguments.contains(&"--connections") {
        command.args(["--connections", "3,20"]);
    }
    command.args(arguments);
    command
}

fn named<'r>(report: &'r Value, server: &str) -> Vec<&'r Value> {
    runs(report).iter().filter(|run| run["server"] == server).collect()
}

#[test]
fn every_server_answers_every_request() {
    let place = place("http-all");
    let report = json(&mut small(&place, &[]));
    assert_eq!((&report["schema"], &report["benchmark"]), (&1.into(), &"http".into()));
    // Keep-alive with 3 and with 20 connections, and one request per connection with 3.
    assert_eq!(runs(&report).len(), SERVERS.len() * 3 * 2);
    for server in SERVERS {
        let runs = named(&report, server);
        assert_eq!(runs.len(), 6, "{server}");
        for run in &runs {
            assert_eq!((&run["errors"], &run["requests"]), (&0.into(), &300.into()), "{run}");
            assert_eq!(run["workers"], 1);
            assert!(run["cpu_us_per_request"].as_f64().unwrap() > 0.0, "{run}");
            assert!(run["context_switches_per_request"].as_f64().unwrap() >= 0.0, "{run}");
            let [p50, p99, p999] =
                ["p50_us", "p99_us", "p999_us"].map(|field| run[field].as_f64().unwrap());
            assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{run}");
        }
        let closing = |run: &&&Value| run["keepalive"] == false && run["connections"] == 3;
        assert_eq!(runs.iter().filter(closing).count(), 2, "{server}");
    }
    for median in report["medians"].as_array().unwrap() {
        assert!(median["ratios"]["cpu_to_uring"].as_f64().unwrap() > 0.0, "{median}");
    }
}

/// The limit admits one ring, and the server has two workers.
#[test]
fn the_driver_of_the_server_is_described() {
    let place = tempfile::tempdir().unwrap();
    let Some(mut command) = with_few_threads(place.path(), 1000) else { return };
    let limit = libc::rlimit { rlim_cur: 200_000, rlim_max: 200_000 };
    // SAFETY: the closure makes a system call, which only reads `limit`.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command.args(["bench", "http", "--servers", "fibers", "--workers", "2", "--verbose"]);
    command.args(["--connections", "2", "--requests", "10", "--repeat", "1", "--keepalive"]);
    let (_, err) = texts(&command.output().unwrap());
    let mut drivers = err.lines().filter(|line| line.starts_with("driver: "));
    let driver = drivers.next().unwrap_or_else(|| panic!("{err}"));
    if !err.contains("1 of 2 workers got a ring") {
        eprintln!("SKIPPED, NOTHING WAS TESTED: this kernel does not count rings as locked memory");
        return;
    }
    assert!(driver.starts_with("driver: epoll and threads; 1 of 2 workers"), "{err}");
    assert_eq!(drivers.next(), None, "{err}");
}

#[test]
fn workers_share_the_connections() {
    let place = place("http-workers");
    let servers = ["--servers", "epoll,uring,fibers,tokio-mt", "--workers", "1,2"];
    let mut command = small(&place, &servers);
    let report = json(command.args(["--no-keepalive", "--repeat", "1"]));
    let of_two = |run: &&Value| run["workers"] == 2;
    for (server, expected) in [("epoll", 0), ("uring", 2), ("fibers", 2), ("tokio-mt", 2)] {
        let runs = named(&report, server);
        assert_eq!(runs.iter().copied().filter(of_two).count(), expected, "{server}");
        assert!(runs.iter().all(|run| run["errors"] == 0 && run["keepalive"] == false));
    }
}

#[test]
fn a_feature_is_left_out_by_name() {
    let place = place("http-ablate");
    let all = "multishot,fixed,bufring,sqpoll";
    let arguments = ["--servers", "uring,fibers", "--ablate", all, "--repeat", "1"];
    let report = json(&mut small(&place, &arguments));
    for label in [
        "uring",
        "uring without multishot",
        "uring without fixed",
        "uring without bufring",
        "uring with sqpoll",
        "fibers",
    ] {
        let runs = named(&report, label);
        assert!(runs.len() == 3 && runs.iter().all(|run| run["errors"] == 0), "{label}");
    }
}

#[test]
fn pages_of_any_size_arrive_complete() {
    let place = place("http-pages");
    for bytes in ["0", "1", "1m"] {
        let arguments = ["--response-bytes", bytes, "--requests", "4", "--connections", "2"];
        let report = json(&mut http(&place, &[&arguments[..], &["--repeat", "1"]].concat()));
        assert!(runs(&report).iter().all(|run| run["errors"] == 0), "{bytes}");
    }
}

#[test]
fn idle_connections_are_served_again() {
    let place = place("http-idle");
    // This number needs more than one loopback address.
    let report = json(&mut http(&place, &["--idle", "10100", "--servers", "epoll,uring,fibers"]));
    assert_eq!(report["benchmark"], "http-idle");
    assert_eq!(runs(&report).len(), 3);
    for run in runs(&report) {
        assert_eq!((&run["workers"], &run["connections"]), (&1.into(), &10100.into()), "{run}");
        // A connection needs at least an entry of a table, and less than a thread.
        let resident = run["resident_kib_each"].as_f64().unwrap();
        assert!(0.02 < resident && resident < 100.0, "{run}");
        for field in ["opened_seconds", "served_again_seconds", "served_again_cpu_seconds"] {
            assert!(run[field].as_f64().unwrap() > 0.0, "{field}: {run}");
        }
    }
    let output = http(&place, &["--idle", "50", "--servers", "fibers,threads"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    assert!(out.contains("50 idle connections") && out.contains("threads"), "{out}");
}

/// A server that runs by itself, as on another machine.
struct Listening {
    child: std::process::Child,
    addr: String,
}

impl Listening {
    fn start(place: &Path, server: &str) -> Listening {
        let arguments = ["--listen", "127.0.0.1:0", "--servers", server];
        let mut child = http(place, &arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let addr = line.split_once("listens at ").and_then(|(_, rest)| rest.split_once(';'));
        Listening { addr: addr.unwrap_or_else(|| panic!("{line}")).0.into(), child }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn requests_may_be_joined_or_split() {
    let place = place("http-pieces");
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for server in SERVERS {
        let listening = Listening::start(&place, server);
        let mut stream = TcpStream::connect(&listening.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&request.repeat(3)).unwrap();
        request.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("200 OK").count(), 4, "{server}");
    }
}

#[test]
fn more_requests_than_provided_buffers_are_answered() {
    let place = place("http-buffers");
    // Each connection fills ten buffers. The server expects 50 connections and has 64 buffers; the
    // kernel serves about twenty connections at a time.
    let request = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(40_000)).into_bytes();
    let listening = Listening::start(&place, "uring");
    let connect = |_| TcpStream::connect(&listening.addr).unwrap();
    let mut streams: Vec<TcpStream> = (0..50).map(connect).collect();
    let signal = |signal: &str| {
        let id = listening.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    };
    for _ in 0..3 {
        signal("-STOP");
        streams.iter_mut().for_each(|stream| stream.write_all(&request).unwrap());
        signal("-CONT");
        for stream in &mut streams {
            let mut answer = Vec::new();
            let body = |answer: &[u8]| {
                let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
                Some(answer.len() - head - 4)
            };
            while body(&answer).is_none_or(|bytes| bytes < 151) {
                let mut buffer = [0; 4096];
                match stream.read(&mut buffer).unwrap() {
                    0 => panic!("the connection has ended"),
                    count => answer.extend_from_slice(&buffer[..count]),
                }
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && body(&answer) == Some(151));
        }
    }
}

#[test]
fn a_table_compares_with_the_bare_ring() {
    let place = place("http-table");
    let output = small(&place, &["--servers", "uring,fibers"]).output().unwrap();
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    // Independent of line breaks.
    let told = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("with the bare ring") && told.contains("with fibers"), "{out}");
    assert!(!out.contains("tokio"));
}

#[test]
fn another_program_is_measured() {
    let place = place("http-command");
    let this = env!("CARGO_BIN_EXE_cringle");
    let command = |server| format!("{this} bench http --servers {server} --listen {{address}} -q");
    let [there, shell] = [
        format!("there={}", command("epoll")),
        // The server is a child of the process that the benchmark starts.
        format!("shell=sh -c '{}; :'", command("uring")),
    ];
    let arguments = ["--servers", "uring", "--keepalive", "--command", &there, "--command", &shell];
    let report = json(&mut small(&place, &arguments));
    for server in ["uring", "there", "shell"] {
        let runs = named(&report, server);
        assert_eq!(runs.len(), 4, "{server}");
        for run in runs {
            assert_eq!((&run["errors"], &run["requests"]), (&0.into(), &300.into()), "{run}");
            assert!(run["cpu_us_per_request"].as_f64().unwrap() > 0.0, "{run}");
            assert!(run["context_switches_per_request"].as_f64().unwrap() > 0.0, "{run}");
        }
    }
    let commands = report["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 2);
    assert!(commands[0]["server"] == "there" && commands[0]["command"].as_str().is_some());
}

#[test]
fn a_program_that_does_not_serve_fails() {
    let place = place("http-command-fails");
    for (command, word) in [
        ("a=/nowhere/program {port}", "/nowhere/program"),
        ("a=sh -c 'echo out of luck {port} >&2; exit 3'", "exit status: 3: out of luck"),
    ] {
        let arguments = ["--servers", "uring", "--command", command];
        let output = small(&place, &arguments).output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains("the server `a` did not start") && err.contains(word), "{err}");
    }
}

#[test]
fn contradictions_are_refused() {
    let place = place("http-refused");
    for (arguments, status, word) in [
        (&["--servers", "apache"][..], 2, "apache"),
        (&["--connections", "0"], 2, "--connections"),
        (&["--workers", "0"], 2, "--workers"),
        (&["--servers", "epoll", "--workers", "2"], 2, "--workers 2"),
        (&["--requests", "0"], 2, "--requests"),
        (&["--requests", "5", "--seconds", "1"], 2, "--seconds"),
        (&["--seconds", "0"], 2, "--seconds"),
        (&["--repeat", "0"], 2, "--repeat"),
        (&["--keepalive", "--no-keepalive"], 2, "--no-keepalive"),
        (&["--response-bytes", "1g"], 2, "--response-bytes"),
        (&["--ablate", "luck"], 2, "possible values"),
        (&["--servers", "fibers", "--ablate", "multishot"], 2, "uring"),
        (&["--idle", "0"], 2, "--idle"),
        (&["--idle", "5", "--connections", "5"], 2, "--connections"),
        (&["--idle", "5", "--workers", "1,2"], 2, "--workers"),
        (&["--command", "nginx"], 2, "NAME="),
        (&["--command", "a=nginx"], 2, "{address}"),
        (&["--command", "uring=nginx {port}"], 2, "the name is in use"),
        (&["--command", "a=b {port}", "--command", "a=c {port}"], 2, "the name is in use"),
        (&["--servers", "epoll", "--command", "a=b {port}", "--workers", "2"], 2, "--workers 2"),
        (&["--listen", "127.0.0.1:0"], 2, "--servers"),
        (&["--listen", "nowhere", "--servers", "fibers"], 2, "nowhere"),
    ] {
        let output = http(&place, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", texts(&output).1);
        assert!(texts(&output).1.contains(word), "{arguments:?}: {}", texts(&output).1);
    }
}

#[test]
fn the_limit_of_open_files_is_named() {
    let place = place("http-limit");
    // Drops the capability of root to raise the limit.
    let script = "ulimit -n 100; exec \"$0\" bench http --connections 3000 --requests 1";
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "sh", "-c", script]);
    let output = command.arg(env!("CARGO_BIN_EXE_cringle")).current_dir(&place).output();
    let Ok(output) = output else { return eprintln!("skipped: there is no setpriv") };
    let (_, err) = texts(&output);
    if err.starts_with("setpriv") {
        return eprintln!("skipped: {err}");
    }
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("3000 connections") && err.contains("ulimit -n"), "{err}");
}

#[test]
fn refused_threads_are_named() {
    let place = tempfile::tempdir().unwrap();
    for server in ["threads", "epoll", "fibers"] {
        for count in (2..10).chain([25]) {
            let Some(mut command) = with_few_threads(place.path(), count) else { return };
            command.args(["bench", "http", "--servers", server, "--connections", "20"]);
            command.args(["--requests", "100", "--repeat", "1", "--keepalive"]);
            // Else a debug build's first line says that fibers have no thread-locals of their own.
            command.env("CRINGLE_THREAD_LOCALS", "shared");
            let Ok(output) = command.output() else {
                return eprintln!("skipped: another user cannot run the command");
            };
            let (_, err) = texts(&output);
            assert!(!err.contains("panicked"), "{server}, {count}: {err}");
            let is_named = ["a thread", "a process"].iter().any(|what| err.contains(what))
                && err.contains("ulimit -u");
            assert!(output.status.success() || is_named, "{server}, {count}: {err}");
        }
    }
}
