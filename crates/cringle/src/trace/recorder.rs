//! What a worker writes its events with. It belongs to the worker's thread alone.
//!
//! The driver, which knows no worker, finds it in a thread-local: an op is pushed and completed in one
//! place each for all drivers, where its completion is. Without a trace that is a null pointer.

use super::clock::Clock;
use super::event::{Event, Kind, LONGEST_NAME, SLOT, SUSPENDS, TEXT_SLOTS};
use super::queue::EventQueue;
use std::cell::Cell;
use std::sync::Arc;
use std::thread::Thread;

thread_local! {
    static HERE: Cell<*const Recorder> = const { Cell::new(std::ptr::null()) };
}

/// See the module.
pub(crate) struct Recorder {
    queue: Arc<EventQueue>,
    writer: Thread,
    clock: Clock,
    tail: Cell<usize>,
    /// Up to where there is room, as far as is known.
    limit: Cell<usize>,
    lost: Cell<u64>,
    stamp: Cell<u64>,
    next_op: Cell<u32>,
    next_spawn: Cell<u32>,
    /// The last event, if what follows may become a part of it: it is not written yet.
    open: Cell<Option<Event>>,
    /// Calls into the kernel that have not returned: a driver may make one within another.
    within: Cell<u32>,
}

impl Recorder {
    pub(super) fn new(queue: Arc<EventQueue>, writer: Thread) -> Recorder {
        let clock = queue.origin.clock;
        let stamp = Cell::new(if clock == Clock::Virtual { 0 } else { clock.now() });
        let (tail, limit) = (Cell::new(0), Cell::new(queue.capacity()));
        let lost = Cell::new(0);
        let (open, within) = (Cell::new(None), Cell::new(0));
        let (next_op, next_spawn) = (Cell::new(0), Cell::new(0));
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
            open,
            within,
        }
    }

    /// Makes it the calling thread's, until [`leave`](Self::leave): the worker keeps it alive.
    pub(crate) fn enter(&self) {
        HERE.set(self);
    }

    pub(crate) fn leave() {
        HERE.set(std::ptr::null());
    }

    #[inline(always)]
    pub(crate) fn with(f: impl FnOnce(&Recorder)) {
        let here = HERE.get();
        if !here.is_null() {
            // SAFETY: the worker of this thread keeps it where it is while the pointer is set.
            f(unsafe { &*here });
        }
    }

    /// Takes the time; events that follow may have happened at the same.
    #[inline(always)]
    pub(crate) fn tick(&self) {
        if self.clock != Clock::Virtual {
            self.stamp.set(self.clock.now());
        }
    }

    /// Virtual time has come so far.
    pub(crate) fn set_virtual(&self, ns: u64) {
        self.stamp.set(ns);
    }

    pub(crate) fn is_virtual(&self) -> bool {
        self.clock == Clock::Virtual
    }

    #[inline(always)]
    pub(crate) fn event(&self, kind: Kind, index: u32, value: u64) -> Event {
        Event::new(self.stamp.get(), kind, index, value)
    }

    /// Writes an event, or counts it as lost.
    #[inline(always)]
    pub(crate) fn put(&self, event: Event) {
        self.close();
        self.write(event);
    }

    /// Keeps an event open for what follows: a push for the suspension, a suspension for who goes on. One
    /// of them follows soon, or something else does, which closes it.
    #[inline(always)]
    fn put_open(&self, event: Event) {
        self.close();
        self.open.set(Some(event));
    }

    /// What comes next is no part of the last event.
    #[inline(always)]
    pub(crate) fn close(&self) {
        if let Some(event) = self.open.take() {
            self.write(event);
        }
    }

    #[inline(always)]
    fn write(&self, event: Event) {
        let tail = self.tail.get();
        if tail == self.limit.get() || self.lost.get() > 0 {
            return self.put_at_the_edge(&[event]);
        }
        // SAFETY: this thread writes, and there is room up to the limit.
        unsafe { self.queue.write(tail, event) };
        self.advance(tail + 1);
    }

    #[inline(always)]
    fn advance(&self, tail: usize) {
        self.tail.set(tail);
        self.queue.publish(tail);
        if tail & (self.queue.capacity() / 4 - 1) == 0 {
            self.writer.unpark();
        }
    }

    /// Looks how far the reader has come. After a loss there must be some room before it goes on, so that
    /// what comes then is worth reading.
    #[cold]
    fn put_at_the_edge(&self, events: &[Event]) {
        let (tail, capacity) = (self.tail.get(), self.queue.capacity());
        self.limit.set(self.queue.head() + capacity);
        let room = self.limit.get() - tail;
        let lost = self.lost.get();
        let enough = if lost > 0 { capacity / 4 } else { events.len() };
        if room < enough.max(events.len() + 1) {
            let lost = lost + events[0].count();
            self.lost.set(lost);
            self.queue.set_lost(lost);
            self.writer.unpark();
            return;
        }
        let told = (lost > 0).then(|| self.event(Kind::Lost, 0, lost));
        let mut at = tail;
        for event in told.into_iter().chain(events.iter().copied()) {
            // SAFETY: this thread writes, and there is room for all of them.
            unsafe { self.queue.write(at, event) };
            at += 1;
        }
        self.lost.set(0);
        self.queue.set_lost(0);
        self.advance(at);
    }

    /// Says by which text a fiber is called.
    #[cold]
    pub(crate) fn put_name(&self, index: u32, name: &str) {
        let mut bytes = name.len().min(LONGEST_NAME);
        while !name.is_char_boundary(bytes) {
            bytes -= 1;
        }
        let mut events = [Event::default(); 1 + TEXT_SLOTS];
        let count = 1 + bytes.div_ceil(SLOT);
        events[0] = self.event(Kind::Named, index, bytes as u64);
        for (event, part) in events[1..].iter_mut().zip(name.as_bytes()[..bytes].chunks(SLOT)) {
            *event = Event::from_bytes(part);
        }
        self.close();
        self.put_at_the_edge(&events[..count]);
    }

    /// The fiber that runs waits for ops: at the time of the last one's push, if nothing was between.
    pub(crate) fn suspended_for_ops(&self, wait: u8) {
        match self.open.get() {
            Some(event) if event.kind() == Kind::Pushed => {
                self.open.set(Some(event.extra(SUSPENDS)));
            }
            _ => self.suspended(wait),
        }
    }

    pub(crate) fn suspended(&self, wait: u8) {
        self.tick();
        self.put_open(self.event(Kind::Suspended, 0, 0).detail(wait));
    }

    /// A fiber goes on: at the time of the last suspension, if nothing was between.
    pub(crate) fn resumed(&self, index: u32, generation: u32) {
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

    /// The kernel is entered, until [`entered`](Self::entered). What is entered within that is a part of it.
    pub(crate) fn enters(&self, queued: u32, sleeps: bool) {
        self.within.set(self.within.get() + 1);
        if self.within.get() > 1 {
            return;
        }
        self.tick();
        let event = self.event(Kind::Enter, 0, 0).detail(sleeps.into());
        self.put(event.extra(queued.min(u16::MAX.into()) as u16));
    }

    pub(crate) fn entered(&self) {
        self.within.set(self.within.get() - 1);
        if self.within.get() > 0 {
            return;
        }
        self.tick();
        self.put(self.event(Kind::Entered, 0, 0));
    }

    /// The number of an op that is queued now.
    #[inline]
    pub(crate) fn op_pushed(&self, name: u8) -> u32 {
        let number = self.next_op.get().wrapping_add(1).max(1);
        self.next_op.set(number);
        self.tick();
        self.put_open(self.event(Kind::Pushed, 0, number.into()).detail(name));
        number
    }

    /// Its completion is taken now. It has no number if it was queued before the trace began.
    #[inline]
    pub(crate) fn op_completed(&self, name: u8, number: u32, result: i32) {
        if number != 0 {
            let value = u64::from(number) | u64::from(result as u32) << 32;
            self.put(self.event(Kind::Completed, 0, value).detail(name));
        }
    }

    /// A fiber was made that starts later, perhaps elsewhere: the flow that leads there.
    pub(crate) fn spawned(&self) -> u64 {
        let number = self.next_spawn.get().wrapping_add(1).max(1);
        self.next_spawn.set(number);
        let flow = super::wire::SPAWN_FLOW
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
        self.writer.unpark();
    }
}
