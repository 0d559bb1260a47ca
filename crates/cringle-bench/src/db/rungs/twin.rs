//! The twins of `+fibers`, `+batch` and `+registered`: the same engine on the coroutines of the
//! crate `corosensei` and a bare ring, as a program that does nothing else would be written. There
//! is no cancellation, no limit, no fairness and no diagnosis. Beyond the difference between a rung
//! and its twin, a runtime's cost is its own.

use super::{Outcome, memory, moved, outcome, ring_works};
use crate::db::Job;
use crate::db::args::EVICTORS;
use crate::db::engine::{Engine, Eviction, Platform, offset};
use crate::db::tree::PAGE_BYTES;
use crate::meter::{Meter, collect};
use crate::ring;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;

const STACK_BYTES: usize = 64 << 10;

/// Operations are submitted in groups of this size until [`BUSY`] are in flight, so that the disk
/// begins before the turn ends.
const GROUP: usize = 4;
/// The number of operations in flight that keeps a disk busy.
const BUSY: usize = 16;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Style {
    /// Each operation is submitted by a call of its own.
    OneByOne,
    Batched,
    /// Batched, with a registered file and registered memory.
    Registered,
}

pub(super) fn run(job: &Job, style: Style) -> io::Result<Outcome> {
    let mut memory = memory(job);
    let coroutines = job.fibers + EVICTORS;
    let twin = Twin {
        ring: RefCell::new(ring::build(job.fibers + EVICTORS * job.evict_batch)?),
        file: job.store.open()?,
        style,
        ready: RefCell::default(),
        current: Cell::new(0),
        yielders: vec![Cell::new(std::ptr::null()); coroutines],
        in_flight: Cell::new(0),
        queued: Cell::new(0),
        calls: Cell::new(0),
        pages: PhantomData,
    };
    // Saves a descriptor lookup in each call. An old kernel refuses; the ring works without.
    let _ = twin.ring.borrow().submitter().register_ring_fd();
    if style == Style::Registered {
        let iovec = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        let ring = twin.ring.borrow();
        ring.submitter().register_files(&[twin.file.as_raw_fd()]).map_err(not_registered)?;
        // SAFETY: the memory outlives every operation on it: see `run_on`.
        unsafe { ring.submitter().register_buffers(&[iovec]) }.map_err(not_registered)?;
    }
    let eviction = Eviction::ByEvictors { batch: job.evict_batch, evictors: EVICTORS };
    let engine = Engine::new(job, twin, memory.chunks_mut(PAGE_BYTES), eviction)?;
    run_on(job, &engine)
}

/// Returns why `twin+registered` cannot run, if files cannot be registered.
pub(super) fn missing() -> Option<io::Error> {
    let register = || {
        let (ring, null) = (ring::build(1)?, File::open("/dev/null")?);
        ring.submitter().register_files(&[null.as_raw_fd()]).map_err(not_registered)
    };
    register().err()
}

fn not_registered(error: io::Error) -> io::Error {
    let text = format!(
        "io_uring_register fails: {error}; permit it in the container's seccomp profile, raise \
         `ulimit -l`, or choose other --rungs"
    );
    io::Error::new(error.kind(), text)
}

type Body = Coroutine<(), (), (), DefaultStack>;

fn run_on(job: &Job, engine: &Engine<'_, Twin<'_>>) -> io::Result<Outcome> {
    let twin = engine.platform();
    let left = &Cell::new(job.fibers);
    let results: &RefCell<Vec<io::Result<Vec<u64>>>> = &RefCell::default();
    let start = |index: usize| {
        let body = move |yielder: &Yielder<(), ()>, ()| {
            twin.yielders[index].set(yielder);
            // Continues when the clock runs.
            yielder.suspend(());
            let result = if index < job.fibers {
                let result = engine.work();
                left.set(left.get() - 1);
                result
            } else {
                engine.evict_in_background().map(|()| Vec::new())
            };
            results.borrow_mut().push(result);
        };
        let stack = DefaultStack::new(STACK_BYTES)?;
        // SAFETY: what the body borrows outlives the coroutine, which is dropped in this function.
        Ok(unsafe { Coroutine::with_stack_unchecked(stack, body) })
    };
    let coroutines: io::Result<Vec<Body>> = (0..job.fibers + EVICTORS).map(start).collect();
    let mut coroutines = coroutines?;
    let guard = AbortInFlight(twin);
    for (index, coroutine) in coroutines.iter_mut().enumerate() {
        coroutine.resume(());
        twin.ready.borrow_mut().push_back(index);
    }
    let meter = Meter::start();
    twin.run_until(&mut coroutines, |_| left.get() == 0);
    let (usage, calls) = (meter.stop(), twin.calls.get());
    engine.close();
    twin.run_until(&mut coroutines, |coroutines| coroutines.iter().all(Coroutine::done));
    drop(guard);
    drop(coroutines);
    let latencies = collect(results.take());
    outcome(job, engine, usage, latencies, Some(calls))
}

/// Aborts if a panic ends the schedule while the kernel uses the pool's memory.
struct AbortInFlight<'t, 'a>(&'t Twin<'a>);

impl Drop for AbortInFlight<'_, '_> {
    fn drop(&mut self) {
        if self.0.in_flight.get() > 0 {
            std::process::abort();
        }
    }
}

