//! A pool of threads for calls that may block.
//!
//! A thread starts when a job finds none idle, up to a limit. It ends when it has been idle for
//! [`KEEP_ALIVE`], or with the pool.

use cringle_sys::lock::{Condvar, Mutex, MutexGuard};
use cringle_sys::{LibraryThread, library_thread, plainly};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub type Job = Box<dyn FnOnce() + Send>;

/// How long a thread stays idle before it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// See the module.
pub struct Pool {
    name: &'static str,
    max_threads: usize,
    /// The cores that its threads may use: a thread would inherit the one core of a pinned worker.
    cpus: Box<[usize]>,
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    running: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub fn new(name: &'static str, max_threads: usize, cpus: &[usize]) -> Pool {
        Pool { name, max_threads, cpus: cpus.into(), state: Mutex::default(), work: Condvar::new() }
    }

    /// Runs a job on a thread of the pool. Fails only if the pool has no thread and cannot start
    /// one; the error returns the job.
    pub fn run(self: &Arc<Self>, job: Job) -> Result<(), (io::Error, Job)> {
        let mut state = self.lock();
        debug_assert!(!state.closed, "a job for a pool that has ended");
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            self.work.notify_one();
        } else if state.running < self.max_threads
            && let Err(e) = self.start_thread(&mut state)
            && state.running == 0
        {
            let job = state.jobs.pop_back().expect("just pushed");
            return Err((e, job));
        }
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, state: &mut PoolState) -> io::Result<()> {
        let pool = Arc::clone(self);
        let builder = library_thread(self.name.into());
        let thread = plainly(|| builder.spawn(move || pool.work()))?;
        state.running += 1;
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread);
        Ok(())
    }

    fn work(&self) {
        // A failure is ignored: on the core that the thread inherited it is slower, but correct.
        let _ = cringle_sys::set_affinity(&self.cpus);
        let _thread = LibraryThread::begin();
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.closed {
                break;
            } else {
                state.idle += 1;
                let timed_out;
                (state, timed_out) = self.work.wait_timeout(state, KEEP_ALIVE);
                state.idle -= 1;
                if timed_out && state.jobs.is_empty() {
                    break;
                }
            }
        }
        state.running -= 1;
    }

    /// The number of jobs that wait for a thread, of threads, and of idle threads.
    pub fn load(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (state.jobs.len(), state.running, state.idle)
    }

    /// Ends all threads and waits for them. Jobs that are still queued run first; none arrives any
    /// more, because the fibers that queue them have ended.
    pub fn close(&self) {
        let threads = {
            let mut state = self.lock();
            state.closed = true;
            self.work.notify_all();
            std::mem::take(&mut state.threads)
        };
        for thread in threads {
            thread.join().expect("jobs catch their panics");
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }
}
