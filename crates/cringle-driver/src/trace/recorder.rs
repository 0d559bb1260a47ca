//! The recorder of a worker's events. Only the worker's thread uses it.
//!
//! The driver does not know workers, so it finds the recorder by a thread-local: the address of the
//! worker's [place](RecorderPlace) for it, which is empty without a trace. Completions record the
//! push and the completion of an op, which is one place for all drivers.
//!
//! An op is recorded by two events: one for its push, the suspension of its fiber and the
//! resumption of the next one, and one for its completion.

use super::clock::Clock;
use super::event::{Event, Kind, LONGEST_NAME, SLOT, SUSPENDS, TEXT_SLOTS};
use super::queue::EventQueue;
use cringle_sys::lock::Signal;
use cringle_sys::module_of_library;
use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

thread_local! {
    static HERE: Cell<*const RecorderPlace> = const { Cell::new(std::ptr::null()) };
}

/// Where the recorder of a worker is found, while there is one. Every block of thread-locals that
/// code of the worker runs on refers to it, so a trace may begin and end while fibers exist.
#[derive(Default)]
pub struct RecorderPlace(Cell<Option<NonNull<Recorder>>>);

impl RecorderPlace {
    /// Makes it the calling thread's place until [`leave_thread`](Self::leave_thread). The worker
    /// keeps it alive and in place.
    pub fn enter_thread(&self) {
        HERE.set(self);
    }

    pub fn leave_thread() {
        HERE.set(std::ptr::null());
    }

    /// Sets the recorder, which the worker keeps alive and in place until this is called again.
    pub fn set(&self, recorder: Option<&Recorder>) {
        self.0.set(recorder.map(NonNull::from));
    }
}

/// A worker's recorder. See the [module](self).
pub struct Recorder {
    queue: Arc<EventQueue>,
    /// Wakes the thread that writes the trace.
    writer: Arc<Signal>,
    clock: Clock,
    tail: Cell<usize>,
    /// The index up to which slots are free, as of the last look at the reader's progress.
    limit: Cell<usize>,
    lost: Cell<u64>,
    stamp: Cell<u64>,
    next_op: Cell<u32>,
    next_spawn: Cell<u32>,
    next_move: Cell<u32>,
    /// The last event, held back because the next one may be merged into it.
    open: Cell<Option<Event>>,
    /// The number of nested calls into the kernel: a driver may make one within another.
    depth: Cell<u32>,
}

impl Recorder {
    pub fn new(queue: Arc<EventQueue>, writer: Arc<Signal>) -> Recorder {
        let clock = queue.origin.clock;
        let stamp = Cell::new(if clock == Clock::Virtual { 0 } else { clock.now() });
        let (tail, limit) = (Cell::new(0), Cell::new(queue.capacity()));
        let lost = Cell::new(0);
        let (open, depth) = (Cell::new(None), Cell::new(0));
        let (next_op, next_spawn, next_move) = (Cell::new(0), Cell::new(0), Cell::new(0));
        Recorder {
            queue,
            writer,
            clock,
            tail,
            limit,
            lost,
            stamp,
            next_op,
            next_spawn,
            next_move,
            open,
            depth,
        }
    }

    #[inline(always)]
    pub fn with(f: impl FnOnce(&Recorder)) {
        let place = HERE.get();
        if place.is_null() {
            return;
        }
        // SAFETY: the contract of `enter_thread`: the worker of this thread neither moves nor drops
        // the place while the pointer is set.
        if let Some(recorder) = unsafe { &*place }.0.get() {
            // SAFETY: the contract of `set`.
            f(unsafe { recorder.as_ref() });
        }
    }

    /// Takes a stamp, which the following events share.
    #[inline(always)]
    pub fn tick(&self) {
        if self.clock != Clock::Virtual {
            self.stamp.set(self.clock.now());
        }
    }

    /// Sets the virtual time.
    pub fn set_virtual(&self, ns: u64) {
        self.stamp.set(ns);
    }

    pub fn is_virtual(&self) -> bool {
        self.clock == Clock::Virtual
    }

    #[inline(always)]
    pub fn event(&self, kind: Kind, index: u32, value: u64) -> Event {
        Event::new(self.stamp.get(), kind, index, value)
    }

    /// Records an event, or counts it as lost.
    #[inline(always)]
    pub fn put(&self, event: Event) {
        self.close();
        self.write(event);
    }

    /// Records an event, and holds it back so that the next one can be merged into it: a suspension
    /// into a push, a resumption into a suspension. The next event follows soon.
    #[inline(always)]
    fn put_open(&self, event: Event) {
        self.close();
        self.open.set(Some(event));
    }

    /// Writes the event that is held back.
    #[inline(always)]
    pub fn close(&self) {
        if let Some(event) = self.open.take() {
            self.write(event);
        }
    }

    #[inline(always)]
    fn write(&self, event: Event) {
        let tail = self.tail.get();
        if tail == self.limit.get() || self.lost.get() > 0 {
            return self.write_when_full(&[event]);
        }
        // SAFETY: the contract of `write`: this is the writing thread, and slots are free up to the
        // limit.
        unsafe { self.queue.write(tail, event) };
        self.advance(tail + 1);
    }

    #[inline(always)]
    fn advance(&self, tail: usize) {
        self.tail.set(tail);
        self.queue.publish(tail);
        if tail & (self.queue.capacity() / 4 - 1) == 0 {
            self.writer.set();
        }
    }

