//! Many jobs at once, with a check that a waiting job leaves its worker to the others.
//!
//! | variable | value |
//! |---|---|
//! | `CRINGLE_CROWD` | the number of jobs, 50 if unset |
//! | `CRINGLE_CROWD_WORKERS` | the number of workers, 1 if unset |
//! | `CRINGLE_CROWD_ON` | `fibers`, or `threads`: the same jobs on OS threads, as an oracle |
//! | `CRINGLE_CROWD_LIMIT` | the seconds after which a crowd that hardly computes counts as hanging, 240 if unset |
//! | `CRINGLE_DRIVER` | the library's own: `uring` or `epoll` |

use crate::WAIT;
use cringle::fiber;
use cringle::runtime::{ThreadLocals, Threads};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two ticks.
const TICK: Duration = Duration::from_millis(2);
/// A crowd that takes longer hangs, unless it computes: a thousand TLS connections take a busy
/// machine many minutes.
const LIVENESS_LIMIT_S: usize = 240;
/// The part of a processor, in percent, that a crowd which hangs does not use. A ticker uses 1 %.
const COMPUTES_PERCENT: u32 = 5;

/// The number of jobs for a server that accepts this many connections.
pub fn at_most(limit: usize) -> usize {
    number("CRINGLE_CROWD", 50).min(limit)
}

/// Whether jobs run on fibers, as opposed to threads.
pub fn on_fibers() -> bool {
    match std::env::var("CRINGLE_CROWD_ON").as_deref() {
        Err(_) | Ok("fibers") => true,
        Ok("threads") => false,
        Ok(other) => panic!("CRINGLE_CROWD_ON is {other}: it can be fibers or threads"),
    }
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable} is {text}: it must be a number"))
    })
}

/// Counts ticks during the waits of jobs.
pub struct Waits {
    /// The ticks of each worker, or of all threads.
    ticks: Vec<AtomicU64>,
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
    waits: AtomicUsize,
    free: AtomicUsize,
    done: AtomicBool,
}

impl Waits {
    fn new(workers: usize) -> Waits {
        Waits {
            ticks: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            waiting: AtomicUsize::new(0),
            most_waiting: AtomicUsize::new(0),
            waits: AtomicUsize::new(0),
            free: AtomicUsize::new(0),
            done: AtomicBool::new(false),
        }
    }

    fn here(&self) -> &AtomicU64 {
        &self.ticks[cringle::runtime::worker().unwrap_or(0)]
    }

    /// Calls a function that waits for [`WAIT`], and counts whether the worker's ticker ran
    /// meanwhile. A short wait does not count: the server answered before the job asked it to.
    pub fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        let before = self.here().load(Relaxed);
        self.most_waiting.fetch_max(self.waiting.fetch_add(1, Relaxed) + 1, Relaxed);
        let start = Instant::now();
        let result = wait();
        self.waiting.fetch_sub(1, Relaxed);
        if start.elapsed() < WAIT / 2 {
            return result;
        }
        self.waits.fetch_add(1, Relaxed);
        self.free.fetch_add(usize::from(self.here().load(Relaxed) > before), Relaxed);
        result
    }

    fn tick(&self, sleep: impl Fn(Duration)) {
        while !self.done.load(Relaxed) {
            sleep(TICK);
            self.here().fetch_add(1, Relaxed);
        }
    }
}

