//! The totals of a trace: time of workers and fibers, waits, latencies of operations, queue depth.
//!
//! Sums saturate: a damaged file may have any number.

use super::depth::Depth;
use super::reader::{Content, Event, Fiber, Kind, Name, read};
use cringle::trace::wire::{event_name, is_op_flow};
use cringle_report::failure::Failure;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;

/// The number of longest waits reported of each kind.
const LONGEST: usize = 3;
/// The largest latency that a histogram resolves, in nanoseconds: an hour.
const MOST_NS: u64 = 3_600_000_000_000;

/// The totals of a trace.
pub(super) struct Summary {
    pub(super) program: String,
    pub(super) workers: Vec<Worker>,
    pub(super) fibers: Vec<Fibers>,
    /// The number of fibers of the library, which `fibers` and `waits` lack.
    pub(super) hidden: u64,
    pub(super) waits: Vec<Waits>,
    pub(super) ops: Vec<Ops>,
    /// Calls that completed inline, without the driver; and calls that were tried inline and then
    /// queued.
    pub(super) inline: [u64; 2],
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) cut_short: bool,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Summary {
    pub(super) fn ns(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the mean number of operations in flight on all workers in each of `parts` equal
    /// parts.
    pub(super) fn depths(&self, parts: usize) -> Vec<f64> {
        let mut totals = vec![0.0; parts];
        for worker in &self.workers {
            let means = worker.depth.means(parts, self.start, self.end);
            totals.iter_mut().zip(means).for_each(|(sum, mean)| *sum += mean);
        }
        totals
    }
}

pub(super) struct Worker {
    pub(super) name: String,
    /// The number of times that the worker entered the kernel, to sleep or not.
    pub(super) enters: u64,
    pub(super) running_ns: u64,
    pub(super) kernel_ns: u64,
    pub(super) asleep_ns: u64,
    /// The number of fibers that came from other workers.
    pub(super) moves: u64,
    pub(super) depth: Depth,
    /// The slices that are open, the innermost last.
    slices: Vec<Slice>,
}

/// A slice that has begun and not ended.
#[derive(Clone, Copy)]
struct Slice {
    begin: Event,
    /// The time that nested slices spent in the kernel.
    kernel_ns: u64,
}

#[derive(Clone, Copy)]
struct Suspended {
    /// The worker on which it ran.
    worker: usize,
    ns: u64,
    name: Name,
    waits_for: Name,
}

/// The totals of all fibers of one name.
#[derive(Default, Serialize)]
pub(super) struct Fibers {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) runs: u64,
    pub(super) running_ns: u64,
    pub(super) ready_ns: u64,
    pub(super) waiting_ns: u64,
}

/// The totals of all waits with the same cause.
#[derive(Default, Serialize)]
pub(super) struct Waits {
    #[serde(rename = "for")]
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) ns: u64,
    /// The longest first.
    pub(super) longest: Vec<Wait>,
}

/// One wait of one fiber, whose name is a text, or its number in the file.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Wait<N = String> {
    pub(super) ns: u64,
    #[serde(rename = "fiber")]
    pub(super) name: N,
    #[serde(flatten)]
    pub(super) fiber: Fiber,
    /// The worker on which it began.
    pub(super) worker: usize,
    /// The start of the wait, since the start of the trace.
    #[serde(rename = "at_ns")]
    pub(super) at: u64,
    /// Whether the wait ended before the trace.
    pub(super) ended: bool,
}

/// The latencies of all operations of one kind, from queueing to completion.
pub(super) struct Ops {
    pub(super) name: String,
    pub(super) ns: Histogram<u64>,
}

#[derive(Default)]
struct WaitTotal {
    count: u64,
    ns: u64,
    /// Their starts are in the trace's time.
    longest: Vec<Wait<Name>>,
}

impl WaitTotal {
    fn add(&mut self, wait: Wait<Name>) {
        self.count += 1;
        self.ns = self.ns.saturating_add(wait.ns);
        let place = self.longest.partition_point(|other| other.ns >= wait.ns);
        if place < LONGEST {
            self.longest.insert(place, wait);
            self.longest.truncate(LONGEST);
        }
    }
}

