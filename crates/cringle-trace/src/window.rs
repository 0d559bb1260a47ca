//! A part of a trace, for a picture: who did what when.

use super::reader::{Content, Event, Kind, Name, read};
use super::summary::{number, rank};
use cringle_report::failure::Failure;
use std::collections::HashMap;
use std::path::Path;

/// Operations whose lives are kept.
const MOST_OPS: usize = 4096;

/// From when to when, in nanoseconds of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FiberState {
    Running,
    Ready,
    Waiting(String),
}

pub(super) struct Lane {
    pub(super) name: String,
    /// Fibers by name, and what is in the kernel by an empty one.
    pub(super) slices: Vec<(String, Span)>,
    pub(super) asleep: Vec<Span>,
    /// The kernel, entered by a fiber.
    pub(super) within: Vec<Span>,
}

pub(super) struct Row {
    pub(super) name: String,
    pub(super) states: Vec<(FiberState, Span)>,
    pub(super) cancels: Vec<u64>,
}

/// See the module.
pub(super) struct Window {
    pub(super) span: Span,
    pub(super) lanes: Vec<Lane>,
    pub(super) rows: Vec<Row>,
    pub(super) fibers_left_out: usize,
    pub(super) ops: Vec<(String, Span)>,
    /// How many were under way from when on, all workers together.
    pub(super) depth: Vec<(u64, i64)>,
}

type Fiber = (usize, u64);

struct Collector {
    span: Span,
    most_rows: usize,
    lanes: Vec<Lane>,
    rows: Vec<Row>,
    of: HashMap<Fiber, usize>,
    left_out: std::collections::HashSet<Fiber>,
    /// Slices that are open on each worker.
    open: Vec<Vec<Open>>,
    /// Since when a fiber waits, and what for.
    waits: HashMap<Fiber, (u64, String)>,
    under_way: HashMap<u64, (Name, u64)>,
    ops: Vec<(String, Span)>,
    counters: Vec<i64>,
    depth: Vec<(u64, i64)>,
}

/// A slice that has begun.
struct Open {
    name: Name,
    fiber: Option<u64>,
    /// The kernel, for the worker or from within a fiber.
    enters: bool,
    since: u64,
}

pub(super) fn of(path: &Path, from: u64, to: u64, most_rows: usize) -> Result<Window, Failure> {
    let mut collector = Collector {
        span: Span { from, to },
        most_rows,
        lanes: Vec::new(),
        rows: Vec::new(),
        of: HashMap::new(),
        left_out: Default::default(),
        open: Vec::new(),
        waits: HashMap::new(),
        under_way: HashMap::new(),
        ops: Vec::new(),
        counters: Vec::new(),
        depth: Vec::new(),
    };
    let found = read(path, |event, found| collector.add(event, found))?;
    Ok(collector.finish(&found))
}

impl Collector {
    fn clip(&self, from: u64, to: u64) -> Option<Span> {
        let (from, to) = (from.max(self.span.from), to.min(self.span.to));
        (from < to).then_some(Span { from, to })
    }

    fn add(&mut self, event: &Event, found: &Content) {
        while self.lanes.len() < found.workers.len() {
            let name = found.workers[self.lanes.len()].clone();
            let (slices, asleep, within) = (Vec::new(), Vec::new(), Vec::new());
            self.lanes.push(Lane { name, slices, asleep, within });
            self.open.push(Vec::new());
            self.counters.push(0);
        }
        match event.kind {
            Kind::Begin => self.begin(event, found),
            Kind::End => self.end(event, found),
            Kind::Instant => self.instant(event, found),
            Kind::Counter => {
                self.counters[event.worker] = event.counter;
                self.depth.push((event.ns, self.counters.iter().sum()));
            }
            Kind::Other => {}
        }
    }

