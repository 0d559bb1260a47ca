//! The packets of one worker, with their clock and their table of names.

use super::output::{Output, Short};
use crate::trace::wire::{
    LIBRARY_NAMES, Note, PACKET, PROCESS_TRACK, annotation, clock, defaults, event, interned,
    packet, track,
};
use cringle_driver::trace::queue::Origin;
use std::collections::HashMap;

/// The number of distinct event names. Later names share [`OTHERS`], so that memory is bounded if a
/// program names each of its fibers differently.
const MAX_NAMES: usize = 1 << 16;
const OTHERS: &str = "(others)";

/// The packets of one worker. See the [module](self).
pub(super) struct Sequence {
    number: u32,
    last: u64,
    /// The number of events written, without counters.
    pub(super) events: u64,
    names: HashMap<Box<str>, u64>,
    /// The names of the library's own fibers.
    library_names: HashMap<Box<str>, u64>,
    texts: HashMap<Box<str>, u64>,
    name_cache: AddressCache,
    text_cache: AddressCache,
}

/// A cache of the numbers of `'static` names, by their addresses, which serves most events.
struct AddressCache([(*const u8, usize, u64); ENTRIES]);

const ENTRIES: usize = 128;

// SAFETY: no pointer is dereferenced: the addresses are only compared.
unsafe impl Send for AddressCache {}

impl AddressCache {
    fn new() -> AddressCache {
        AddressCache([(std::ptr::null(), 0, 0); ENTRIES])
    }

    fn entry(&mut self, name: &'static str) -> &mut (*const u8, usize, u64) {
        let hash = (name.as_ptr() as usize).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        &mut self.0[hash % ENTRIES]
    }

    fn get(&mut self, name: &'static str) -> Option<u64> {
        let (start, length, number) = *self.entry(name);
        (start == name.as_ptr() && length == name.len()).then_some(number)
    }
}

impl Sequence {
    /// Writes the declarations of the worker: its track, its counter, its clock and its
    /// annotations.
    pub(super) fn new(out: &mut Output, origin: Origin, began: u64) -> Sequence {
        let number = origin.sequence;
        write_process_and_clock(out, number, began);
        let mut sequence = Sequence {
            number,
            last: began,
            events: 0,
            names: HashMap::new(),
            library_names: HashMap::new(),
            texts: HashMap::new(),
            name_cache: AddressCache::new(),
            text_cache: AddressCache::new(),
        };
        sequence.packet(out, |out| {
            out.message(packet::TRACK, |out| {
                out.uint(track::UUID, track_of(number));
                out.message(track::THREAD, |out| {
                    out.uint(track::PID, std::process::id().into());
                    out.uint(track::TID, origin.thread.into());
                    out.text(track::THREAD_NAME, &format!("worker {}", origin.worker));
                });
            });
        });
        sequence.packet(out, |out| {
            out.message(packet::TRACK, |out| {
                out.uint(track::UUID, counter_of(number));
                out.uint(track::PARENT, track_of(number));
                out.text(track::NAME, "ops in flight");
                out.message(track::COUNTER, |_| ());
            });
        });
        sequence.packet(out, |out| {
            out.message(packet::INTERNED, |out| {
                for (note, name) in Note::NAMES {
                    entry(out, interned::ANNOTATION_NAMES, note as u64, name);
                }
            });
        });
        sequence
    }