#[derive(Default)]
struct Totals {
    /// Fibers of the library count, too.
    all: bool,
    hidden: u64,
    workers: Vec<Worker>,
    suspended: HashMap<Fiber, Suspended>,
    fibers: HashMap<Name, Fibers>,
    waits: HashMap<Name, WaitTotal>,
    ops: HashMap<Name, Histogram<u64>>,
    /// Operations in flight by flow, with the time at which they were queued.
    in_flight: HashMap<u64, (Name, u64)>,
    inline: [u64; 2],
    events: u64,
    lost: u64,
    start: Option<u64>,
    end: u64,
}

/// Returns the number in a worker's name.
pub(super) fn number(worker: &str) -> &str {
    worker.strip_prefix("worker ").unwrap_or(worker)
}

/// A sort key that orders workers by number: `worker 2` before `worker 10`.
pub(super) fn rank(worker: &str) -> (usize, &str) {
    (worker.len(), worker)
}

/// Reads and summarises the trace at `path`. `all`: with the fibers of the library itself.
pub(super) fn of(path: &Path, all: bool) -> Result<Summary, Failure> {
    let mut totals = Totals { all, ..Totals::default() };
    let content = read(path, |event, content| totals.add(event, content))?;
    Ok(totals.finish(&content))
}

impl Totals {
    fn add(&mut self, event: &Event, content: &Content) {
        // The file holds a batch of each worker in turn, so the first event need not be the
        // earliest.
        self.start = Some(self.start.map_or(event.ns, |start| start.min(event.ns)));
        while self.workers.len() < content.workers.len() {
            self.workers.push(Worker::new(content.workers[self.workers.len()].clone()));
        }
        self.end = self.end.max(event.ns);
        match event.kind {
            Kind::Begin => self.begin(event, content),
            Kind::End => self.end_slice(event, content),
            Kind::Instant => self.instant(event, content),
            Kind::Counter => {
                let depth = &mut self.workers[event.worker].depth;
                depth.set(event.ns, event.counter);
                return;
            }
            Kind::Other => {}
        }
        self.events += 1;
    }

    fn is_hidden(&self, name: Name, content: &Content) -> bool {
        !self.all && content.names.is_of_library(name)
    }

    fn begin(&mut self, event: &Event, content: &Content) {
        self.workers[event.worker].slices.push(Slice { begin: *event, kernel_ns: 0 });
        let Some(fiber) = event.fiber else { return };
        if self.is_hidden(event.name, content) {
            self.hidden += u64::from(self.suspended.remove(&fiber).is_none());
            return;
        }
        let sum = self.fibers.entry(event.name).or_default();
        sum.runs += 1;
        let ready = event.ready_ns.unwrap_or(0);
        sum.ready_ns = sum.ready_ns.saturating_add(ready);
        let Some(since) = self.suspended.remove(&fiber) else {
            sum.count += 1;
            return;
        };
        let waited = event.ns.saturating_sub(since.ns).saturating_sub(ready);
        sum.waiting_ns = sum.waiting_ns.saturating_add(waited);
        self.add_wait(fiber, Suspended { name: event.name, ..since }, waited, true);
    }

    fn add_wait(&mut self, fiber: Fiber, since: Suspended, ns: u64, ended: bool) {
        let Suspended { worker, ns: at, name, waits_for } = since;
        let wait = Wait { ns, name, fiber, worker, at, ended };
        self.waits.entry(waits_for).or_default().add(wait);
    }

    fn end_slice(&mut self, event: &Event, content: &Content) {
        let worker = &mut self.workers[event.worker];
        let Some(Slice { begin, kernel_ns }) = worker.slices.pop() else { return };
        let took = event.ns.saturating_sub(begin.ns);
        if let Some(fiber) = begin.fiber {
            let running = took.saturating_sub(kernel_ns);
            worker.running_ns = worker.running_ns.saturating_add(running);
            if !self.is_hidden(begin.name, content) {
                let sum = self.fibers.entry(begin.name).or_default();
                sum.running_ns = sum.running_ns.saturating_add(running);
            }
            match event.waits_for {
                Some(what) if content.names.get(what) == event_name::END => {}
                Some(waits_for) => {
                    let (name, worker) = (begin.name, event.worker);
                    let suspended = Suspended { worker, ns: event.ns, name, waits_for };
                    self.suspended.insert(fiber, suspended);
                }
                None => {}
            }
        } else if begin.enters {
            worker.enters += 1;
            let sum = match content.names.get(begin.name) {
                event_name::WAIT => &mut worker.asleep_ns,
                _ => &mut worker.kernel_ns,
            };
            *sum = sum.saturating_add(took);
            // A fiber that finds the submission queue full enters the kernel within its own slice.
            if let Some(around) = worker.slices.last_mut() {
                around.kernel_ns = around.kernel_ns.saturating_add(took);
            }
        } else if let Some(around) = worker.slices.last_mut() {
            around.kernel_ns = around.kernel_ns.saturating_add(kernel_ns);
        }
    }

