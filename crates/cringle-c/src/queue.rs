//! Queues: operations that end one by one, each with a completion of its own.
//!
//! Fibers of a worker, the *runners*, perform the operations of a queue, each one at a time, until
//! none waits. A submission starts a runner, and a runner that takes an operation starts another
//! one while operations wait, up to a limit. A queue of which nothing is under way has none.
//!
//! An operation counts from its acceptance until its completion is polled, and `depth` is the limit
//! of that count, so the memory of a queue is bounded.
//!
//! A runner is started, and ends, under the queue's lock. So an operation is accepted only if a
//! runner will take it, whatever is closed at that time: a runner keeps the engine open until it
//! ends, which is when no operation waits.
//!
//! An operation of a queue is a submission with a number, so `cringle_cancel` finds it at once,
//! without a search. (Refused: a batch that reports each completion. It would save the fibers, but
//! its operations would end together where one is repeated, large, or kept off the ring.)
//!
//! The eventfd of a queue is the library's own, because it is then readable exactly while
//! completions wait. A program that resets an eventfd of its own has to poll until nothing is left,
//! and forgets it.

use crate::abi::{cringle_completion, cringle_op};
use crate::engine::Engine;
use crate::error::{Error, errno_of};
use crate::notify::Event;
use crate::registered::Tables;
use crate::registry::Registry;
use crate::submissions::Pending;
use cringle::fiber;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The most runners of a queue. More stacks would cost more each.
const MAX_RUNNERS: usize = 1000;

/// The queues of an engine.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    all: RwLock<All>,
}

#[derive(Debug, Default)]
struct All {
    queues: Registry<Arc<Queue>>,
    /// The engine is being closed.
    is_closed: bool,
}

/// An operation that was accepted.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) op: cringle_op,
    pub(crate) pending: Pending,
    pub(crate) registered: Arc<Tables>,
}

// SAFETY: the contract of `cringle_queue_submit`: the memory is the library's until the operation
// has ended. The address is passed to the kernel alone.
unsafe impl Send for Queued {}

#[derive(Debug)]
pub(crate) struct Queue {
    depth: usize,
    max_runners: usize,
    state: Mutex<State>,
    /// For pollers: a completion has arrived, or none will.
    arrived: Condvar,
    /// For those who close the queue: no operation is under way.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Queued>,
    completions: VecDeque<cringle_completion>,
    /// The operations that were accepted and have not ended.
    under_way: usize,
    runners: usize,
    /// The threads that wait for a completion.
    pollers: usize,
    is_closed: bool,
    event: Option<Event>,
}

fn unknown(number: i32) -> Error {
    let text = format!("no such queue: {number} is closed, or not a queue of this engine");
    Error::new(libc::EBADF, text)
}

fn closed() -> Error {
    Error::new(libc::EBADF, "the queue is closed, or its engine is")
}

impl Queues {
    /// Adds a queue of this depth, of an engine with this limit of operations in the kernel.
    pub(crate) fn add(&self, depth: u32, in_flight_limit: u32) -> Result<i32, Error> {
        let queue = Arc::new(Queue {
            depth: depth as usize,
            max_runners: (depth.min(in_flight_limit) as usize).min(MAX_RUNNERS),
            state: Mutex::default(),
            arrived: Condvar::new(),
            idle: Condvar::new(),
        });
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if all.is_closed {
            return Err(Error::new(libc::EBADF, "the engine is being closed"));
        }
        all.queues.add(queue).ok_or_else(|| {
            Error::new(libc::ENOSPC, "65536 queues of the engine are open: close some")
        })
    }