/// Runs `jobs` jobs at once, each with its number, and panics if one of them does.
///
/// Most waits must have seen a tick of their worker: if jobs blocked it, none would. (On a machine
/// that is stopped for as long as a wait, a job may see none.)
pub fn crowd<F>(name: &'static str, jobs: usize, job: F)
where
    F: Fn(usize, &Waits) + Send + Sync + 'static,
{
    raise_limit();
    wait_for(name, move || {
        let job = Arc::new(job);
        let start = Instant::now();
        let workers = number("CRINGLE_CROWD_WORKERS", 1);
        let waits = if on_fibers() {
            let builder = cringle::Builder::new().workers(workers);
            let crowd = move || (fibers(jobs, workers, &job), cringle::runtime::driver());
            let ((waits, failures), driver) = builder.run(crowd).unwrap();
            let driver = format!("{driver:?}");
            let driver = driver.split(['(', ' ']).next().unwrap_or_default();
            let on = format!("{jobs} fibers, {workers} workers, {driver}");
            report(name, &on, &waits, start.elapsed(), failures);
            waits
        } else {
            let (waits, failures) = threads(jobs, &job);
            report(name, &format!("{jobs} threads"), &waits, start.elapsed(), failures);
            waits
        };
        let (waits, free) = (waits.waits.load(Relaxed), waits.free.load(Relaxed));
        assert!(waits > 0, "{name}: no job waited");
        assert!(free * 2 >= waits, "{name}: the ticker ran during {free} of {waits} waits");
    });
}

/// Runs `f` on a thread, and ends the process with a dump if it hangs.
fn wait_for(name: &str, f: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let runner = thread::spawn(move || {
        f();
        sender.send(()).unwrap();
    });
    let limit = Duration::from_secs(number("CRINGLE_CROWD_LIMIT", LIVENESS_LIMIT_S) as u64);
    loop {
        let before = processor_time();
        match receiver.recv_timeout(limit) {
            Ok(()) => return runner.join().unwrap(),
            Err(RecvTimeoutError::Disconnected) => {
                return runner.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
            }
            Err(RecvTimeoutError::Timeout) => {
                let computed = processor_time() - before;
                if computed > limit * COMPUTES_PERCENT / 100 {
                    continue;
                }
                cringle::runtime::dump_all().iter().for_each(|dump| eprintln!("{dump}"));
                eprintln!("{name}: it hangs: in {limit:?} it has computed for {computed:?}");
                std::process::abort();
            }
        }
    }
}

/// The processor time of this process.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes `time`, which outlives it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

type Outcome = (Arc<Waits>, Vec<String>);

fn fibers<F>(jobs: usize, workers: usize, job: &Arc<F>) -> Outcome
where
    F: Fn(usize, &Waits) + Send + Sync + 'static,
{
    assert_eq!(cringle::runtime::thread_locals(), Some(ThreadLocals::Private));
    let waits = Arc::new(Waits::new(workers));
    let spawned = |worker: usize, run: Box<dyn FnOnce() + Send>| {
        fiber::Builder::new().worker(worker).spawn(run).unwrap()
    };
    let tickers: Vec<_> = (0..workers)
        .map(|worker| {
            let waits = Arc::clone(&waits);
            spawned(
                worker,
                Box::new(move || waits.tick(|time| cringle::time::sleep(time).unwrap())),
            )
        })
        .collect();
    let running: Vec<_> = (0..jobs)
        .map(|index| {
            let (waits, job) = (Arc::clone(&waits), Arc::clone(job));
            spawned(index % workers, Box::new(move || job(index, &waits)))
        })
        .collect();
    let failures = running.into_iter().filter_map(|handle| handle.join().err());
    let failures = failures.map(|payload| message(&*payload)).collect();
    waits.done.store(true, Relaxed);
    tickers.into_iter().for_each(|ticker| ticker.join().unwrap());
    (waits, failures)
}

fn threads<F>(jobs: usize, job: &Arc<F>) -> Outcome
where
    F: Fn(usize, &Waits) + Send + Sync + 'static,
{
    let waits = Arc::new(Waits::new(1));
    let ticker = {
        let waits = Arc::clone(&waits);
        thread::spawn(move || waits.tick(thread::sleep))
    };
    let running: Vec<_> = (0..jobs)
        .map(|index| {
            let (waits, job) = (Arc::clone(&waits), Arc::clone(job));
            thread::spawn(move || catch_unwind(AssertUnwindSafe(|| job(index, &waits))))
        })
        .collect();
    let failures = running.into_iter().filter_map(|handle| handle.join().unwrap().err());
    let failures = failures.map(|payload| message(&*payload)).collect();
    waits.done.store(true, Relaxed);
    ticker.join().unwrap();
    (waits, failures)
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without text".to_owned())
}

fn report(name: &str, on: &str, waits: &Waits, took: Duration, failures: Vec<String>) {
    let (free, all) = (waits.free.load(Relaxed), waits.waits.load(Relaxed));
    let ticks: u64 = waits.ticks.iter().map(|ticks| ticks.load(Relaxed)).sum();
    println!(
        "{name}: {on}: {:.2} s, at most {} waiting at once, the ticker ran during {free} of {all} \
         waits, {ticks} ticks",
        took.as_secs_f64(),
        waits.most_waiting.load(Relaxed),
    );
    let count = failures.len();
    assert!(failures.is_empty(), "{name}: {count} jobs failed, the first: {}", failures[0]);
}

/// Calls `f` in a runtime whose threads are fibers, or where jobs run on threads on a thread. It
/// counts as hanging after the limit of a crowd.
pub fn with_threads_as_fibers(name: &'static str, f: impl FnOnce() + Send + 'static) {
    in_runtime(name, Threads::Fibers, f);
}

/// The same with this choice of threads.
pub fn in_runtime(name: &'static str, threads: Threads, f: impl FnOnce() + Send + 'static) {
    raise_limit();
    let runner = move || {
        if !on_fibers() {
            return f();
        }
        let workers = number("CRINGLE_CROWD_WORKERS", 1);
        let builder = cringle::Builder::new().workers(workers).threads(threads);
        builder.run(f).unwrap();
    };
    wait_for(name, runner);
}

/// Raises the limit of descriptors to what this user may have: a crowd has several for each job.
fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write `limit`, which outlives them.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
