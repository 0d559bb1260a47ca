//! The thread that takes events from the workers' queues and writes the file.
//!
//! A fiber that moves takes its state in the file along: its number, what has woken it, since when
//! it is ready, its open scopes. So its arrival is written after its departure, which is an event
//! of another worker: see [`Writer::round`]. After a loss of events, the encoder forgets what it
//! knows of the worker's fibers, so that no event is attributed to the wrong one.

use super::Written;
use super::perfetto::{OnTheWay, Output, Track};
use super::session::Session;
use cringle_driver::kept::Own;
use cringle_driver::trace::clock::{Anchor, Clock, Scale};
use cringle_driver::trace::event::{Event, Kind, SLOT, TEXT_SLOTS};
use cringle_driver::trace::queue::EventQueue;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// The pause between two rounds, unless a worker's queue fills up before.
const PAUSE: Duration = Duration::from_millis(100);
/// The number of bytes that are collected before they are written.
const CHUNK: usize = 1 << 18;
/// The number of events after which their slots are released.
const RELEASE: usize = 1 << 12;

/// The state of the writer thread.
pub(super) struct Writer {
    session: Arc<Session>,
    sink: Sink,
    tracks: HashMap<u32, Track>,
    on_the_way: OnTheWay,
    began: Anchor,
    /// The time of the last round.
    last: Anchor,
}

impl Writer {
    pub(super) fn new(file: File, session: Arc<Session>) -> Writer {
        let began = Anchor::now();
        let _own = Own::new(file.as_raw_fd());
        let sink =
            Sink { _own, file, out: Output::new(), written: Written::default(), failed: None };
        Writer {
            session,
            sink,
            tracks: HashMap::new(),
            on_the_way: OnTheWay::default(),
            began,
            last: began,
        }
    }

    pub(super) fn run(mut self) -> io::Result<Written> {
        loop {
            // Loaded before the queues are read, so that all events before the end are taken.
            let last = self.session.is_closed();
            let (queues, requested) = self.session.queues();
            let now = Anchor::now();
            let scale = Scale::from(self.last, self.began, now);
            self.round(&queues, &scale, last);
            self.last = now;
            self.sink.drain();
            self.session.written(requested);
            if last {
                self.session.ended();
                let Sink { written, failed, .. } = self.sink;
                return failed.map_or(Ok(written), Err);
            }
            self.session.pause(PAUSE);
        }
    }

    /// Takes all events that were in the queues when it was called.
    ///
    /// Each queue is read up to an arrival whose departure was not read yet, until all have come to
    /// the first of two ends. The second ends are loaded later, so that they lie after all
    /// departures to which an arrival before the first ends refers, directly or not. If no queue
    /// can be read further, the departure was lost.
    fn round(&mut self, queues: &[Arc<EventQueue>], scale: &Scale, last: bool) {
        // Loaded before the ends: if a queue is closed, no other events will follow.
        let closed: Vec<_> = queues.iter().map(|queue| queue.is_closed()).collect();
        let goals: Vec<_> = queues.iter().map(|queue| queue.readable().1).collect();
        let limits: Vec<_> = queues.iter().map(|queue| queue.readable().1).collect();
        let mut has_lost = false;
        loop {
            let (mut has_taken, mut is_stuck) = (false, false);
            for (n, queue) in queues.iter().enumerate() {
                let from = queue.readable().0;
                let is_behind = from < goals[n];
                let to = self.take(queue, limits[n], scale, has_lost && is_behind);
                has_lost &= !is_behind;
                has_taken |= to > from;
                is_stuck |= to < goals[n];
            }
            if !is_stuck {
                break;
            }
            has_lost = !has_taken;
        }
        for (queue, is_closed) in queues.iter().zip(closed) {
            self.end_round(queue, is_closed, last);
        }
    }

    /// Takes events up to `limit`, or to an arrival whose departure was not taken; with `has_lost`,
    /// to the second such arrival. Returns where it has stopped.
    fn take(
        &mut self,
        queue: &EventQueue,
        limit: usize,
        scale: &Scale,
        mut has_lost: bool,
    ) -> usize {
        let (sink, way) = (&mut self.sink, &mut self.on_the_way);
        let origin = queue.origin;
        let track = self.tracks.entry(origin.sequence);
        let track = track.or_insert_with(|| Track::new(&mut sink.out, origin, self.last.ns()));
        let mut at = queue.readable().0;
        let mut text = [0; TEXT_SLOTS * SLOT];
        while at < limit {
            // SAFETY: the contract of `read`: this is the reading thread, and `at` is before the
            // tail.
            let event = unsafe { queue.read(at) };
            if event.kind() == Kind::Arrived
                && !way.has(event.value)
                && !std::mem::take(&mut has_lost)
            {
                break;
            }
            let slots = event.text_slots();
            for (n, place) in text.chunks_mut(SLOT).take(slots).enumerate() {
                // SAFETY: as above; an event and its text are published together.
                let part = unsafe { queue.read(at + 1 + n) };
                place.copy_from_slice(&part.as_bytes());
            }
            track.event(&mut sink.out, ns(&event, origin.clock, scale), &event, &text, way);
            at += 1 + slots;
            if at % RELEASE < 1 + slots {
                queue.release(at);
                if sink.out.len() >= CHUNK {
                    sink.drain();
                }
            }
        }
        queue.release(at);
        at
    }

    fn end_round(&mut self, queue: &Arc<EventQueue>, is_closed: bool, last: bool) {
        let sink = &mut self.sink;
        let Some(track) = self.tracks.get_mut(&queue.origin.sequence) else { return };
        sink.written.lost += std::mem::take(&mut track.lost);
        if is_closed || last {
            let lost = queue.lost();
            sink.written.lost += lost;
            track.end(&mut sink.out, lost);
        }
        sink.written.events += track.take_events();
        if is_closed {
            self.session.remove(queue);
            self.tracks.remove(&queue.origin.sequence);
        }
    }
}

/// Converts the event's stamp to nanoseconds. Virtual time starts at 0.
fn ns(event: &Event, clock: Clock, scale: &Scale) -> u64 {
    match clock {
        Clock::Counter => scale.ns(event.stamp),
        Clock::Boot | Clock::Virtual => event.stamp,
    }
}

/// The output file and its totals.
struct Sink {
    _own: Own,
    file: File,
    out: Output,
    written: Written,
    /// The first error of a write, after which nothing is written.
    failed: Option<io::Error>,
}

impl Sink {
    fn drain(&mut self) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(self.out.bytes()).err();
            self.written.bytes += self.out.len() as u64;
        }
        self.out.clear();
    }
}