    fn begin(&mut self, event: &Event, found: &Content) {
        let Event { name, fiber, enters, ns, .. } = *event;
        self.open[event.worker].push(Open { name, fiber, enters, since: ns });
        let Some(number) = fiber else { return };
        let fiber = (event.worker, number);
        let ready = event.ns.saturating_sub(event.ready_ns.unwrap_or(0));
        let waited = self.waits.remove(&fiber);
        if let Some((since, what)) = waited
            && let Some(span) = self.clip(since, ready)
        {
            self.state(fiber, event.name, found, FiberState::Waiting(what), span);
        }
        if let Some(span) = self.clip(ready, event.ns) {
            self.state(fiber, event.name, found, FiberState::Ready, span);
        }
    }

    fn end(&mut self, event: &Event, found: &Content) {
        let Some(open) = self.open[event.worker].pop() else { return };
        let Open { name, fiber, enters, since } = open;
        let span = self.clip(since, event.ns);
        if let Some(number) = fiber {
            let fiber = (event.worker, number);
            if let Some(span) = span {
                self.lanes[event.worker].slices.push((found.names.get(name).into(), span));
                self.state(fiber, name, found, FiberState::Running, span);
            }
            let what = event.waits_for.map(|what| found.names.get(what));
            if let Some(what) = what.filter(|what| *what != "end") {
                self.waits.insert(fiber, (event.ns, what.into()));
            }
        } else if enters && let Some(span) = span {
            let lane = &mut self.lanes[event.worker];
            match found.names.get(name) {
                _ if !self.open[event.worker].is_empty() => lane.within.push(span),
                "wait" => lane.asleep.push(span),
                _ => lane.slices.push((String::new(), span)),
            }
        }
    }

    fn state(&mut self, fiber: Fiber, name: Name, found: &Content, state: FiberState, span: Span) {
        let row = match self.of.get(&fiber) {
            Some(&row) => row,
            None if self.rows.len() < self.most_rows => {
                let worker = match self.lanes.len() {
                    1 => String::new(),
                    _ => format!("{}·", number(&self.lanes[fiber.0].name)),
                };
                let name = format!("{} {worker}{}", found.names.get(name), fiber.1);
                self.rows.push(Row { name, states: Vec::new(), cancels: Vec::new() });
                self.of.insert(fiber, self.rows.len() - 1);
                self.rows.len() - 1
            }
            None => {
                self.left_out.insert(fiber);
                return;
            }
        };
        self.rows[row].states.push((state, span));
    }

    fn instant(&mut self, event: &Event, found: &Content) {
        if found.names.get(event.name) == "cancel"
            && let Some(of) = event.of
            && let Some(&row) = self.of.get(&(event.worker, of))
            && (self.span.from..self.span.to).contains(&event.ns)
        {
            self.rows[row].cancels.push(event.ns);
        }
        let is_op = |flow: u64| flow != 0 && flow >> 61 == 0;
        if is_op(event.flow) {
            self.under_way.insert(event.flow, (event.name, event.ns));
        }
        if is_op(event.last_flow)
            && let Some((name, since)) = self.under_way.remove(&event.last_flow)
            && let Some(span) = self.clip(since, event.ns)
            && self.ops.len() < MOST_OPS
        {
            self.ops.push((found.names.get(name).into(), span));
        }
    }

    fn finish(mut self, found: &Content) -> Window {
        // What had not ended when the trace did, or the picture.
        let unended: Vec<_> = self.waits.drain().collect();
        for (fiber, (since, what)) in unended {
            if let Some(span) = self.clip(since, self.span.to)
                && self.of.contains_key(&fiber)
            {
                self.state(fiber, 0, found, FiberState::Waiting(what), span);
            }
        }
        self.ops.sort_by_key(|(_, span)| (span.from, span.to));
        self.depth.sort_by_key(|(ns, _)| *ns);
        self.lanes.sort_by(|a, b| rank(&a.name).cmp(&rank(&b.name)));
        Window {
            span: self.span,
            lanes: self.lanes,
            rows: self.rows,
            fibers_left_out: self.left_out.len(),
            ops: self.ops,
            depth: self.depth,
        }
    }
}
