//! Threads for what may block: they are started when needed, at most so many, and end when idle for
//! a while or when the runtime does.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// An idle thread ends after this.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Pool {
    name: &'static str,
    max_threads: usize,
    /// Where its threads may run: a pinned worker that starts one would hand down its own core.
    cpus: Box<[usize]>,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    running: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(name: &'static str, max_threads: usize, cpus: &[usize]) -> Pool {
        Pool { name, max_threads, cpus: cpus.into(), state: Mutex::default(), work: Condvar::new() }
    }

    /// Has a thread of the pool run the job. Fails only when there is no thread and none can be
    /// made; the job is then given back.
    pub(crate) fn run(self: &std::sync::Arc<Self>, job: Job) -> Result<(), (io::Error, Job)> {
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

    fn start_thread(self: &std::sync::Arc<Self>, state: &mut State) -> io::Result<()> {
        let pool = std::sync::Arc::clone(self);
        let builder = std::thread::Builder::new().name(self.name.into());
        let thread = builder.spawn(move || pool.work())?;
        state.running += 1;
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread);
        Ok(())
    }

    fn work(&self) {
        // Best effort: on the core it inherited, it is slower and no less right.
        let _ = crate::sys::set_affinity(&self.cpus);
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
                let waited = self.work.wait_timeout(state, KEEP_ALIVE);
                let timed_out;
                (state, timed_out) = waited.expect("no code panics under this lock");
                state.idle -= 1;
                if timed_out.timed_out() && state.jobs.is_empty() {
                    break;
                }
            }
        }
        state.running -= 1;
    }

    /// Jobs that wait for a thread, threads, and those among them that wait for a job.
    pub(crate) fn census(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (state.jobs.len(), state.running, state.idle)
    }

    /// Ends all threads and waits for them. The jobs are done: their fibers have ended.
    pub(crate) fn close(&self) {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }
}
