//! A part of a trace, prepared for a picture: the states of workers, fibers and operations over
//! time.

use super::reader::{Content, Event, Fiber, Kind, Name, read};
use super::summary::{number, rank};
use cringle::trace::wire::{event_name, is_op_flow};
use cringle_report::failure::Failure;
use std::collections::HashMap;
use std::path::Path;

/// The largest number of operations kept.
const MOST_OPS: usize = 4096;

/// An interval of the trace's time, in nanoseconds.
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

/// What a worker did.
pub(super) struct Lane {
    pub(super) name: String,
    /// The fibers that ran, by name; an empty name means that the worker was in the kernel.
    pub(super) slices: Vec<(String, Span)>,
    pub(super) asleep: Vec<Span>,
    /// Times in the kernel within a fiber's slice.
    pub(super) within: Vec<Span>,
}

/// What a fiber did.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) states: Vec<(FiberState, Span)>,
    /// The times at which it was cancelled.
    pub(super) cancels: Vec<u64>,
}

/// A part of a trace.
pub(super) struct Window {
    pub(super) span: Span,
    pub(super) lanes: Vec<Lane>,
    pub(super) rows: Vec<Row>,
    pub(super) fibers_left_out: usize,
    pub(super) ops: Vec<(String, Span)>,
    /// The number of operations in flight on all workers, from each of these times on.
    pub(super) depth: Vec<(u64, i64)>,
}

/// The fibers that are drawn.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) most_rows: usize,
    /// Also those of the library.
    pub(super) all: bool,
}

struct Collector {
    span: Span,
    shown: Shown,
    lanes: Vec<Lane>,
    rows: Vec<Row>,
    row_of: HashMap<Fiber, usize>,
    left_out: std::collections::HashSet<Fiber>,
    /// The beginnings of the open slices of each worker, the innermost last.
    open: Vec<Vec<Event>>,
    /// The start and the cause of each suspended fiber's wait.
    waits: HashMap<Fiber, (u64, String)>,
    in_flight: HashMap<u64, (Name, u64)>,
    ops: Vec<(String, Span)>,
    counters: Vec<i64>,
    /// The sum of `counters`.
    in_flight_now: i128,
    depth: Vec<(u64, i64)>,
    /// The last value before the picture.
    depth_before: Option<(u64, i64)>,
}

/// Reads the events between `from` and `to`.
pub(super) fn of(path: &Path, from: u64, to: u64, shown: Shown) -> Result<Window, Failure> {
    let mut collector = Collector {
        span: Span { from, to },
        shown,
        lanes: Vec::new(),
        rows: Vec::new(),
        row_of: HashMap::new(),
        left_out: Default::default(),
        open: Vec::new(),
        waits: HashMap::new(),
        in_flight: HashMap::new(),
        ops: Vec::new(),
        counters: Vec::new(),
        in_flight_now: 0,
        depth: Vec::new(),
        depth_before: None,
    };
    let content = read(path, |event, content| collector.add(event, content))?;
    Ok(collector.finish(&content))
}

impl Collector {
    fn clip(&self, from: u64, to: u64) -> Option<Span> {
        let (from, to) = (from.max(self.span.from), to.min(self.span.to));
        (from < to).then_some(Span { from, to })
    }

    fn add(&mut self, event: &Event, content: &Content) {
        while self.lanes.len() < content.workers.len() {
            let name = content.workers[self.lanes.len()].clone();
            let (slices, asleep, within) = (Vec::new(), Vec::new(), Vec::new());
            self.lanes.push(Lane { name, slices, asleep, within });
            self.open.push(Vec::new());
            self.counters.push(0);
        }
        match event.kind {
            Kind::Begin => self.begin(event, content),
            Kind::End => self.end(event, content),
            Kind::Instant => self.instant(event, content),
            Kind::Counter => {
                let before = std::mem::replace(&mut self.counters[event.worker], event.counter);
                self.in_flight_now += i128::from(event.counter) - i128::from(before);
                let now = self.in_flight_now.clamp(i64::MIN.into(), i64::MAX.into());
                self.depth_at(event.ns, now as i64);
            }
            Kind::Other => {}
        }
    }