    fn instant(&mut self, event: &Event, content: &Content) {
        self.lost = self.lost.saturating_add(event.lost);
        match content.names.get(event.name) {
            event_name::INLINE => self.inline[0] += 1,
            event_name::INLINE_MISS => self.inline[1] += 1,
            event_name::ARRIVE => self.workers[event.worker].moves += 1,
            _ => {}
        }
        if event.lost > 0 {
            // A lost event may have ended a fiber and reused its number.
            self.suspended.retain(|_, suspended| suspended.worker != event.worker);
        }
        if is_op_flow(event.flow) {
            self.in_flight.insert(event.flow, (event.name, event.ns));
        }
        if is_op_flow(event.last_flow)
            && let Some((name, since)) = self.in_flight.remove(&event.last_flow)
        {
            let took = event.ns.saturating_sub(since).clamp(1, MOST_NS);
            let histogram = self.ops.entry(name).or_insert_with(histogram);
            histogram.record(took).expect("clamped to the histogram's bounds");
        }
    }

    fn finish(mut self, content: &Content) -> Summary {
        let start = self.start.unwrap_or(0);
        let end = self.end.max(start);
        self.workers.iter_mut().for_each(|worker| worker.depth.advance(end));
        for (fiber, since) in std::mem::take(&mut self.suspended) {
            if !self.is_hidden(since.name, content) {
                self.add_wait(fiber, since, end.saturating_sub(since.ns), false);
            }
        }
        let name = |name: Name| content.names.get(name).to_owned();
        let resolved = |wait: &Wait<Name>| {
            let Wait { ns, fiber, worker, ended, .. } = *wait;
            Wait {
                ns,
                name: name(wait.name),
                fiber,
                worker,
                at: wait.at.saturating_sub(start),
                ended,
            }
        };
        let fibers = self.fibers.into_iter();
        let mut fibers: Vec<_> =
            fibers.map(|(number, sum)| Fibers { name: name(number), ..sum }).collect();
        fibers.sort_by_key(|fiber| (std::cmp::Reverse(fiber.running_ns), fiber.name.clone()));
        let waits = self.waits.into_iter().map(|(kind, sum)| Waits {
            kind: name(kind),
            count: sum.count,
            ns: sum.ns,
            longest: sum.longest.iter().map(resolved).collect(),
        });
        let mut waits: Vec<_> = waits.collect();
        waits.sort_by_key(|wait| (std::cmp::Reverse(wait.ns), wait.kind.clone()));
        let ops = self.ops.into_iter();
        let mut ops: Vec<_> = ops.map(|(number, ns)| Ops { name: name(number), ns }).collect();
        ops.sort_by_key(|op| (std::cmp::Reverse(op.ns.len()), op.name.clone()));
        Summary {
            program: content.program.clone(),
            workers: self.workers,
            fibers,
            hidden: self.hidden,
            waits,
            ops,
            inline: self.inline,
            events: self.events,
            lost: self.lost,
            cut_short: content.cut_short,
            start,
            end,
        }
    }
}

impl Worker {
    /// Returns the worker's number, which is not its index in the file.
    pub(super) fn number(&self) -> &str {
        number(&self.name)
    }

    fn new(name: String) -> Worker {
        Worker {
            name,
            enters: 0,
            running_ns: 0,
            kernel_ns: 0,
            asleep_ns: 0,
            moves: 0,
            depth: Depth::new(),
            slices: Vec::new(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_NS, 2).expect("the bounds are constants in order")
}
