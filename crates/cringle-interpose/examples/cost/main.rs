//! The cost of interposed calls: `cargo run --release -p cringle-interpose --example cost`.
//!
//! It compares, in alternating rounds, std's calls on fibers with the library's own, and starts
//! itself again with `thread` to time a thread's read; `cost_without` times the same read in a
//! program that interposes nothing.

cringle_interpose::install!();

mod thread;

use cringle::runtime::Feature;
use cringle::{Builder, fiber};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::Instant;

const ROUNDS: usize = 15;
const FIBERS: usize = 32;
const READS: usize = 2000;
const TRIPS: usize = 20_000;

fn main() -> io::Result<()> {
    if std::env::args().any(|argument| argument == "thread") {
        return thread::print();
    }
    let mut ratios = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let reads = (reads_by(std_reader)?, reads_by(own_reader)?);
        let trips = (round_trips_of_std()?, round_trips_of_cringle()?);
        ratios[0].push(reads);
        ratios[1].push(trips);
        let in_the_kernel = hand_overs(|| Builder::new().workers(1))?;
        let in_the_process = hand_overs(|| Builder::new().workers(1).without(Feature::Futex))?;
        ratios[2].push((in_the_kernel, in_the_process));
        ratios[3].push((in_the_kernel, hand_overs_of_threads()));
    }
    report("read_at 4 KiB, 32 fibers, ns: std hooked / cringle::fs", &mut ratios[0]);
    report("socket round trip, ns: std hooked / cringle::net", &mut ratios[1]);
    report("mpsc round trip, ns: futexes on the ring / in the process", &mut ratios[2]);
    report("mpsc round trip, ns: fibers / threads", &mut ratios[3]);
    Ok(())
}

/// Prints the medians of both sides and of the ratios.
fn report(what: &str, samples: &mut [(f64, f64)]) {
    let median = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = samples.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (ours, theirs) = (median(&|sample| sample.0), median(&|sample| sample.1));
    let ratio = median(&|sample| sample.0 / sample.1);
    println!("{what}: {ours:.0} / {theirs:.0} = {ratio:.3}");
}

type Reader = Box<dyn Fn(&mut [u8], u64) -> io::Result<()> + Send + Sync>;

fn std_reader() -> io::Result<Reader> {
    let file = std::fs::File::open(std::env::current_exe()?)?;
    Ok(Box::new(move |buf, at| file.read_exact_at(buf, at)))
}

fn own_reader() -> io::Result<Reader> {
    let file = cringle::fs::File::open(std::env::current_exe()?)?;
    Ok(Box::new(move |buf, at| file.read_exact_at(buf, at)))
}

fn reads_by(reader: fn() -> io::Result<Reader>) -> io::Result<f64> {
    Builder::new().workers(1).run(|| {
        let read = reader()?;
        let begun = Instant::now();
        fiber::scope(|s| {
            for number in 0..FIBERS {
                let read = &read;
                s.spawn(move || {
                    let mut page = [0; 4096];
                    for i in 0..READS {
                        let at = (number * 31 + i * 7) % 60;
                        read(&mut page, at as u64 * 4096).expect("the program is longer");
                    }
                });
            }
        });
        Ok(begun.elapsed().as_nanos() as f64 / (FIBERS * READS) as f64)
    })?
}

/// Sends a message back and forth between two fibers of one worker.
macro_rules! round_trips {
    ($name:ident, $net:ident) => {
        fn $name() -> io::Result<f64> {
            Builder::new().workers(1).run(|| {
                let listener = $net::net::TcpListener::bind("127.0.0.1:0")?;
                let mut ours = $net::net::TcpStream::connect(listener.local_addr()?)?;
                let (mut theirs, _) = listener.accept()?;
                ours.set_nodelay(true)?;
                theirs.set_nodelay(true)?;
                fiber::scope(|s| {
                    s.spawn(move || {
                        let mut buf = [0; 64];
                        while theirs.read(&mut buf).expect("the connection stays") > 0 {
                            theirs.write_all(&buf).expect("the connection stays");
                        }
                    });
                    let asker = s.spawn(move || {
                        let mut buf = [1; 64];
                        let begun = Instant::now();
                        for _ in 0..TRIPS {
                            ours.write_all(&buf).expect("the connection stays");
                            ours.read_exact(&mut buf).expect("the connection stays");
                        }
                        begun.elapsed().as_nanos() as f64 / TRIPS as f64
                    });
                    Ok(asker.join().expect("it does not panic"))
                })
            })?
        }
    };
}

round_trips!(round_trips_of_std, std);
round_trips!(round_trips_of_cringle, cringle);

/// Sends a number back and forth through two of std's channels, and returns the time of a trip.
fn hand_over(trips: usize, start: impl FnOnce(Box<dyn FnOnce() + Send>)) -> f64 {
    let (ask, asked) = mpsc::sync_channel(1);
    let (answer, answered) = mpsc::sync_channel(1);
    start(Box::new(move || {
        while let Ok(number) = asked.recv() {
            if answer.send(number).is_err() {
                return;
            }
        }
    }));
    let begun = Instant::now();
    for number in 0..trips {
        ask.send(number).expect("the other side receives");
        assert_eq!(answered.recv(), Ok(number));
    }
    begun.elapsed().as_nanos() as f64 / trips as f64
}

fn hand_overs(builder: fn() -> Builder) -> io::Result<f64> {
    let asker = || hand_over(TRIPS, |body| drop(fiber::spawn(body)));
    builder().run(|| fiber::spawn(asker).join().expect("it does not panic"))
}

fn hand_overs_of_threads() -> f64 {
    hand_over(TRIPS, |body| drop(std::thread::spawn(body)))
}
