//! The file, packet by packet: each event with its worker, its time, and its names looked up.

use super::protobuf::{Fields, Value, varint};
use cringle_report::failure::{Failure, fail};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const CHUNK: usize = 1 << 20;
/// No packet of ours is longer by far.
const LONGEST: u64 = 1 << 26;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Other,
    Begin,
    End,
    Instant,
    Counter,
}

/// A name, by its number in [`Names`].
pub(super) type Name = u32;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    pub(super) worker: usize,
    pub(super) ns: u64,
    pub(super) kind: Kind,
    pub(super) name: Name,
    /// What begins here, or goes on; 0 if nothing.
    pub(super) flow: u64,
    /// What ends here.
    pub(super) last_flow: u64,
    pub(super) counter: i64,
    pub(super) fiber: Option<u64>,
    pub(super) ready_ns: Option<u64>,
    pub(super) waits_for: Option<Name>,
    pub(super) lost: u64,
    /// The fiber that it is about.
    pub(super) of: Option<u64>,
    /// Whether the kernel is entered: with so many entries, which is not kept.
    pub(super) enters: bool,
}

/// All names of the file. Number 0 is none.
pub(super) struct Names {
    all: Vec<String>,
    numbers: HashMap<String, Name>,
}

impl Names {
    fn new() -> Names {
        Names { all: vec![String::new()], numbers: HashMap::new() }
    }

    fn number(&mut self, name: String) -> Name {
        let next = self.all.len() as Name;
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.all.push(name.clone());
            next
        })
    }

    pub(super) fn get(&self, name: Name) -> &str {
        self.all.get(name as usize).map_or("", String::as_str)
    }
}

/// A row of packets with its own clock and tables.
#[derive(Default)]
struct Sequence {
    worker: Option<usize>,
    ns: u64,
    names: HashMap<u64, Name>,
    texts: HashMap<u64, Name>,
    notes: HashMap<u64, Note>,
}

#[derive(Clone, Copy)]
enum Note {
    Fiber,
    ReadyNs,
    WaitsFor,
    Lost,
    Of,
    Queued,
    Other,
}

/// What is in the file besides events.
pub(super) struct Content {
    pub(super) names: Names,
    /// What each worker is called.
    pub(super) workers: Vec<String>,
    pub(super) program: String,
    /// The file ends within a packet.
    pub(super) cut_short: bool,
}

pub(super) fn read(path: &Path, each: impl FnMut(&Event, &Content)) -> Result<Content, Failure> {
    let told = |e: std::io::Error| Failure::failed(format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(told)?;
    let mut reader = Reader {
        found: Content {
            names: Names::new(),
            workers: Vec::new(),
            program: String::new(),
            cut_short: false,
        },
        sequences: HashMap::new(),
        each,
    };
    let whole = packets(file, |packet| reader.packet(packet)).map_err(told)?;
    reader.found.cut_short = !whole;
    match reader.found.workers.is_empty() {
        true => fail(format!("{}: there is no trace of cringle's in it", path.display())),
        false => Ok(reader.found),
    }
}

/// Calls `each` with every packet; whether the file ends with one.
fn packets(mut file: impl Read, mut each: impl FnMut(&[u8])) -> std::io::Result<bool> {
    let mut buf = Vec::with_capacity(2 * CHUNK);
    loop {
        let before = buf.len();
        let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut buf)?;
        debug_assert_eq!(buf.len(), before + read);
        let mut rest = &buf[..];
        while let Some((packet, after)) = packet(rest) {
            each(packet);
            rest = after;
        }
        let left = rest.len();
        if read == 0 {
            return Ok(left == 0);
        }
        if is_hopeless(rest) {
            return Ok(false);
        }
        buf.drain(..buf.len() - left);
    }
}

/// The first packet, if all of it is here, and what follows it.
#[inline]
fn packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = bytes;
    if varint(&mut rest)? != 1 << 3 | 2 {
        return None;
    }
    let length = varint(&mut rest)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// Whether no packet begins here, whatever follows.
fn is_hopeless(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    match varint(&mut rest) {
        None => bytes.len() >= 10,
        Some(tag) if tag != 1 << 3 | 2 => true,
        Some(_) => varint(&mut rest).is_some_and(|length| length > LONGEST),
    }
}

struct Reader<F> {
    found: Content,
    sequences: HashMap<u64, Sequence>,
    each: F,
}