struct Twin<'a> {
    ring: RefCell<IoUring>,
    file: File,
    style: Style,
    /// Coroutines that can continue.
    ready: RefCell<VecDeque<usize>>,
    current: Cell<usize>,
    /// The yielder of each coroutine, which lives as long as its body.
    yielders: Vec<Cell<*const Yielder<(), ()>>>,
    /// Operations without a completion, the queued ones included.
    in_flight: Cell<usize>,
    /// Operations that are not submitted.
    queued: Cell<usize>,
    calls: Cell<u64>,
    pages: PhantomData<&'a mut [u8]>,
}

/// Operations for which a coroutine waits. Lies in its frame; its address is their user data.
struct Waiting {
    coroutine: usize,
    left: Cell<usize>,
    /// The least result, which is a page's size if all succeeded.
    result: Cell<i32>,
}

impl Twin<'_> {
    /// Resumes coroutines and takes completions until `is_done`.
    fn run_until(&self, coroutines: &mut [Body], is_done: impl Fn(&[Body]) -> bool) {
        loop {
            loop {
                let Some(index) = self.ready.borrow_mut().pop_front() else { break };
                self.current.set(index);
                coroutines[index].resume(());
            }
            if is_done(coroutines) {
                return;
            }
            assert!(self.in_flight.get() > 0, "no coroutine can continue");
            self.enter();
        }
    }

    /// Submits what is queued, waits for a completion, and takes all completions.
    fn enter(&self) {
        let mut ring = self.ring.borrow_mut();
        self.calls.set(self.calls.get() + 1);
        self.queued.set(0);
        ring_works(ring.submitter().submit_and_wait(1));
        for entry in ring.completion() {
            // SAFETY: the coroutine is suspended in `perform` until `left` is 0, so that the value
            // in its frame is alive.
            let waiting = unsafe { &*(entry.user_data() as *const Waiting) };
            waiting.result.set(waiting.result.get().min(entry.result()));
            waiting.left.set(waiting.left.get() - 1);
            self.in_flight.set(self.in_flight.get() - 1);
            if waiting.left.get() == 0 {
                self.ready.borrow_mut().push_back(waiting.coroutine);
            }
        }
    }

    /// Performs operations on whole pages. Only the calling coroutine waits.
    ///
    /// # Safety
    ///
    /// The memory of the operations is valid until this call returns.
    unsafe fn perform(
        &self,
        entries: impl ExactSizeIterator<Item = squeue::Entry>,
        page: u32,
    ) -> io::Result<()> {
        let waiting = Waiting {
            coroutine: self.current.get(),
            left: Cell::new(entries.len()),
            result: Cell::new(PAGE_BYTES as i32),
        };
        for entry in entries {
            let entry = entry.user_data(&raw const waiting as u64);
            // SAFETY: the memory is valid until the last completion, by this function's contract,
            // and `waiting` is in a frame that stays until then. A panic of the schedule aborts.
            unsafe { self.ring.borrow_mut().submission().push(&entry) }
                .expect("an entry for each operation");
            self.queued.set(self.queued.get() + 1);
            self.in_flight.set(self.in_flight.get() + 1);
            let submitted = self.in_flight.get() - self.queued.get();
            if self.style == Style::OneByOne || self.queued.get() >= GROUP && submitted < BUSY {
                self.calls.set(self.calls.get() + 1);
                self.queued.set(0);
                // Refused entries stay in the queue until the next call.
                ring_works(self.ring.borrow().submit());
            }
        }
        self.wait();
        moved(waiting.result.get(), page)
    }

    fn is_registered(&self) -> bool {
        self.style == Style::Registered
    }

    fn write_entry(&self, number: u32, page: &[u8]) -> squeue::Entry {
        let (start, bytes) = (page.as_ptr(), PAGE_BYTES as u32);
        let place = offset(number);
        if self.is_registered() {
            let file = types::Fixed(0);
            return opcode::WriteFixed::new(file, start, bytes, 0).offset(place).build();
        }
        opcode::Write::new(types::Fd(self.file.as_raw_fd()), start, bytes).offset(place).build()
    }
}

impl<'a> Platform for Twin<'a> {
    type Page = &'a mut [u8];
    type Token = usize;
    type Cell<T> = RefCell<T>;

    fn read(&self, number: u32, page: &mut &'a mut [u8]) -> io::Result<()> {
        let (start, bytes, place) = (page.as_mut_ptr(), PAGE_BYTES as u32, offset(number));
        let entry = if self.is_registered() {
            opcode::ReadFixed::new(types::Fixed(0), start, bytes, 0).offset(place).build()
        } else {
            let fd = types::Fd(self.file.as_raw_fd());
            opcode::Read::new(fd, start, bytes).offset(place).build()
        };
        // SAFETY: the page is a whole one, and borrowed until the call returns.
        unsafe { self.perform(std::iter::once(entry), number) }
    }

    fn write(&self, pages: &[(u32, &&'a mut [u8])]) -> io::Result<()> {
        let entries = pages.iter().map(|(number, page)| self.write_entry(*number, page));
        // SAFETY: the pages are whole ones, and borrowed until the call returns.
        unsafe { self.perform(entries, pages.first().map_or(0, |(number, _)| *number)) }
    }

    fn token(&self) -> usize {
        self.current.get()
    }

    fn wait(&self) {
        let index = self.current.get();
        // SAFETY: the yielder of the current coroutine lives as long as its body, which this is
        // called from.
        unsafe { (*self.yielders[index].get()).suspend(()) };
    }

    fn wake(&self, token: usize) {
        self.ready.borrow_mut().push_back(token);
    }
}