    /// Keeps the values within the picture, and the last one before it.
    fn depth_at(&mut self, ns: u64, value: i64) {
        if ns <= self.span.from {
            if self.depth_before.is_none_or(|(before, _)| before <= ns) {
                self.depth_before = Some((ns, value));
            }
        } else if ns < self.span.to {
            self.depth.push((ns, value));
        }
    }

    fn begin(&mut self, event: &Event, content: &Content) {
        self.open[event.worker].push(*event);
        let Some(fiber) = event.fiber else { return };
        let ready = event.ns.saturating_sub(event.ready_ns.unwrap_or(0));
        let waited = self.waits.remove(&fiber);
        if let Some((since, what)) = waited
            && let Some(span) = self.clip(since, ready)
        {
            self.state(fiber, event.name, content, FiberState::Waiting(what), span);
        }
        if let Some(span) = self.clip(ready, event.ns) {
            self.state(fiber, event.name, content, FiberState::Ready, span);
        }
    }

    fn end(&mut self, event: &Event, content: &Content) {
        let Some(open) = self.open[event.worker].pop() else { return };
        let Event { name, fiber, enters, .. } = open;
        let span = self.clip(open.ns, event.ns);
        if let Some(fiber) = fiber {
            if let Some(span) = span {
                self.lanes[event.worker].slices.push((content.names.get(name).into(), span));
                self.state(fiber, name, content, FiberState::Running, span);
            }
            let what = event.waits_for.map(|what| content.names.get(what));
            if let Some(what) = what.filter(|what| *what != event_name::END) {
                self.waits.insert(fiber, (event.ns, what.into()));
            }
        } else if enters && let Some(span) = span {
            let lane = &mut self.lanes[event.worker];
            match content.names.get(name) {
                _ if !self.open[event.worker].is_empty() => lane.within.push(span),
                event_name::WAIT => lane.asleep.push(span),
                _ => lane.slices.push((String::new(), span)),
            }
        }
    }

    fn state(
        &mut self,
        fiber: Fiber,
        name: Name,
        content: &Content,
        state: FiberState,
        span: Span,
    ) {
        let row = match self.row_of.get(&fiber) {
            Some(&row) => row,
            None if !self.shown.all && content.names.is_of_library(name) => return,
            None if self.rows.len() < self.shown.most_rows => {
                let worker = match self.lanes.len() {
                    1 => String::new(),
                    _ => format!("{}·", number(&self.lanes[fiber.home].name)),
                };
                let name = format!("{} {worker}{}", content.names.get(name), fiber.number);
                self.rows.push(Row { name, states: Vec::new(), cancels: Vec::new() });
                self.row_of.insert(fiber, self.rows.len() - 1);
                self.rows.len() - 1
            }
            None => {
                self.left_out.insert(fiber);
                return;
            }
        };
        self.rows[row].states.push((state, span));
    }

    fn instant(&mut self, event: &Event, content: &Content) {
        if content.names.get(event.name) == event_name::CANCEL
            && let Some(of) = event.of
            && let Some(&row) = self.row_of.get(&of)
            && (self.span.from..self.span.to).contains(&event.ns)
        {
            self.rows[row].cancels.push(event.ns);
        }
        if is_op_flow(event.flow) {
            self.in_flight.insert(event.flow, (event.name, event.ns));
        }
        if is_op_flow(event.last_flow)
            && let Some((name, since)) = self.in_flight.remove(&event.last_flow)
            && let Some(span) = self.clip(since, event.ns)
            && self.ops.len() < MOST_OPS
        {
            self.ops.push((content.names.get(name).into(), span));
        }
    }

    fn finish(mut self, content: &Content) -> Window {
        // Waits that last beyond the end of the picture or of the trace.
        let unended: Vec<_> = self.waits.drain().collect();
        for (fiber, (since, what)) in unended {
            if let Some(span) = self.clip(since, self.span.to)
                && self.row_of.contains_key(&fiber)
            {
                self.state(fiber, 0, content, FiberState::Waiting(what), span);
            }
        }
        self.ops.sort_by_key(|(_, span)| (span.from, span.to));
        self.depth.extend(self.depth_before);
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
