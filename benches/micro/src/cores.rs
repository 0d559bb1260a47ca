//! What a second worker is worth when the load is uneven.
//!
//! - *Skewed*: 50 connections that the first worker has accepted; each request computes 200 µs.
//! - *Mixed*: a fiber that computes 50 ms of every 100 ms, beside 50 connections whose requests
//!   compute nothing: the latency that 99 of 100 requests do not exceed, and 999 of 1000. (Those
//!   that wait for 50 ms are few, because each connection waits for its answer.) The limit is one
//!   worker beside a thread that computes: there only the kernel's scheduler delays requests.
//!
//! The clients are fibers of a runtime of their own, with one worker, on the same machine.

use crate::report::{Contest, Report};
use cringle::net::{Server, TcpStream};
use cringle::runtime::{self, Balance, ThreadLocals};
use cringle::{Builder, fiber};
use std::hint::spin_loop;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CONNECTIONS: usize = 50;
const RUN: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_micros(200);
const COMPUTES: Duration = Duration::from_millis(50);

pub(crate) fn run(rounds: usize) -> Vec<Report> {
    let names = ["cringle: one worker", "cringle: two, fixed", "cringle: two, moving"];
    let skewed = Contest::new("skewed: time per request of 200 µs, 50 connections of one worker")
        .side(names[0], || skewed(1, Balance::Fixed))
        .side(names[1], || skewed(2, Balance::Fixed))
        .side(names[2], || skewed(2, Balance::Moving))
        .run(rounds)
        .ratio(names[1], &names[..1], None)
        .ratio(names[2], &names[..1], None);
    let limit = "cringle: one, beside a thread";
    let names = ["tokio: two workers", "cringle: two, fixed", "cringle: two, moving", limit];
    let titles = [
        ("mixed: latency of 99 % of the requests beside a fiber that computes", 0.99, Some(1.0)),
        ("mixed: latency of 99.9 % of the requests beside a fiber that computes", 0.999, None),
    ];
    let mixed = titles.map(|(title, part, bar)| {
        Contest::new(title)
            .side(names[0], || percentile(mixed_on_tokio(), part))
            .side(names[1], || percentile(mixed(Balance::Fixed), part))
            .side(names[2], || percentile(mixed(Balance::Moving), part))
            .side(limit, || percentile(mixed_beside_thread(), part))
            .run(rounds)
            .ratio(names[1], &names[..1], None)
            .ratio(names[2], &names[..1], bar)
            .ratio(names[2], &names[3..], None)
    });
    [skewed].into_iter().chain(mixed).collect()
}

fn compute(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        spin_loop();
    }
}

/// Runs a server and its clients. Returns what the clients have measured.
fn serve(
    workers: usize,
    balance: Balance,
    request: Duration,
    beside: impl Fn(&AtomicBool) + Sync,
) -> Vec<f64> {
    let (over, latencies) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    // Both sides have thread-locals of the fibers' own, so that only the balance differs.
    let builder = Builder::new().workers(workers).thread_locals(ThreadLocals::Private);
    let run = builder.balance(balance).run(|| {
        let server = Server::bind("127.0.0.1:0").expect("a free port");
        let (addr, stopper) = (server.local_addr().expect("an address"), server.stopper());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                *latencies.lock().expect("no panic") = clients(addr);
                over.store(true, Ordering::SeqCst);
                stopper.stop();
            });
            fiber::scope(|s| {
                s.spawn(|| beside(&over));
                let served = server.run(|mut stream, _| {
                    stream.write_all(&[runtime::worker().expect("on a worker") as u8])?;
                    let mut byte = [0];
                    while stream.read(&mut byte)? == 1 {
                        compute(request);
                        stream.write_all(&byte)?;
                    }
                    Ok(())
                });
                served.expect("the server works");
            });
        });
    });
    run.expect("fibers can have thread-locals of their own here");
    latencies.into_inner().expect("no panic")
}

/// Opens the connections, all on the first worker, and returns the latencies of their requests, in
/// nanoseconds.
fn clients(addr: SocketAddr) -> Vec<f64> {
    let latencies = Mutex::new(Vec::new());
    let run = Builder::new().workers(1).run(|| {
        let connect = || loop {
            let mut stream = TcpStream::connect(addr).expect("a connection");
            let mut worker = [0];
            stream.read_exact(&mut worker).expect("the number of a worker");
            if worker == [0] {
                return stream;
            }
        };
        let streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect()).collect();
        let end = Instant::now() + RUN;
        fiber::scope(|s| {
            for mut stream in streams {
                let latencies = &latencies;
                s.spawn_local(move || {
                    let mut own = Vec::new();
                    while Instant::now() < end {
                        let begin = Instant::now();
                        stream.write_all(&[7]).expect("a request");
                        stream.read_exact(&mut [0]).expect("an answer");
                        own.push(begin.elapsed().as_nanos() as f64);
                    }
                    latencies.lock().expect("no panic").extend(own);
                });
            }
        });
    });
    run.expect("a runtime starts");
    latencies.into_inner().expect("no panic")
}

fn skewed(workers: usize, balance: Balance) -> f64 {
    let latencies = serve(workers, balance, REQUEST, |_| ());
    RUN.as_nanos() as f64 / latencies.len() as f64
}

/// The latency that this part of the requests does not exceed.
fn percentile(mut latencies: Vec<f64>, part: f64) -> f64 {
    latencies.sort_by(f64::total_cmp);
    latencies[(latencies.len() as f64 * part) as usize]
}

fn mixed(balance: Balance) -> Vec<f64> {
    let computes = |over: &AtomicBool| {
        while !over.load(Ordering::SeqCst) {
            compute(COMPUTES);
            fiber::sleep(COMPUTES);
        }
    };
    serve(2, balance, Duration::ZERO, computes)
}

fn mixed_beside_thread() -> Vec<f64> {
    let computes = |over: &AtomicBool| {
        fiber::unblock(|| {
            while !over.load(Ordering::SeqCst) {
                compute(COMPUTES);
                std::thread::sleep(COMPUTES);
            }
        });
    };
    serve(1, Balance::Fixed, Duration::ZERO, computes)
}

fn mixed_on_tokio() -> Vec<f64> {
    let (send_addr, addr) = mpsc::channel();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        send_addr.send(listener.local_addr().expect("an address")).expect("the receiver waits");
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                let mut byte = [0];
                stream.write_all(&byte).await.expect("a client");
                while let Ok(1) = stream.read(&mut byte).await {
                    stream.write_all(&byte).await.expect("a client");
                }
            });
        }
    });
    runtime.spawn(async {
        loop {
            compute(COMPUTES);
            tokio::time::sleep(COMPUTES).await;
        }
    });
    let latencies = clients(addr.recv().expect("an address"));
    runtime.shutdown_background();
    latencies
}
