//! Measures how long a dump of very many fibers takes while they work.
//!
//!     cargo run --release --example crowd -- 100000
//!
//! The fibers of two workers receive values from channels. One fiber sends values to all of them
//! without a pause, while `main` takes dumps.

use cringle::runtime::{self, Dump};
use cringle::{Builder, fiber, sync::mpsc};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DUMPS: usize = 11;
/// The sender yields after this many values, so that the receivers run.
const GROUP: usize = 256;

/// The result of a measurement.
struct Measured {
    /// The median time to take a dump.
    dump_time: Duration,
    /// The median time to format a dump as text.
    text_time: Duration,
    last_dump: Dump,
    /// The mean number of values that the fibers received during a dump.
    received: u64,
}

/// Starts the fibers, and takes dumps while they receive values.
fn run(fibers: usize) -> io::Result<Measured> {
    Builder::new().workers(2).run(|| {
        let received = Arc::new(AtomicU64::new(0));
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for n in 0..fibers {
            let (sender, receiver) = mpsc::channel::<u64>();
            let received = Arc::clone(&received);
            let receive_all = move || {
                while receiver.recv().is_ok() {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            };
            let fiber = fiber::Builder::new().name(format!("receiver {n}"));
            receivers.push(fiber.worker(n % 2).stack_size(64 << 10).spawn(receive_all)?);
            senders.push(sender);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let send_until_stopped = {
            let stop = Arc::clone(&stop);
            move || {
                for group in senders.chunks(GROUP).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    group.iter().for_each(|sender| sender.send(1).expect("the receiver lives"));
                    fiber::yield_now();
                }
            }
        };
        let sender = fiber::Builder::new().name("sender".into());
        let sender = sender.spawn_local(send_until_stopped)?;
        while received.load(Ordering::Relaxed) < fibers as u64 {
            fiber::yield_now();
        }
        let measured = measure(&received);
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("the sender does not panic");
        for receiver in receivers {
            receiver.join().expect("no receiver panics");
        }
        Ok(measured)
    })?
}

fn measure(received: &AtomicU64) -> Measured {
    let before = received.load(Ordering::Relaxed);
    let (mut dump_times, mut text_times, mut last_dump) = (Vec::new(), Vec::new(), None);
    for _ in 0..DUMPS {
        let start = Instant::now();
        let dump = runtime::dump().expect("this is a fiber of a runtime");
        dump_times.push(start.elapsed());
        let start = Instant::now();
        std::hint::black_box(dump.to_string());
        text_times.push(start.elapsed());
        last_dump = Some(dump);
        fiber::yield_now();
    }
    Measured {
        dump_time: median(dump_times),
        text_time: median(text_times),
        last_dump: last_dump.expect("DUMPS is not 0"),
        received: (received.load(Ordering::Relaxed) - before) / DUMPS as u64,
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() -> io::Result<()> {
    let fibers = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse());
    let fibers = fibers.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let Measured { dump_time, text_time, last_dump, received } = run(fibers)?;
    println!("{} fibers on 2 workers, {DUMPS} dumps", last_dump.fibers.len());
    println!("workers that did not answer the last dump: {}", last_dump.silent.len());
    println!("median time of a dump: {dump_time:.1?}, of its text: {text_time:.1?}");
    println!("mean number of values that the fibers received during a dump: {received}");
    Ok(())
}
