//! Converts a worker's events to slices, instants and flows on its track.

use super::fibers::{Fibers, OnTheWay, Owners};
use super::output::{Output, Short};
use super::sequence::{Sequence, note_int, note_text, note_uint};
use crate::trace::wire::event::{BEGIN, END, FLOW, INSTANT, LAST_FLOW};
use crate::trace::wire::{
    HOME_BIT, LOCAL_FLOW, Note, SPAWN_FLOW, WAKE_FLOW, departed_from, event_name,
};
use cringle_driver::trace::EventNames;
use cringle_driver::trace::event::{Cause, Event, Kind, LONGEST_NAME};
use cringle_driver::trace::queue::Origin;
use cringle_sys::module_of_library;
use std::panic::Location;

/// The track of a worker.
pub(crate) struct Track {
    sequence: Sequence,
    number: u32,
    worker: u32,
    names: &'static EventNames,
    /// The start of the trace, to which virtual time is added.
    base: u64,
    fibers: Fibers,
    owners: Owners,
    /// The fiber whose slice is open.
    running: Option<u32>,
    /// A fiber that was resumed at this time, whose slice is not open yet: the next event may name
    /// it.
    begins: Option<(u32, u64)>,
    enters: bool,
    in_flight: i64,
    /// The last value written for the counter.
    counted: i64,
    /// The number of ops that the running fiber has queued since it was resumed, and the name of
    /// the last.
    ops: (u32, u8),
    wakes: u64,
    pub lost: u64,
}

impl Track {
    pub(crate) fn new(out: &mut Output, origin: Origin, began: u64) -> Track {
        let is_virtual = origin.clock == cringle_driver::trace::Clock::Virtual;
        Track {
            sequence: Sequence::new(out, origin, began),
            number: origin.sequence,
            worker: origin.worker,
            names: origin.names,
            base: if is_virtual { began } else { 0 },
            fibers: Fibers::default(),
            owners: Owners::new(),
            running: None,
            begins: None,
            enters: false,
            in_flight: 0,
            counted: 0,
            ops: (0, 0),
            wakes: 0,
            lost: 0,
        }
    }

    /// Converts an event. A fiber's arrival follows its departure, unless the departure is lost.
    pub(crate) fn event(
        &mut self,
        out: &mut Output,
        ns: u64,
        event: &Event,
        text: &[u8],
        on_the_way: &mut OnTheWay,
    ) {
        let ns = self.sequence.after_last(self.base + ns);
        let (kind, index) = (event.kind(), event.index());
        let names = matches!(kind, Kind::Named | Kind::Placed);
        if !names || self.begins.is_some_and(|(begins, _)| begins != index) {
            self.begin(out);
        }
        match kind {
            Kind::Pushed => self.pushed(out, ns, event),
            Kind::Lost => self.lose(out, event.value),
            Kind::Started => self.started(out, ns, event),
            Kind::Named | Kind::Placed => self.named(out, event, text),
            Kind::Resumed => {}
            Kind::Suspended => self.suspended(out, ns, Some(event.get_detail())),
            Kind::Ready => self.ready(out, ns, index, event.get_detail()),
            Kind::Ended => {
                self.suspended(out, ns, None);
                self.fibers.vacate(index);
            }
            Kind::Departed => self.departed(out, ns, event, on_the_way),
            Kind::Arrived => self.arrived(out, ns, event, on_the_way),
            Kind::Completed => self.completed(out, ns, event),
            Kind::Enter => self.enter(out, ns, event),
            Kind::Entered => {
                if std::mem::take(&mut self.enters) {
                    self.sequence.event(out, ns, END, None, |_| ());
                }
            }
            Kind::MessageRead => {
                let flow = message(self.worker, index, event.value);
                self.fibers.get(index).woken_by = flow;
            }
            Kind::ScopeOpened => self.open(out, ns, "scope"),
            Kind::SpanOpened => {
                let (start, length) = (event.value as *const u8, event.get_extra().into());
                // SAFETY: the contract of `Kind::SpanOpened`: address and length of a `&'static
                // str`.
                let name: &'static [u8] = unsafe { std::slice::from_raw_parts(start, length) };
                self.open(out, ns, whole_text(name));
            }
            Kind::ScopeClosed | Kind::SpanClosed => self.close(out, ns),
            Kind::Spawned
            | Kind::MessageSent
            | Kind::Stolen
            | Kind::Woke
            | Kind::Cancelled
            | Kind::TimerSet
            | Kind::TimerFired
            | Kind::Inline => self.instant_of(out, ns, event),
        }
        if event.is_resumption() {
            self.resumed(out, ns, event);
        }
    }