impl<F: FnMut(&Event, &Content)> Reader<F> {
    fn packet(&mut self, packet: &[u8]) {
        let (mut number, mut since, mut event) = (0, 0, None);
        let mut rare = false;
        for (field, value) in Fields::new(packet) {
            match field {
                8 => since = value.number(),
                10 => number = value.number(),
                11 => event = Some(value),
                6 | 12 | 60 => rare = true,
                _ => {}
            }
        }
        let sequence = self.sequences.entry(number).or_default();
        if rare {
            for (field, value) in Fields::new(packet) {
                match field {
                    6 => sequence.ns = own_clock(value).unwrap_or(sequence.ns),
                    12 => learn(sequence, &mut self.found.names, value),
                    60 => declare(sequence, &mut self.found, value),
                    _ => {}
                }
            }
        }
        let (Some(event), Some(worker)) = (event, sequence.worker) else { return };
        sequence.ns += since;
        let event = read_event(sequence, worker, event);
        (self.each)(&event, &self.found);
    }
}

/// The time at which the sequence's own clock begins.
fn own_clock(snapshot: Value<'_>) -> Option<u64> {
    snapshot.fields().find_map(|(_, clock)| {
        let (mut ns, mut own) = (0, false);
        for (field, value) in clock.fields() {
            match field {
                2 => ns = value.number(),
                3 => own = value.number() == 1,
                _ => {}
            }
        }
        own.then_some(ns)
    })
}

fn learn(sequence: &mut Sequence, names: &mut Names, data: Value<'_>) {
    for (table, entry) in data.fields() {
        let (mut number, mut name) = (0, String::new());
        for (field, value) in entry.fields() {
            match field {
                1 => number = value.number(),
                2 => name = value.text(),
                _ => {}
            }
        }
        match table {
            2 => drop(sequence.names.insert(number, names.number(name))),
            3 => drop(sequence.notes.insert(number, note(&name))),
            29 => drop(sequence.texts.insert(number, names.number(name))),
            _ => {}
        }
    }
}

fn note(name: &str) -> Note {
    match name {
        "fiber" => Note::Fiber,
        "ready_ns" => Note::ReadyNs,
        "waits_for" => Note::WaitsFor,
        "lost" => Note::Lost,
        "of" => Note::Of,
        "queued" => Note::Queued,
        _ => Note::Other,
    }
}

/// Each runtime of a process has a worker 0: the second one's is `worker 0 (2)`.
fn told_apart(name: String, others: &[String]) -> String {
    let namesake = |other: &&String| {
        other.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
    };
    match others.iter().filter(namesake).count() {
        0 => name,
        before => format!("{name} ({})", before + 1),
    }
}

/// A track: a worker's, or its process's.
fn declare(sequence: &mut Sequence, found: &mut Content, track: Value<'_>) {
    for (field, value) in track.fields() {
        match field {
            3 => {
                let name = value.fields().find(|(field, _)| *field == 6);
                found.program = name.map(|(_, name)| name.text()).unwrap_or_default();
            }
            4 => {
                let name = value.fields().find(|(field, _)| *field == 5);
                sequence.worker = Some(found.workers.len());
                let name = name.map(|(_, name)| name.text()).unwrap_or_default();
                found.workers.push(told_apart(name, &found.workers));
            }
            _ => {}
        }
    }
}

#[inline]
fn read_event(sequence: &Sequence, worker: usize, event: Value<'_>) -> Event {
    let mut read = Event { worker, ns: sequence.ns, ..Event::default() };
    for (field, value) in event.fields() {
        match field {
            9 => {
                read.kind = match value.number() {
                    1 => Kind::Begin,
                    2 => Kind::End,
                    3 => Kind::Instant,
                    4 => Kind::Counter,
                    _ => Kind::Other,
                }
            }
            10 => read.name = sequence.names.get(&value.number()).copied().unwrap_or(0),
            30 => read.counter = value.number() as i64,
            47 => read.flow = value.number(),
            48 => read.last_flow = value.number(),
            4 => annotate(&mut read, sequence, value),
            _ => {}
        }
    }
    read
}

#[inline]
fn annotate(event: &mut Event, sequence: &Sequence, annotation: Value<'_>) {
    let (mut note, mut number, mut text) = (Note::Other, 0, 0);
    for (field, value) in annotation.fields() {
        match field {
            1 => note = sequence.notes.get(&value.number()).copied().unwrap_or(Note::Other),
            3 | 4 => number = value.number(),
            17 => text = sequence.texts.get(&value.number()).copied().unwrap_or(0),
            _ => {}
        }
    }
    match note {
        Note::Fiber => event.fiber = Some(number),
        Note::ReadyNs => event.ready_ns = Some(number),
        Note::WaitsFor => event.waits_for = Some(text),
        Note::Lost => event.lost = number,
        Note::Of => event.of = Some(number),
        Note::Queued => event.enters = true,
        Note::Other => {}
    }
}