    pub(crate) fn get(&self, number: i32) -> Result<Arc<Queue>, Error> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.queues.get(number).cloned().ok_or_else(|| unknown(number))
    }

    /// Removes a queue. Fails if another caller has removed it.
    pub(crate) fn remove(&self, number: i32) -> Result<Arc<Queue>, Error> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let queue = all.queues.get(number).cloned().ok_or_else(|| unknown(number))?;
        all.queues.remove(number);
        Ok(queue)
    }

    /// Closes all queues: they refuse further operations, and no queue is added.
    pub(crate) fn close(&self) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.is_closed = true;
        all.queues.values().for_each(|queue| queue.close());
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts the first of the operations, as many as there is room for, and returns their number.
    /// Passes the index and the number of each to `number` before one of them starts.
    pub(crate) fn submit(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        ops: &[cringle_op],
        mut number: impl FnMut(usize, u64),
    ) -> Result<usize, Error> {
        let registered = engine.registered.tables();
        let mut state = self.state();
        if state.is_closed {
            return Err(closed());
        }
        let room = self.depth - state.under_way - state.completions.len();
        let ops = &ops[..ops.len().min(room)];
        if ops.is_empty() {
            return Ok(0);
        }
        self.start_runner(&mut state, engine)?;
        for (at, &op) in ops.iter().enumerate() {
            let pending = match engine.accept() {
                Ok(pending) => pending,
                Err(e) if at == 0 => return Err(e),
                Err(_) => return Ok(at),
            };
            number(at, pending.number());
            state.under_way += 1;
            state.waiting.push_back(Queued { op, pending, registered: Arc::clone(&registered) });
        }
        Ok(ops.len())
    }

    /// Starts a runner, unless there are enough. It waits for the lock that its starter holds.
    fn start_runner(
        self: &Arc<Self>,
        state: &mut State,
        engine: &Arc<Engine>,
    ) -> Result<(), Error> {
        if state.runners < self.max_runners {
            let (queue, owner) = (Arc::clone(self), Arc::clone(engine));
            engine.io.spawn(move || queue.run(&owner))?;
            state.runners += 1;
        }
        Ok(())
    }

    /// Performs operations, on a fiber, until none waits.
    fn run(self: &Arc<Self>, engine: &Arc<Engine>) {
        let mut ended = None;
        while let Some(queued) = self.next(engine, ended) {
            if ended.is_some() {
                // The queues of a worker take turns, also if no operation suspends the fiber.
                fiber::yield_now();
            }
            ended = Some(engine.perform_queued(queued));
        }
    }

    /// Adds the completion of a runner's operation, and returns its next one. `None` ends the
    /// runner.
    fn next(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        ended: Option<cringle_completion>,
    ) -> Option<Queued> {
        let mut state = self.state();
        if let Some(completion) = ended {
            self.complete(&mut state, completion);
        }
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.runners -= 1;
        } else if !state.waiting.is_empty() {
            // If the engine is being closed, those that run perform the rest.
            let _ = self.start_runner(&mut state, engine);
        }
        next
    }

    fn complete(&self, state: &mut State, completion: cringle_completion) {
        state.under_way -= 1;
        state.completions.push_back(completion);
        if state.completions.len() == 1 {
            state.event.iter().for_each(Event::set);
        }
        if state.pollers > 0 {
            self.arrived.notify_one();
        }
        if state.is_closed && state.under_way == 0 {
            self.arrived.notify_all();
            self.idle.notify_all();
        }
    }

    /// Waits for a completion, for at most `limit` if there is one, and passes up to `room` of them
    /// to `store`. Returns their number.
    ///
    /// # Errors
    ///
    /// `EBADF` if the queue is closed and no operation is under way.
    pub(crate) fn poll(
        &self,
        room: usize,
        limit: Option<Duration>,
        mut store: impl FnMut(usize, cringle_completion),
    ) -> Result<usize, Error> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = self.state();
        while state.completions.is_empty() {
            if state.is_closed && state.under_way == 0 {
                return Err(closed());
            }
            let left = until.map_or(Duration::MAX, |until| until - Instant::now().min(until));
            if left.is_zero() {
                return Ok(0);
            }
            state.pollers += 1;
            state =
                self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.pollers -= 1;
        }
        let count = room.min(state.completions.len());
        state.completions.drain(..count).enumerate().for_each(|(at, one)| store(at, one));
        if state.completions.is_empty() {
            state.event.iter().for_each(Event::clear);
        }
        Ok(count)
    }

    /// Returns a descriptor that is readable while there are completions.
    pub(crate) fn descriptor(&self) -> Result<c_int, Error> {
        let mut state = self.state();
        if state.is_closed {
            return Err(closed());
        }
        if let Some(event) = &state.event {
            return Ok(event.fd());
        }
        let event = Event::new().map_err(|e| {
            let text = format!(
                "the eventfd of the queue: {e}; close descriptors, or raise RLIMIT_NOFILE \
                 (`ulimit -n`)"
            );
            Error::new(errno_of(&e), text)
        })?;
        if !state.completions.is_empty() {
            event.set();
        }
        Ok(state.event.insert(event).fd())
    }

    /// Refuses further operations. Pollers get the completions of those under way.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        if state.under_way == 0 {
            self.arrived.notify_all();
        }
    }

    /// Waits, after `close`, until no operation is under way, and closes the descriptor.
    pub(crate) fn wait_for_end(&self) {
        let waiting = self.idle.wait_while(self.state(), |state| state.under_way > 0);
        waiting.unwrap_or_else(PoisonError::into_inner).event = None;
    }
}