    /// Looks up the reader's progress, and writes events if there is room. After a loss, it waits
    /// until a quarter of the buffer is free, so that the events after the gap are worth reading.
    #[cold]
    fn write_when_full(&self, events: &[Event]) {
        let (tail, capacity) = (self.tail.get(), self.queue.capacity());
        self.limit.set(self.queue.head() + capacity);
        let room = self.limit.get() - tail;
        let lost = self.lost.get();
        let enough = if lost > 0 { capacity / 4 } else { events.len() };
        if room < enough.max(events.len() + 1) {
            let lost = lost + events[0].count();
            self.lost.set(lost);
            self.queue.set_lost(lost);
            self.writer.set();
            return;
        }
        let gap = (lost > 0).then(|| self.event(Kind::Lost, 0, lost));
        let mut at = tail;
        for event in gap.into_iter().chain(events.iter().copied()) {
            // SAFETY: the contract of `write`: this is the writing thread, and there is room for
            // all events.
            unsafe { self.queue.write(at, event) };
            at += 1;
        }
        self.lost.set(0);
        self.queue.set_lost(0);
        self.advance(at);
    }

    /// Records a fiber's name or the place that spawned it, and whether that is in the library.
    #[cold]
    pub fn put_name(&self, index: u32, name: Option<&str>, spawned: &'static Location<'static>) {
        let by_library = u8::from(module_of_library(spawned.file()).is_some());
        let Some(name) = name else {
            let place = std::ptr::from_ref(spawned) as u64;
            return self.put(self.event(Kind::Placed, index, place).detail(by_library));
        };
        let mut bytes = name.len().min(LONGEST_NAME);
        while !name.is_char_boundary(bytes) {
            bytes -= 1;
        }
        let mut events = [Event::default(); 1 + TEXT_SLOTS];
        let count = 1 + bytes.div_ceil(SLOT);
        events[0] = self.event(Kind::Named, index, bytes as u64).detail(by_library);
        for (event, part) in events[1..].iter_mut().zip(name.as_bytes()[..bytes].chunks(SLOT)) {
            *event = Event::from_bytes(part);
        }
        self.close();
        self.write_when_full(&events[..count]);
    }

    /// Records that the running fiber waits for ops: as a part of the last push, if that was the
    /// last event.
    pub fn suspended_for_ops(&self, wait: u8) {
        match self.open.get() {
            Some(event) if event.kind() == Kind::Pushed => {
                self.open.set(Some(event.extra(SUSPENDS)));
            }
            _ => self.suspended(wait),
        }
    }

    /// Records that the running fiber waits.
    pub fn suspended(&self, wait: u8) {
        self.tick();
        self.put_open(self.event(Kind::Suspended, 0, 0).detail(wait));
    }

    /// Records that a fiber was resumed: as a part of the last suspension, if that was the last
    /// event.
    pub fn resumed(&self, index: u32, generation: u32) {
        let event = match self.open.take() {
            Some(event) if event.is_suspension() => event.resumes(index, generation),
            other => {
                other.into_iter().for_each(|event| self.write(event));
                self.tick();
                self.event(Kind::Resumed, index, u64::from(generation) << 32)
            }
        };
        self.write(event);
    }

    /// Records a call into the kernel, until [`entered`](Self::entered). Nested calls are a part of
    /// it.
    pub fn enters(&self, queued: u32, sleeps: bool) {
        self.depth.set(self.depth.get() + 1);
        if self.depth.get() > 1 {
            return;
        }
        self.tick();
        let event = self.event(Kind::Enter, 0, 0).detail(sleeps.into());
        self.put(event.extra(queued.min(u16::MAX.into()) as u16));
    }

    /// Records the return from the kernel.
    pub fn entered(&self) {
        self.depth.set(self.depth.get() - 1);
        if self.depth.get() > 0 {
            return;
        }
        self.tick();
        self.put(self.event(Kind::Entered, 0, 0));
    }

    /// Records that an op was queued, and returns its number.
    #[inline]
    pub(crate) fn op_pushed(&self, name: u8) -> u32 {
        let number = self.next_op.get().wrapping_add(1).max(1);
        self.next_op.set(number);
        self.tick();
        self.put_open(self.event(Kind::Pushed, 0, number.into()).detail(name));
        number
    }

    /// Records the completion of an op. Its number is 0 if it was queued before the trace started.
    #[inline]
    pub(crate) fn op_completed(&self, name: u8, number: u32, result: i32) {
        if number != 0 {
            let value = u64::from(number) | u64::from(result as u32) << 32;
            self.put(self.event(Kind::Completed, 0, value).detail(name));
        }
    }

    /// Records that a ready fiber leaves for another worker, and returns the flow to its arrival.
    pub fn departed(&self, index: u32) -> u64 {
        let number = self.next_move.get().wrapping_add(1);
        self.next_move.set(number);
        let flow = super::flow::move_flow(self.queue.origin.sequence, number);
        self.tick();
        self.put(self.event(Kind::Departed, index, flow));
        flow
    }

    /// Records that a fiber was spawned, which may start on another worker, and returns the flow to
    /// its start.
    pub fn spawned(&self) -> u64 {
        let number = self.next_spawn.get().wrapping_add(1).max(1);
        self.next_spawn.set(number);
        let flow = super::flow::SPAWN_FLOW
            | u64::from(self.queue.origin.sequence) << 32
            | u64::from(number);
        self.tick();
        self.put(self.event(Kind::Spawned, 0, flow));
        flow
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
        self.queue.close();
        self.writer.set();
    }
}
