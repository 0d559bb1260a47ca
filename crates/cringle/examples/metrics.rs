//! A server of metrics for Prometheus: `GET /metrics` returns the counters of `runtime::stats` in
//! its text format.
//!
//!     cargo run --example metrics -- 127.0.0.1:9464
//!     curl http://127.0.0.1:9464/metrics
//!
//! prints a family for each counter, with a sample for each worker.

use cringle::net::{Server, TcpStream};
use cringle::runtime::{self, Stats, WorkerStats};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::time::Duration;

/// One metric, with a sample for each worker.
struct Family {
    name: &'static str,
    help: &'static str,
    /// Whether it only grows (a counter), or is the present value (a gauge).
    counts: bool,
    number: fn(&WorkerStats) -> u64,
}

macro_rules! families {
    ($($counts:literal $name:literal $field:ident $help:literal;)*) => {
        &[$(Family { name: $name, help: $help, counts: $counts, number: |stats| stats.$field }),*]
    };
}

/// By convention the name of a counter ends in `_total`.
const FAMILIES: &[Family] = families! {
    true "cringle_turns_total" turns "Turns. In each turn every ready fiber runs once.";
    true "cringle_fibers_started_total" started "Fibers that got a stack.";
    true "cringle_fibers_ended_total" ended "Fibers that ended.";
    false "cringle_fibers_ready" ready "Fibers that are ready, or run.";
    false "cringle_fibers_waiting" waiting "Fibers that wait.";
    false "cringle_fibers_unstarted" unstarted "Fibers that no worker has started.";
    true "cringle_enters_total" enters "Calls of the driver into the kernel.";
    false "cringle_operations_in_flight" in_flight "Operations in flight.";
    true "cringle_inline_hits_total" inline_hits "Calls tried without waiting that succeeded.";
    true "cringle_inline_misses_total" inline_misses "Calls tried without waiting that failed.";
    true "cringle_slot_waits_total" room_waits "Waits for room among the operations in flight.";
    true "cringle_steals_total" steals "Unstarted fibers taken from other workers.";
    true "cringle_sleeps_total" sleeps "Sleeps of the worker in the kernel.";
    true "cringle_wakes_total" wakes "Sleeping workers that were woken.";
    true "cringle_messages_total" messages "Messages received from other threads.";
    true "cringle_overflows_total" overflows "Overflows of the completion queue.";
    false "cringle_stacks" stacks "Stacks in use by fibers.";
    false "cringle_stacks_high_water" most_stacks "The most stacks in use at once.";
};

/// Returns the metrics in the text format, version 0.0.4.
pub(crate) fn exposition(stats: &Stats) -> String {
    let mut text = String::new();
    for Family { name, help, counts, number } in FAMILIES {
        let kind = if *counts { "counter" } else { "gauge" };
        head(&mut text, name, help, kind);
        for (worker, stats) in stats.workers.iter().enumerate() {
            let _ = writeln!(text, "{name}{{worker=\"{worker}\"}} {}", number(stats));
        }
    }
    entries(&mut text, stats);
    pools(&mut text, stats);
    text
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends a histogram. Each bucket counts the calls of the buckets below, too.
fn entries(text: &mut String, stats: &Stats) {
    let name = "cringle_entries_per_enter";
    head(text, name, "Entries that a call into the kernel submitted.", "histogram");
    for (worker, stats) in stats.workers.iter().enumerate() {
        let mut calls = 0;
        for (most, more) in stats.entries.buckets() {
            calls += more;
            let labels = format!("worker=\"{worker}\",le=\"{most}\"");
            let _ = writeln!(text, "{name}_bucket{{{labels}}} {calls}");
        }
        let _ = writeln!(text, "{name}_bucket{{worker=\"{worker}\",le=\"+Inf\"}} {calls}");
        let _ = writeln!(text, "{name}_sum{{worker=\"{worker}\"}} {}", stats.entries.sum());
        let _ = writeln!(text, "{name}_count{{worker=\"{worker}\"}} {calls}");
    }
}

fn pools(text: &mut String, stats: &Stats) {
    let pools = [("unblock", stats.unblock_pool), ("call", stats.call_pool)];
    let numbers = [
        ("cringle_pool_queue", "Jobs that wait for a thread.", pools.map(|(_, pool)| pool.queued)),
        ("cringle_pool_threads", "Threads.", pools.map(|(_, pool)| pool.threads)),
        ("cringle_pool_idle", "Threads that wait for a job.", pools.map(|(_, pool)| pool.idle)),
    ];
    for (name, help, values) in numbers {
        head(text, name, help, "gauge");
        for ((pool, _), value) in pools.iter().zip(values) {
            let _ = writeln!(text, "{name}{{pool=\"{pool}\"}} {value}");
        }
    }
}

/// The limit on the bytes of a request, up to the empty line.
const MOST_BYTES: usize = 8192;

/// Answers one request. Prometheus sends one every few seconds, so the connection is not kept open.
pub(crate) fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1024];
        let count = stream.read(&mut part)?;
        if count == 0 || request.len() > MOST_BYTES {
            return Ok(());
        }
        request.extend_from_slice(&part[..count]);
    }
    let (status, body) = match &request[..] {
        line if line.starts_with(b"GET /metrics ") => {
            ("200 OK", exposition(&runtime::stats().expect("a handler runs on a fiber")))
        }
        line if line.starts_with(b"GET ") => ("404 Not Found", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[allow(dead_code, reason = "the tests call the parts")]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9464".into());
    cringle::run(|| {
        let server = Server::bind(address.as_str())?;
        println!("http://{}/metrics", server.local_addr()?);
        server.run(|stream, _peer| answer(stream)).map(drop)
    })
}
