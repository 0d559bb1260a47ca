//! Measures the time of a dump of many fibers, while they work.
//!
//!     cargo run --release --example crowd -- 100000
//!
//! The fibers run on two workers and receive values, which another fiber sends without a pause.

use cringle::runtime::{self, Dump};
use cringle::{Builder, fiber, sync::mpsc};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DUMPS: usize = 11;

/// The measurements.
pub(crate) struct Found {
    /// The median time of a dump.
    pub(crate) dump: Duration,
    /// The median time of its conversion to text.
    pub(crate) text: Duration,
    /// The last dump.
    pub(crate) last: Dump,
    /// The values that fibers received during a dump, on average.
    pub(crate) taken: u64,
}

pub(crate) fn run(fibers: usize) -> io::Result<Found> {
    Builder::new().workers(2).run(|| {
        let (taken, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut senders = Vec::new();
        let mut handles = Vec::new();
        for n in 0..fibers {
            let (sender, receiver) = mpsc::channel::<u64>();
            let taken = Arc::clone(&taken);
            let take = move || {
                while receiver.recv().is_ok() {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            };
            let place = fiber::Builder::new().name(format!("taker {n}")).worker(n % 2);
            handles.push(place.stack_size(64 << 10).spawn(take)?);
            senders.push(sender);
        }
        // Values are sent in groups, so that the inboxes of the workers stay short.
        let hand_around = {
            let stop = Arc::clone(&stop);
            move || {
                for group in senders.chunks(256).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    group.iter().for_each(|sender| sender.send(1).expect("it takes values"));
                    fiber::yield_now();
                }
            }
        };
        let hands = fiber::Builder::new().name("hands around".into()).spawn_local(hand_around)?;
        while taken.load(Ordering::Relaxed) < fibers as u64 {
            fiber::yield_now();
        }
        let before = taken.load(Ordering::Relaxed);
        let (mut dumps, mut texts, mut last) = (Vec::new(), Vec::new(), None);
        for _ in 0..DUMPS {
            let start = Instant::now();
            let dump = runtime::dump().expect("there is a runtime here");
            dumps.push(start.elapsed());
            let start = Instant::now();
            std::hint::black_box(dump.to_string());
            texts.push(start.elapsed());
            last = Some(dump);
            fiber::yield_now();
        }
        let taken = (taken.load(Ordering::Relaxed) - before) / DUMPS as u64;
        stop.store(true, Ordering::Relaxed);
        hands.join().expect("it does not panic");
        handles.into_iter().for_each(|handle| handle.join().expect("it does not panic"));
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let last = last.expect("there were some");
        Ok(Found { dump: median(dumps), text: median(texts), last, taken })
    })?
}

#[allow(dead_code, reason = "the tests call `run`")]
fn main() -> io::Result<()> {
    let fibers = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse());
    let fibers = fibers.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let Found { dump, text, last, taken } = run(fibers)?;
    println!("a dump of {} fibers on 2 workers, median of {DUMPS}: {dump:.1?}", last.fibers.len());
    println!("its text: {text:.1?}; values that fibers received meanwhile, on average: {taken}");
    Ok(())
}