    /// Returns the time, or the time of the last event if that is later, because differences are
    /// unsigned.
    pub(super) fn after_last(&self, ns: u64) -> u64 {
        ns.max(self.last)
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    fn packet(&mut self, out: &mut Output, fill: impl FnOnce(&mut Output)) {
        out.message(PACKET, |out| {
            out.uint(packet::SEQUENCE, self.number.into());
            out.uint(packet::FLAGS, packet::NEEDED);
            fill(out);
        });
    }

    /// Writes an event of this worker's track.
    #[inline(always)]
    pub(super) fn event(
        &mut self,
        out: &mut Output,
        ns: u64,
        kind: u64,
        name: Option<u64>,
        fill: impl FnOnce(&mut Short<'_>),
    ) {
        self.events += u64::from(kind != event::COUNTER);
        let since = ns.saturating_sub(self.last);
        self.last += since;
        let number = self.number.into();
        out.short(|out| {
            out.message(PACKET, |out| {
                out.uint(packet::SEQUENCE, number);
                out.uint(packet::FLAGS, packet::NEEDED);
                out.uint(packet::TIMESTAMP, since);
                out.message(packet::TRACK_EVENT, |out| {
                    out.uint(event::TYPE, kind);
                    if let Some(name) = name {
                        out.uint(event::NAME, name);
                    }
                    fill(out);
                });
            });
        });
    }

    pub(super) fn counter(&mut self, out: &mut Output, ns: u64, value: i64) {
        let track = counter_of(self.number);
        self.event(out, ns, event::COUNTER, None, |out| {
            out.uint(event::TRACK, track);
            out.int(event::COUNTER_VALUE, value);
        });
    }

    /// Records that packets of this sequence are missing.
    pub(super) fn gap(&mut self, out: &mut Output) {
        self.packet(out, |out| out.uint(packet::PREVIOUS_DROPPED, 1));
    }

    /// Returns the number of an event name that is a `'static` string.
    #[inline]
    pub(super) fn static_name(&mut self, out: &mut Output, name: &'static str) -> u64 {
        if let Some(number) = self.name_cache.get(name) {
            return number;
        }
        let number = self.name(out, name);
        *self.name_cache.entry(name) = (name.as_ptr(), name.len(), number);
        number
    }

    /// Returns the number of an event name, and writes the name at its first use.
    pub(super) fn name(&mut self, out: &mut Output, name: &str) -> u64 {
        self.fiber_name(out, name, false)
    }

    /// [`name`](Self::name) for the name of a fiber, which the library may have spawned itself.
    pub(super) fn fiber_name(&mut self, out: &mut Output, name: &str, by_library: bool) -> u64 {
        let (names, first) = match by_library {
            true => (&mut self.library_names, LIBRARY_NAMES),
            false => (&mut self.names, 1),
        };
        if let Some(&number) = names.get(name) {
            return number;
        }
        let name = if names.len() < MAX_NAMES { name } else { OTHERS };
        if let Some(&number) = names.get(name) {
            return number;
        }
        let number = first + names.len() as u64;
        names.insert(name.into(), number);
        self.packet(out, |out| {
            out.message(packet::INTERNED, |out| entry(out, interned::EVENT_NAMES, number, name));
        });
        number
    }

    /// Returns the number of an annotation's text, and writes the text at its first use.
    #[inline]
    pub(super) fn text(&mut self, out: &mut Output, text: &'static str) -> u64 {
        if let Some(number) = self.text_cache.get(text) {
            return number;
        }
        let number = self.find_text(out, text);
        *self.text_cache.entry(text) = (text.as_ptr(), text.len(), number);
        number
    }

    fn find_text(&mut self, out: &mut Output, text: &str) -> u64 {
        if let Some(&number) = self.texts.get(text) {
            return number;
        }
        let number = self.texts.len() as u64 + 1;
        self.texts.insert(text.into(), number);
        self.packet(out, |out| {
            out.message(packet::INTERNED, |out| entry(out, interned::TEXTS, number, text));
        });
        number
    }
}

/// Writes the packets that declare the process, the clock of the sequence and its defaults.
fn write_process_and_clock(out: &mut Output, number: u32, began: u64) {
    out.message(PACKET, |out| {
        out.uint(packet::SEQUENCE, number.into());
        out.message(packet::TRACK, |out| {
            out.uint(track::UUID, PROCESS_TRACK);
            out.message(track::PROCESS, |out| {
                out.uint(track::PID, std::process::id().into());
                out.text(track::PROCESS_NAME, &program());
            });
        });
    });
    out.message(PACKET, |out| {
        out.uint(packet::SEQUENCE, number.into());
        out.uint(packet::FLAGS, packet::CLEARED);
        out.message(packet::CLOCK_SNAPSHOT, |out| {
            out.message(clock::CLOCKS, |out| {
                out.uint(clock::ID, clock::BOOTTIME);
                out.uint(clock::TIMESTAMP, began);
            });
            out.message(clock::CLOCKS, |out| {
                out.uint(clock::ID, clock::OURS);
                out.uint(clock::TIMESTAMP, began);
                out.uint(clock::IS_INCREMENTAL, 1);
            });
        });
        out.message(packet::DEFAULTS, |out| {
            out.uint(defaults::CLOCK, clock::OURS);
            out.message(defaults::TRACK_EVENT, |out| {
                out.uint(defaults::TRACK, track_of(number));
            });
        });
    });
}

#[inline(always)]
pub(super) fn note_uint(out: &mut Short<'_>, note: Note, value: u64) {
    out.message(event::ANNOTATION, |out| {
        out.uint(annotation::NAME, note as u64);
        out.uint(annotation::UINT, value);
    });
}

#[inline(always)]
pub(super) fn note_int(out: &mut Short<'_>, note: Note, value: i64) {
    out.message(event::ANNOTATION, |out| {
        out.uint(annotation::NAME, note as u64);
        out.int(annotation::INT, value);
    });
}

#[inline(always)]
pub(super) fn note_text(out: &mut Short<'_>, note: Note, text: u64) {
    out.message(event::ANNOTATION, |out| {
        out.uint(annotation::NAME, note as u64);
        out.uint(annotation::TEXT, text);
    });
}

fn entry(out: &mut Output, table: u32, number: u64, name: &str) {
    out.message(table, |out| {
        out.uint(interned::ID, number);
        out.text(interned::NAME, name);
    });
}

fn track_of(sequence: u32) -> u64 {
    u64::from(sequence) * 2
}

fn counter_of(sequence: u32) -> u64 {
    u64::from(sequence) * 2 + 1
}

fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
