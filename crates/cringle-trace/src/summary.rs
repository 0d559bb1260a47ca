//! What a trace comes to.

use super::depth::Depth;
use super::reader::{Content, Event, Kind, Name, read};
use cringle_report::failure::Failure;
use hdrhistogram::Histogram;
use std::collections::HashMap;
use std::path::Path;

/// The longest waits of each kind that are told.
const LONGEST: usize = 3;
/// Nanoseconds that a histogram tells apart from less, at most: an hour.
const MOST_NS: u64 = 3_600_000_000_000;

/// See the module.
pub(super) struct Summary {
    pub(super) program: String,
    pub(super) workers: Vec<Worker>,
    pub(super) fibers: Vec<Fibers>,
    pub(super) waits: Vec<Waits>,
    pub(super) ops: Vec<Ops>,
    /// Calls that were answered at once, without the driver; and that were tried so in vain.
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

    /// Operations under way over time, of all workers.
    pub(super) fn depths(&self, parts: usize) -> Vec<f64> {
        let mut sums = vec![0.0; parts];
        for worker in &self.workers {
            let means = worker.depth.means(parts, self.start, self.end);
            sums.iter_mut().zip(means).for_each(|(sum, mean)| *sum += mean);
        }
        sums
    }
}

pub(super) struct Worker {
    pub(super) name: String,
    /// Times that the kernel was entered, asleep afterwards or not.
    pub(super) enters: u64,
    pub(super) running_ns: u64,
    pub(super) kernel_ns: u64,
    pub(super) asleep_ns: u64,
    pub(super) depth: Depth,
    slices: Vec<Slice>,
    /// Fibers that are suspended, or were not seen yet.
    suspended: HashMap<u64, Suspended>,
}

#[derive(Clone, Copy)]
struct Slice {
    name: Name,
    fiber: Option<u64>,
    /// Of the kernel.
    enters: bool,
    ns: u64,
    /// What of it the kernel took, called from within.
    kernel_ns: u64,
}

#[derive(Clone, Copy)]
struct Suspended {
    ns: u64,
    name: Name,
    waits_for: Name,
}

/// All fibers of one name.
#[derive(Default)]
pub(super) struct Fibers {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) runs: u64,
    pub(super) running_ns: u64,
    pub(super) ready_ns: u64,
    pub(super) waiting_ns: u64,
}

/// All waits for one thing.
#[derive(Default)]
pub(super) struct Waits {
    pub(super) kind: String,
    pub(super) count: u64,
    pub(super) ns: u64,
    /// The longest first.
    pub(super) longest: Vec<Wait>,
}

#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) ns: u64,
    pub(super) name: String,
    pub(super) fiber: u64,
    pub(super) worker: usize,
    /// When it began, since the start of the trace.
    pub(super) at: u64,
    /// It had not ended when the trace did.
    pub(super) open: bool,
}

/// All operations of one kind, from the queueing to the completion.
pub(super) struct Ops {
    pub(super) name: String,
    pub(super) ns: Histogram<u64>,
}

#[derive(Clone, Copy)]
struct OneWait {
    ns: u64,
    name: Name,
    fiber: u64,
    worker: usize,
    at: u64,
    open: bool,
}

#[derive(Default)]
struct WaitSum {
    count: u64,
    ns: u64,
    longest: Vec<OneWait>,
}

impl WaitSum {
    fn add(&mut self, wait: OneWait) {
        self.count += 1;
        self.ns += wait.ns;
        let place = self.longest.partition_point(|other| other.ns >= wait.ns);
        if place < LONGEST {
            self.longest.insert(place, wait);
            self.longest.truncate(LONGEST);
        }
    }
}

#[derive(Default)]
struct Sums {
    workers: Vec<Worker>,
    fibers: HashMap<Name, Fibers>,
    waits: HashMap<Name, WaitSum>,
    ops: HashMap<Name, Histogram<u64>>,
    /// Operations under way: which, and since when.
    under_way: HashMap<u64, (Name, u64)>,
    inline: [u64; 2],
    events: u64,
    lost: u64,
    start: Option<u64>,
    end: u64,
}

pub(super) fn number(worker: &str) -> &str {
    worker.strip_prefix("worker ").unwrap_or(worker)
}

/// Workers as they are numbered, and not as they began: 2 before 10.
pub(super) fn rank(worker: &str) -> (usize, &str) {
    (worker.len(), worker)
}

pub(super) fn of(path: &Path) -> Result<Summary, Failure> {
    let mut sums = Sums::default();
    let found = read(path, |event, found| sums.add(event, found))?;
    Ok(sums.finish(&found))
}

impl Sums {
    fn add(&mut self, event: &Event, found: &Content) {
        // Workers come in turn, a while of each: the first event is not the earliest.
        self.start = Some(self.start.map_or(event.ns, |start| start.min(event.ns)));
        while self.workers.len() < found.workers.len() {
            self.workers.push(Worker::new(found.workers[self.workers.len()].clone()));
        }
        self.end = self.end.max(event.ns);
        match event.kind {
            Kind::Begin => self.begin(event),
            Kind::End => self.end_slice(event, found),
            Kind::Instant => self.instant(event, found),
            Kind::Counter => {
                let depth = &mut self.workers[event.worker].depth;
                depth.set(event.ns, event.counter);
                return;
            }
            Kind::Other => {}
        }
        self.events += 1;
    }

