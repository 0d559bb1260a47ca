//! A cached file sent to a TCP connection, through a buffer as `io::copy` does and without one; and
//! bytes in memory sent by `write` and by `send_zc`.
//!
//! The ring splices on a kernel thread, twice for each pipe of bytes. `sendfile` blocks a thread
//! until the peer has read, and cannot be cancelled; it is included to show the cost of a buffer.
//! The figures are the CPU time of both sides of the connection, including the kernel's threads.

use crate::report::{Contest, Report};
use common::clock::{Meter, Usage};
use common::file::Scratch;
use cringle::fs::File;
use cringle::net::TcpStream;
use cringle::ring::{self, opcode, types::Fd};
use cringle::{fiber, io};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;

const SIZES: [(&str, u64); 3] = [
    ("16 KiB of a cached file sent: CPU", 16 << 10),
    ("1 MiB of a cached file sent: CPU", 1 << 20),
    ("64 MiB of a cached file sent: CPU", 64 << 20),
];
/// Bytes that each side sends in a round.
const TOTAL: u64 = 128 << 20;
/// Limits the time of a round with small files.
const MOST_FILES: u64 = 1000;
const PIPES: [(&str, usize); 2] =
    [("ring: splices, a pipe of 64 KiB", 64 << 10), ("ring: splices, a pipe of 1 MiB", 1 << 20)];

pub(crate) fn run(rounds: usize, directory: &Path) -> Vec<Report> {
    let files = SIZES.map(|(title, bytes)| of_size(title, bytes, rounds, directory));
    let memory = [16 << 10, 128 << 10, 1 << 20].map(|bytes| without_copy(bytes, rounds));
    files.into_iter().chain(memory).collect()
}

fn of_size(title: &'static str, bytes: u64, rounds: usize, directory: &Path) -> Report {
    let scratch = Scratch::new(directory, bytes).expect("a file can be created");
    let path = scratch.path();
    let (buffer, pool) = ("cringle: io::copy, through a buffer", "sendfile on a thread of a pool");
    let mut contest = Contest::new(title)
        .side(buffer, || {
            on_connection(bytes, path, &|file, peer| {
                io::copy(&mut &*file, &mut &*peer).expect("a file can be sent")
            })
        })
        .side(pool, || on_connection(bytes, path, &|file, peer| send(file, peer, bytes)));
    for (name, pipe) in PIPES {
        let spliced = move |file: &File, peer: &TcpStream| splice(file, peer, bytes, pipe);
        contest = contest.side(name, move || on_connection(bytes, path, &spliced));
    }
    let report = contest.run(rounds).ratio(pool, &[buffer], None);
    PIPES.into_iter().fold(report, |report, (name, _)| report.ratio(name, &[buffer], None))
}

/// Returns the nanoseconds of CPU time per file, of both sides of the connection.
fn on_connection(bytes: u64, path: &Path, send: &dyn Fn(&File, &TcpStream) -> u64) -> f64 {
    let files = (TOTAL / bytes).min(MOST_FILES);
    let usage = to_peer(bytes, files, &|stream| {
        let file = File::open(path).expect("the file exists");
        send(&file, stream)
    });
    (usage.user_seconds + usage.system_seconds) * 1e9 / files as f64
}

/// Sends `bytes` bytes `times` times, and returns the usage of both sides of the connection.
fn to_peer(bytes: u64, times: u64, send: &dyn Fn(&TcpStream) -> u64) -> Usage {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback works");
    let addr = listener.local_addr().expect("a bound socket has an address");
    let peer = thread::spawn(move || receive(&listener));
    let meter = Meter::start();
    crate::on_one_worker(|| {
        let stream = TcpStream::connect(addr).expect("the peer listens");
        (0..times).for_each(|_| assert_eq!(send(&stream), bytes));
    });
    assert_eq!(peer.join().expect("no panic"), times * bytes);
    meter.stop()
}

/// Sends bytes in memory, with a copy and without. The loopback copies them when they arrive.
fn without_copy(bytes: usize, rounds: usize) -> Report {
    let title = match bytes >> 10 {
        16 => "16 KiB of memory sent: CPU",
        128 => "128 KiB of memory sent: CPU",
        _ => "1 MiB of memory sent: CPU",
    };
    let buf = vec![7; bytes];
    let times = TOTAL / bytes as u64;
    let cpu = |send: &dyn Fn(&TcpStream) -> u64| {
        let usage = to_peer(bytes as u64, times, send);
        (usage.user_seconds + usage.system_seconds) * 1e9 / times as f64
    };
    let (write, zc) = ("cringle: write", "cringle: send_zc");
    let whole = |send: &dyn Fn(&[u8]) -> std::io::Result<usize>| {
        let mut rest = &buf[..];
        while !rest.is_empty() {
            rest = &rest[send(rest).expect("a connection")..];
        }
        bytes as u64
    };
    let contest = Contest::new(title)
        .side(write, || cpu(&|stream| whole(&|rest| (&mut &*stream).write(rest))))
        .side(zc, || cpu(&|stream| whole(&|rest| stream.send_zc(rest))));
    contest.run(rounds).ratio(zc, &[write], None)
}

fn receive(listener: &TcpListener) -> u64 {
    let (mut stream, _) = listener.accept().expect("the client connects");
    let (mut buf, mut done) = (vec![0; 256 << 10], 0);
    loop {
        match stream.read(&mut buf).expect("a connection") {
            0 => return done,
            count => done += count as u64,
        }
    }
}

fn send(file: &File, peer: &TcpStream, bytes: u64) -> u64 {
    let (from, to) = (file.as_raw_fd(), peer.as_raw_fd());
    let call = |done: u64| {
        let mut offset = done as libc::off_t;
        // SAFETY: the pointer is to a local that lives for the call; the callers hold the files.
        fiber::unblock(move || unsafe { libc::sendfile(to, from, &raw mut offset, 1 << 20) })
    };
    let mut done = 0;
    while done < bytes {
        let count = call(done);
        assert!(count > 0, "{}", std::io::Error::last_os_error());
        done += count as u64;
    }
    done
}

fn splice(file: &File, peer: &TcpStream, bytes: u64, pipe: usize) -> u64 {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: no pointers are passed.
    let capacity = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, pipe) };
    assert!(capacity >= pipe as i32, "a pipe of {pipe} bytes");
    let fd = |file: &dyn AsRawFd| Fd(file.as_raw_fd());
    let mut done = 0;
    while done < bytes {
        let from = done as i64;
        let filled = perform(opcode::Splice::new(fd(file), from, fd(&writer), -1, pipe as u32));
        let mut left = filled;
        while left > 0 {
            let some = opcode::Splice::new(fd(&reader), -1, fd(peer), -1, left as u32);
            left -= perform(some);
        }
        done += filled as u64;
    }
    done
}

fn perform(splice: opcode::Splice) -> usize {
    // SAFETY: no pointers are passed, the op has one completion, and the callers hold the files.
    unsafe { ring::submit(&splice.build()) }.expect("a splice")
}
