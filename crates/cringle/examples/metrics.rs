//! Serves the counters of `runtime::stats` to Prometheus, in its text format at `GET /metrics`.
//!
//!     cargo run --example metrics -- 127.0.0.1:9464
//!     curl http://127.0.0.1:9464/metrics
//!
//! prints a metric for each counter, with a sample for each worker.

use cringle::net::{Server, TcpStream};
use cringle::runtime::{self, Stats, WorkerStats};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::time::Duration;

/// A metric with one sample for each worker.
struct Metric {
    name: &'static str,
    help: &'static str,
    /// `counter`: the value only grows. `gauge`: it is the current value.
    kind: &'static str,
    value: fn(&WorkerStats) -> u64,
}

macro_rules! metrics {
    ($($kind:ident $name:literal $field:ident $help:literal;)*) => {
        &[$(Metric {
            name: $name,
            help: $help,
            kind: stringify!($kind),
            value: |stats| stats.$field,
        }),*]
    };
}

/// By convention, the name of a counter ends with `_total`.
const METRICS: &[Metric] = metrics! {
    counter "cringle_turns_total" turns "Turns, in each of which every ready fiber ran once.";
    counter "cringle_fibers_started_total" started "Fibers that have started.";
    counter "cringle_fibers_ended_total" ended "Fibers that have ended.";
    gauge "cringle_fibers_ready" ready "Fibers that are ready or running.";
    gauge "cringle_fibers_waiting" waiting "Fibers that are waiting.";
    gauge "cringle_fibers_unstarted" unstarted "Fibers that have not started yet.";
    counter "cringle_enters_total" enters "System calls of the driver.";
    gauge "cringle_operations_in_flight" in_flight "Operations in flight.";
    counter "cringle_inline_hits_total" inline_hits "Calls that completed without suspending.";
    counter "cringle_inline_misses_total" inline_misses "Calls that had to suspend after an inline attempt.";
    counter "cringle_mapped_copies_total" mapped_copies "Reads of mapped files that were copied from memory.";
    counter "cringle_slot_waits_total" room_waits "Waits for room among the operations in flight.";
    counter "cringle_steals_total" steals "Unstarted fibers taken from other workers.";
    counter "cringle_moves_total" moves "Started fibers that came from other workers.";
    counter "cringle_sleeps_total" sleeps "Times that the worker went to sleep.";
    counter "cringle_wakes_total" wakes "Other workers that this worker woke.";
    counter "cringle_messages_total" messages "Messages received from other threads.";
    counter "cringle_overflows_total" overflows "Overflows of the completion queue.";
    gauge "cringle_stacks" stacks "Stacks in use.";
    gauge "cringle_stacks_high_water" most_stacks "Largest number of stacks in use.";
};

/// Returns all metrics in the text format, version 0.0.4.
fn exposition(stats: &Stats) -> String {
    let mut text = String::new();
    for Metric { name, help, kind, value } in METRICS {
        head(&mut text, name, help, kind);
        for (worker, stats) in stats.workers.iter().enumerate() {
            let _ = writeln!(text, "{name}{{worker=\"{worker}\"}} {}", value(stats));
        }
    }
    entries(&mut text, stats);
    pools(&mut text, stats);
    text
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Adds a histogram. Each of its buckets includes the smaller ones.
fn entries(text: &mut String, stats: &Stats) {
    let name = "cringle_entries_per_enter";
    head(text, name, "Entries submitted by one system call.", "histogram");
    for (worker, stats) in stats.workers.iter().enumerate() {
        let mut calls = 0;
        for (bound, count) in stats.entries.buckets() {
            calls += count;
            let labels = format!("worker=\"{worker}\",le=\"{bound}\"");
            let _ = writeln!(text, "{name}_bucket{{{labels}}} {calls}");
        }
        let _ = writeln!(text, "{name}_bucket{{worker=\"{worker}\",le=\"+Inf\"}} {calls}");
        let _ = writeln!(text, "{name}_sum{{worker=\"{worker}\"}} {}", stats.entries.sum());
        let _ = writeln!(text, "{name}_count{{worker=\"{worker}\"}} {calls}");
    }
}

/// Adds the gauges of the thread pools.
fn pools(text: &mut String, stats: &Stats) {
    let pools =
        [("unblock", stats.unblock_pool), ("call", stats.call_pool), ("map", stats.map_pool)];
    let gauges = [
        ("cringle_pool_queue", "Jobs waiting for a thread.", pools.map(|(_, pool)| pool.queued)),
        ("cringle_pool_threads", "Threads of the pool.", pools.map(|(_, pool)| pool.threads)),
        ("cringle_pool_idle", "Threads waiting for a job.", pools.map(|(_, pool)| pool.idle)),
    ];
    for (name, help, values) in gauges {
        head(text, name, help, "gauge");
        for ((pool, _), value) in pools.iter().zip(values) {
            let _ = writeln!(text, "{name}{{pool=\"{pool}\"}} {value}");
        }
    }
}

/// The longest request that is read.
const MAX_REQUEST_BYTES: usize = 8192;

/// Answers one request and closes the connection: Prometheus connects again for each scrape.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1024];
        let count = stream.read(&mut part)?;
        if count == 0 || request.len() > MAX_REQUEST_BYTES {
            return Ok(());
        }
        request.extend_from_slice(&part[..count]);
    }
    let (status, body) = match &request[..] {
        request if request.starts_with(b"GET /metrics ") => {
            ("200 OK", exposition(&runtime::stats().expect("a handler runs on a fiber")))
        }
        request if request.starts_with(b"GET ") => ("404 Not Found", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9464".into());
    cringle::run(|| {
        let server = Server::bind(address.as_str())?;
        eprintln!("serving http://{}/metrics", server.local_addr()?);
        server.run(|stream, _peer| answer(stream)).map(drop)
    })
}