    /// Sets the name of a fiber.
    fn named(&mut self, out: &mut Output, event: &Event, text: &[u8]) {
        let name = if event.kind() == Kind::Named {
            let length = (event.value as usize).min(LONGEST_NAME);
            String::from_utf8_lossy(&text[..length])
        } else {
            // SAFETY: the contract of `Kind::Placed`: the value is a `&'static Location`.
            let place = unsafe { &*(event.value as *const Location<'static>) };
            place_name(place).into()
        };
        let by_library = event.get_detail() == 1;
        let name = self.sequence.fiber_name(out, &name, by_library);
        self.fibers.get(event.index()).name = name;
    }

    /// Converts an event that is an instant and changes no state.
    fn instant_of(&mut self, out: &mut Output, ns: u64, event: &Event) {
        let index = event.index();
        match event.kind() {
            Kind::Spawned => self.instant(out, ns, "spawn", |out| out.fixed64(FLOW, event.value)),
            Kind::MessageSent => {
                let flow = message(event.get_extra().into(), index, event.value);
                self.instant(out, ns, "message", |out| out.fixed64(FLOW, flow));
            }
            Kind::Stolen => self.instant(out, ns, "steal", |_| ()),
            Kind::Woke => {
                let worker = event.get_extra().into();
                self.instant(out, ns, "wake worker", |out| note_uint(out, Note::Of, worker));
            }
            Kind::Cancelled => {
                let fiber = self.fibers.get(index).number;
                let reason = name_of(self.names.reasons, event.get_detail());
                let reason = self.sequence.text(out, reason);
                self.instant(out, ns, event_name::CANCEL, |out| {
                    note_uint(out, Note::Of, fiber);
                    note_text(out, Note::Reason, reason);
                });
            }
            Kind::TimerSet => {
                self.instant(out, ns, "timer set", |out| note_uint(out, Note::DueNs, event.value));
            }
            Kind::TimerFired => self.instant(out, ns, "timer", |_| ()),
            Kind::Inline => {
                let name = if event.get_detail() == 1 {
                    event_name::INLINE
                } else {
                    event_name::INLINE_MISS
                };
                self.instant(out, ns, name, |_| ());
            }
            kind => unreachable!("{kind:?} is not an instant"),
        }
    }

    /// Closes the open slices at the end of the trace, and records the number of lost last events.
    pub(crate) fn end(&mut self, out: &mut Output, lost: u64) {
        self.begin(out);
        self.close_all(out);
        if lost > 0 {
            self.record_loss(out, lost);
        }
        self.count(out, self.sequence.last());
    }

    /// Returns the number of events written since the last call.
    pub(crate) fn take_events(&mut self) -> u64 {
        std::mem::take(&mut self.sequence.events)
    }

    fn instant(
        &mut self,
        out: &mut Output,
        ns: u64,
        name: &'static str,
        fill: impl FnOnce(&mut Short<'_>),
    ) {
        let name = self.sequence.static_name(out, name);
        self.sequence.event(out, ns, INSTANT, Some(name), fill);
    }

    fn lose(&mut self, out: &mut Output, lost: u64) {
        self.close_all(out);
        self.fibers.forget();
        self.owners = Owners::new();
        self.in_flight = 0;
        self.lost += lost;
        self.record_loss(out, lost);
    }

    fn record_loss(&mut self, out: &mut Output, lost: u64) {
        self.sequence.gap(out);
        let ns = self.sequence.last();
        self.instant(out, ns, "events lost", |out| note_uint(out, Note::Lost, lost));
    }

    fn close_all(&mut self, out: &mut Output) {
        let ns = self.sequence.last();
        if std::mem::take(&mut self.enters) {
            self.sequence.event(out, ns, END, None, |_| ());
        }
        if let Some(index) = self.running.take() {
            for _ in 0..=self.fibers.get(index).within.len() {
                self.sequence.event(out, ns, END, None, |_| ());
            }
        }
    }

    fn started(&mut self, out: &mut Output, ns: u64, event: &Event) {
        let fiber = self.fibers.renew(event.index());
        fiber.ready = Some(ns);
        fiber.made_by = event.value;
        if event.get_detail() == 1 && self.running.is_some() {
            let flow = SPAWN_FLOW | LOCAL_FLOW | u64::from(self.number) << 40 | fiber.number;
            fiber.made_by = flow;
            self.instant(out, ns, "spawn", |out| out.fixed64(FLOW, flow));
        }
    }

    /// Gives away the state of a fiber: how long it has been ready, if it is, what has woken it and
    /// its open scopes.
    fn departed(&mut self, out: &mut Output, ns: u64, event: &Event, way: &mut OnTheWay) {
        let mut fiber = self.fibers.take(event.index());
        let number = fiber.number;
        self.instant(out, ns, event_name::DEPART, |out| {
            out.fixed64(FLOW, event.value);
            note_uint(out, Note::Of, number);
        });
        if number >> HOME_BIT == 0 {
            fiber.number |= u64::from(self.number) << HOME_BIT;
        }
        // The names of fibers are numbered in each track.
        fiber.name = 0;
        way.insert(event.value, fiber);
    }

    fn arrived(&mut self, out: &mut Output, ns: u64, event: &Event, way: &mut OnTheWay) {
        match way.take(event.value) {
            Some(mut fiber) => {
                if fiber.number >> HOME_BIT == self.number.into() {
                    fiber.number &= (1 << HOME_BIT) - 1;
                }
                self.fibers.put(event.index(), fiber);
            }
            None => self.fibers.renew(event.index()).ready = Some(ns),
        }
        let number = self.fibers.get(event.index()).number;
        let is_back = departed_from(event.value) == self.number;
        let name = if is_back { event_name::TAKE_BACK } else { event_name::ARRIVE };
        self.instant(out, ns, name, |out| {
            out.fixed64(LAST_FLOW, event.value);
            note_uint(out, Note::Of, number);
        });
    }

    fn resumed(&mut self, out: &mut Output, ns: u64, event: &Event) {
        let generation = event.generation();
        let known = self.fibers.get(event.index());
        if known.generation.is_some_and(|before| before != generation) {
            self.fibers.renew(event.index());
        }
        self.fibers.get(event.index()).generation = Some(generation);
        // Writing each change would enlarge the file by a fifth. The exact value is written when
        // the worker enters the kernel.
        if (self.counted - self.in_flight).abs() * 8 > self.in_flight {
            self.count(out, ns);
        }
        self.begins = Some((event.index(), ns));
    }

    /// Opens the slice of the fiber that was resumed.
    fn begin(&mut self, out: &mut Output) {
        let Some((index, ns)) = self.begins.take() else { return };
        let fiber = self.fibers.get(index);
        let name = match fiber.name {
            0 => self.sequence.static_name(out, "fiber"),
            name => name,
        };
        let (made_by, woken_by) = (fiber.made_by, fiber.woken_by);
        let ready = fiber.ready.take().map(|since| ns.saturating_sub(since));
        (fiber.made_by, fiber.woken_by) = (0, 0);
        self.sequence.event(out, ns, BEGIN, Some(name), |out| {
            note_uint(out, Note::Fiber, fiber.number);
            if let Some(ready) = ready {
                note_uint(out, Note::ReadyNs, ready);
            }
            for flow in [made_by, woken_by].into_iter().filter(|&flow| flow != 0) {
                out.fixed64(LAST_FLOW, flow);
            }
        });
        for &name in &fiber.within {
            let name = self.sequence.static_name(out, name);
            self.sequence.event(out, ns, BEGIN, Some(name), |_| ());
        }
        self.running = Some(index);
        self.ops = (0, 0);
    }

    /// Closes the slice of the running fiber, which waits or has ended.
    fn suspended(&mut self, out: &mut Output, ns: u64, wait: Option<u8>) {
        // The fiber may have been resumed before the trace started.
        let Some(index) = self.running.take() else { return };
        let what = match wait {
            None => event_name::END,
            Some(wait) if wait == self.names.wait_for_ops => match self.ops {
                (1, name) => name_of(self.names.ops, name),
                _ => "ops",
            },
            Some(wait) => name_of(self.names.waits, wait),
        };
        let what = self.sequence.text(out, what);
        let fiber = self.fibers.get(index);
        for _ in &fiber.within {
            self.sequence.event(out, ns, END, None, |_| ());
        }
        if wait.is_some_and(|wait| usize::from(wait) >= self.names.waits.len() - 1) {
            // A yield: the fiber is ready at once.
            fiber.ready = Some(ns);
        }
        self.sequence.event(out, ns, END, None, |out| note_text(out, Note::WaitsFor, what));
    }

    fn ready(&mut self, out: &mut Output, ns: u64, index: u32, cause: u8) {
        self.fibers.get(index).ready = Some(ns);
        let woken = cause == Cause::Wake as u8 && self.fibers.get(index).woken_by == 0;
        if !woken || self.running.is_none_or(|running| running == index) {
            return;
        }
        self.wakes += 1;
        let flow = WAKE_FLOW | LOCAL_FLOW | u64::from(self.number) << 40 | self.wakes;
        self.fibers.get(index).woken_by = flow;
        self.instant(out, ns, "wake", |out| out.fixed64(FLOW, flow));
    }

    fn pushed(&mut self, out: &mut Output, ns: u64, event: &Event) {
        self.in_flight += 1;
        self.ops = (self.ops.0 + 1, event.get_detail());
        if let Some(fiber) = self.running {
            self.owners.set(event.value as u32, fiber);
        }
        let flow = self.op_flow(event);
        let name = name_of(self.names.ops, event.get_detail());
        self.instant(out, ns, name, |out| out.fixed64(FLOW, flow));
        if event.is_suspension() {
            self.suspended(out, ns, Some(self.names.wait_for_ops));
        }
    }

    fn completed(&mut self, out: &mut Output, ns: u64, event: &Event) {
        self.in_flight = (self.in_flight - 1).max(0);
        // The fiber becomes ready with the completion of its last op.
        if let Some(fiber) = self.owners.take(event.value as u32) {
            self.fibers.get(fiber).ready = Some(ns);
        }
        let flow = self.op_flow(event);
        let result = (event.value >> 32) as u32 as i32;
        let name = name_of(self.names.done, event.get_detail());
        self.instant(out, ns, name, |out| {
            out.fixed64(LAST_FLOW, flow);
            note_int(out, Note::Result, result.into());
        });
    }

    fn op_flow(&self, event: &Event) -> u64 {
        u64::from(self.number) << 32 | u64::from(event.value as u32)
    }

    fn enter(&mut self, out: &mut Output, ns: u64, event: &Event) {
        self.count(out, ns);
        self.enters = true;
        let name = if event.get_detail() == 1 { event_name::WAIT } else { event_name::ENTER };
        let name = self.sequence.static_name(out, name);
        let queued = event.get_extra().into();
        self.sequence.event(out, ns, BEGIN, Some(name), |out| note_uint(out, Note::Queued, queued));
    }

    fn count(&mut self, out: &mut Output, ns: u64) {
        if self.counted != self.in_flight {
            self.counted = self.in_flight;
            self.sequence.counter(out, ns, self.in_flight);
        }
    }

    /// Opens a slice within the running fiber's, which is closed and opened again with it.
    fn open(&mut self, out: &mut Output, ns: u64, name: &'static str) {
        let Some(index) = self.running else { return };
        self.fibers.get(index).within.push(name);
        let name = self.sequence.static_name(out, name);
        self.sequence.event(out, ns, BEGIN, Some(name), |_| ());
    }

    fn close(&mut self, out: &mut Output, ns: u64) {
        let Some(index) = self.running else { return };
        // A slice from before the trace, or from within a gap, is not open here.
        if self.fibers.get(index).within.pop().is_some() {
            self.sequence.event(out, ns, END, None, |_| ());
        }
    }
}

fn name_of(names: &'static [&'static str], number: u8) -> &'static str {
    names.get(usize::from(number)).copied().unwrap_or("?")
}

/// Returns the text, without the part of a character at its end: a long one is cut short.
fn whole_text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).expect("valid up to there"),
    }
}

/// Returns the name of an unnamed fiber: the file (of the library, the module) and line that
/// spawned it.
fn place_name(place: &Location<'_>) -> String {
    let file = place.file();
    let file = module_of_library(file).unwrap_or_else(|| file.rsplit('/').next().unwrap_or(file));
    format!("{file}:{}", place.line())
}

/// Returns the flow to a fiber that another worker wakes.
fn message(worker: u32, index: u32, generation: u64) -> u64 {
    let worker = u64::from(worker & 0x3ff);
    WAKE_FLOW | worker << 50 | (generation & 0x3ffff) << 32 | u64::from(index)
}