    fn begin(&mut self, event: &Event) {
        let worker = &mut self.workers[event.worker];
        let Event { name, fiber, enters, ns, .. } = *event;
        worker.slices.push(Slice { name, fiber, enters, ns, kernel_ns: 0 });
        let Some(number) = event.fiber else { return };
        let sum = self.fibers.entry(event.name).or_default();
        sum.runs += 1;
        let ready = event.ready_ns.unwrap_or(0);
        sum.ready_ns += ready;
        let Some(since) = worker.suspended.remove(&number) else {
            sum.count += 1;
            return;
        };
        let waited = event.ns.saturating_sub(since.ns).saturating_sub(ready);
        sum.waiting_ns += waited;
        let wait = OneWait {
            ns: waited,
            name: event.name,
            fiber: number,
            worker: event.worker,
            at: since.ns,
            open: false,
        };
        self.waits.entry(since.waits_for).or_default().add(wait);
    }

    fn end_slice(&mut self, event: &Event, found: &Content) {
        let worker = &mut self.workers[event.worker];
        let Some(slice) = worker.slices.pop() else { return };
        let took = event.ns.saturating_sub(slice.ns);
        if let Some(number) = slice.fiber {
            let running = took.saturating_sub(slice.kernel_ns);
            worker.running_ns += running;
            self.fibers.entry(slice.name).or_default().running_ns += running;
            match event.waits_for {
                Some(what) if found.names.get(what) == "end" => {}
                Some(waits_for) => {
                    let name = slice.name;
                    worker.suspended.insert(number, Suspended { ns: event.ns, name, waits_for });
                }
                None => {}
            }
        } else if slice.enters {
            worker.enters += 1;
            match found.names.get(slice.name) {
                "wait" => worker.asleep_ns += took,
                _ => worker.kernel_ns += took,
            }
            // While a fiber pushed more than there was room for.
            if let Some(around) = worker.slices.last_mut() {
                around.kernel_ns += took;
            }
        } else if let Some(around) = worker.slices.last_mut() {
            around.kernel_ns += slice.kernel_ns;
        }
    }

    fn instant(&mut self, event: &Event, found: &Content) {
        self.lost += event.lost;
        match found.names.get(event.name) {
            "inline" => self.inline[0] += 1,
            "inline, in vain" => self.inline[1] += 1,
            _ => {}
        }
        if event.lost > 0 {
            // What was known of them may be another's by now.
            self.workers[event.worker].suspended.clear();
        }
        // Flows of operations have neither of the two high bits.
        let is_op = |flow: u64| flow != 0 && flow >> 61 == 0;
        if is_op(event.flow) {
            self.under_way.insert(event.flow, (event.name, event.ns));
        }
        if is_op(event.last_flow)
            && let Some((name, since)) = self.under_way.remove(&event.last_flow)
        {
            let took = event.ns.saturating_sub(since).clamp(1, MOST_NS);
            let histogram = self.ops.entry(name).or_insert_with(histogram);
            histogram.record(took).expect("it is within the bounds");
        }
    }

    fn finish(mut self, found: &Content) -> Summary {
        let start = self.start.unwrap_or(0);
        let end = self.end.max(start);
        let mut unended = Vec::new();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            worker.depth.advance(end);
            for (&fiber, since) in &worker.suspended {
                let ns = end.saturating_sub(since.ns);
                let wait = OneWait {
                    ns,
                    name: since.name,
                    fiber,
                    worker: index,
                    at: since.ns,
                    open: true,
                };
                unended.push((since.waits_for, wait));
            }
        }
        for (kind, wait) in unended {
            self.waits.entry(kind).or_default().add(wait);
        }
        let name = |name: Name| found.names.get(name).to_owned();
        let told = |wait: &OneWait| Wait {
            ns: wait.ns,
            name: name(wait.name),
            fiber: wait.fiber,
            worker: wait.worker,
            at: wait.at.saturating_sub(start),
            open: wait.open,
        };
        let fibers = self.fibers.into_iter();
        let mut fibers: Vec<_> =
            fibers.map(|(number, sum)| Fibers { name: name(number), ..sum }).collect();
        fibers.sort_by_key(|fiber| (std::cmp::Reverse(fiber.running_ns), fiber.name.clone()));
        let waits = self.waits.into_iter().map(|(kind, sum)| Waits {
            kind: name(kind),
            count: sum.count,
            ns: sum.ns,
            longest: sum.longest.iter().map(told).collect(),
        });
        let mut waits: Vec<_> = waits.collect();
        waits.sort_by_key(|wait| (std::cmp::Reverse(wait.ns), wait.kind.clone()));
        let ops = self.ops.into_iter();
        let mut ops: Vec<_> = ops.map(|(number, ns)| Ops { name: name(number), ns }).collect();
        ops.sort_by_key(|op| (std::cmp::Reverse(op.ns.len()), op.name.clone()));
        Summary {
            program: found.program.clone(),
            workers: self.workers,
            fibers,
            waits,
            ops,
            inline: self.inline,
            events: self.events,
            lost: self.lost,
            cut_short: found.cut_short,
            start,
            end,
        }
    }
}

impl Worker {
    /// As its name says, which is not its place among those that the file tells of.
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
            depth: Depth::new(),
            slices: Vec::new(),
            suspended: HashMap::new(),
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_NS, 2).expect("the bounds are in order")
}
