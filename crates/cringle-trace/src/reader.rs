//! Reads a trace packet by packet, in bounded memory, and resolves the worker, time and names of
//! each event.

use super::protobuf::{Fields, Value, varint};
use cringle::trace::wire::{
    HOME_BIT, LIBRARY_NAMES, Note, PACKET, annotation, clock, event as event_field, interned,
    packet as packet_field, tag, track, wire_type,
};
use cringle_report::failure::{Failure, fail};
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes read from the file at once.
const CHUNK: usize = 1 << 20;
/// The longest packet that is accepted. The library writes far shorter ones.
const LONGEST: u64 = 1 << 26;
const PACKET_TAG: u64 = tag(PACKET, wire_type::BYTES);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Other,
    Begin,
    End,
    Instant,
    Counter,
}

/// A name's index in [`Names`].
pub(super) type Name = u32;

/// The identity of a fiber in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Fiber {
    pub(super) number: u64,
    /// The worker that has numbered it.
    pub(super) home: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    pub(super) worker: usize,
    pub(super) ns: u64,
    pub(super) kind: Kind,
    pub(super) name: Name,
    /// The flow that starts or continues at this event; 0 for none.
    pub(super) flow: u64,
    /// The flow that ends at this event; 0 for none.
    pub(super) last_flow: u64,
    pub(super) counter: i64,
    pub(super) fiber: Option<Fiber>,
    pub(super) ready_ns: Option<u64>,
    pub(super) waits_for: Option<Name>,
    /// The number of events that were dropped here.
    pub(super) lost: u64,
    /// The fiber that the event acts on.
    pub(super) of: Option<Fiber>,
    /// Whether the worker enters the kernel here.
    pub(super) enters: bool,
}

/// Every name in the file, without duplicates. Number 0 is the empty name.
pub(super) struct Names {
    /// Each with whether it is that of a fiber of the library.
    all: Vec<(String, bool)>,
    numbers: HashMap<(String, bool), Name>,
}

impl Names {
    fn new() -> Names {
        Names { all: vec![Default::default()], numbers: HashMap::new() }
    }

    fn number(&mut self, name: String, is_of_library: bool) -> Name {
        let next = self.all.len() as Name;
        *self.numbers.entry((name, is_of_library)).or_insert_with_key(|name| {
            self.all.push(name.clone());
            next
        })
    }

    pub(super) fn get(&self, name: Name) -> &str {
        self.all.get(name as usize).map_or("", |(name, _)| name)
    }

    /// Returns whether this is the name of a fiber that the library itself has spawned.
    pub(super) fn is_of_library(&self, name: Name) -> bool {
        self.all.get(name as usize).is_some_and(|(_, is_of_library)| *is_of_library)
    }
}

/// The state of one packet sequence: its clock, and the tables of what it has interned.
#[derive(Default)]
struct Sequence {
    worker: Option<usize>,
    /// The time of the latest event; timestamps are relative to it.
    ns: u64,
    names: HashMap<u64, Name>,
    texts: HashMap<u64, Name>,
    notes: HashMap<u64, Note>,
}

/// The content of the file besides its events.
pub(super) struct Content {
    pub(super) names: Names,
    /// The name of each worker.
    pub(super) workers: Vec<String>,
    namesakes: HashMap<String, usize>,
    pub(super) program: String,
    /// Whether the file ends within a packet.
    pub(super) cut_short: bool,
}

/// Reads the trace at `path` and calls `each` with every event and the content known so far.
pub(super) fn read(path: &Path, each: impl FnMut(&Event, &Content)) -> Result<Content, Failure> {
    let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(failed)?;
    let mut reader = Reader {
        content: Content {
            names: Names::new(),
            workers: Vec::new(),
            namesakes: HashMap::new(),
            program: String::new(),
            cut_short: false,
        },
        sequences: HashMap::new(),
        each,
    };
    let is_whole = packets(file, |packet| reader.packet(packet)).map_err(failed)?;
    reader.content.cut_short = !is_whole;
    if reader.content.workers.is_empty() {
        return fail(format!("{}: not a trace written by cringle", path.display()));
    }
    Ok(reader.content)
}

/// Calls `each` with every packet. Returns whether the file ends at the end of a packet.
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

/// Splits `bytes` after its first packet; `None` if the packet is incomplete.
#[inline]
fn packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = bytes;
    if varint(&mut rest)? != PACKET_TAG {
        return None;
    }
    let length = varint(&mut rest)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// Returns whether `bytes` cannot become a packet, however many bytes follow.
fn is_hopeless(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    match varint(&mut rest) {
        None => bytes.len() >= 10,
        Some(tag) if tag != PACKET_TAG => true,
        Some(_) => varint(&mut rest).is_some_and(|length| length > LONGEST),
    }
}

struct Reader<F> {
    content: Content,
    sequences: HashMap<u64, Sequence>,
    each: F,
}

impl<F: FnMut(&Event, &Content)> Reader<F> {
    fn packet(&mut self, packet: &[u8]) {
        let (mut number, mut since, mut event) = (0, 0, None);
        // Most packets are events, which need one pass.
        let mut has_declarations = false;
        for (field, value) in Fields::new(packet) {
            match field {
                packet_field::TIMESTAMP => since = value.number(),
                packet_field::SEQUENCE => number = value.number(),
                packet_field::TRACK_EVENT => event = Some(value),
                packet_field::CLOCK_SNAPSHOT | packet_field::INTERNED | packet_field::TRACK => {
                    has_declarations = true;
                }
                _ => {}
            }
        }
        let sequence = self.sequences.entry(number).or_default();
        if has_declarations {
            for (field, value) in Fields::new(packet) {
                match field {
                    packet_field::CLOCK_SNAPSHOT => {
                        sequence.ns = clock_start(value).unwrap_or(sequence.ns);
                    }
                    packet_field::INTERNED => intern(sequence, &mut self.content.names, value),
                    packet_field::TRACK => declare_track(sequence, &mut self.content, value),
                    _ => {}
                }
            }
        }
        let (Some(event), Some(worker)) = (event, sequence.worker) else { return };
        sequence.ns = sequence.ns.saturating_add(since);
        let (mut event, sequences) = (read_event(sequence, worker, event), &self.sequences);
        for fiber in [&mut event.fiber, &mut event.of].into_iter().flatten() {
            find_home(fiber, sequences);
        }
        (self.each)(&event, &self.content);
    }
}

/// Resolves the home of a fiber that another worker has numbered: see [`HOME_BIT`].
#[inline]
fn find_home(fiber: &mut Fiber, sequences: &HashMap<u64, Sequence>) {
    let sequence = fiber.number >> HOME_BIT;
    if sequence != 0 {
        let home = sequences.get(&sequence).and_then(|sequence| sequence.worker);
        fiber.home = home.unwrap_or(fiber.home);
        fiber.number &= (1 << HOME_BIT) - 1;
    }
}

/// Returns the time at which the sequence's incremental clock starts.
fn clock_start(snapshot: Value<'_>) -> Option<u64> {
    snapshot.fields().find_map(|(_, reading)| {
        let (mut ns, mut is_incremental) = (0, false);
        for (field, value) in reading.fields() {
            match field {
                clock::TIMESTAMP => ns = value.number(),
                clock::IS_INCREMENTAL => is_incremental = value.number() == 1,
                _ => {}
            }
        }
        is_incremental.then_some(ns)
    })
}

/// Adds the entries of an `InternedData` message to the sequence's tables.
fn intern(sequence: &mut Sequence, names: &mut Names, data: Value<'_>) {
    for (table, entry) in data.fields() {
        let (mut number, mut name) = (0, String::new());
        for (field, value) in entry.fields() {
            match field {
                interned::ID => number = value.number(),
                interned::NAME => name = value.text(),
                _ => {}
            }
        }
        match table {
            interned::EVENT_NAMES => {
                let name = names.number(name, number >= LIBRARY_NAMES);
                sequence.names.insert(number, name);
            }
            interned::ANNOTATION_NAMES => {
                if let Some((note, _)) = Note::NAMES.iter().find(|(_, known)| *known == name) {
                    sequence.notes.insert(number, *note);
                }
            }
            interned::TEXTS => drop(sequence.texts.insert(number, names.number(name, false))),
            _ => {}
        }
    }
}

/// Returns a name that no worker has: each runtime of a process has a `worker 0`, and the second
/// one's becomes `worker 0 (2)`. `namesakes` counts the workers of each name.
fn unique_name(name: String, namesakes: &mut HashMap<String, usize>) -> String {
    let count = namesakes.entry(name.clone()).or_default();
    *count += 1;
    if *count == 1 { name } else { format!("{name} ({count})") }
}

/// Records the track of a worker or of its process.
fn declare_track(sequence: &mut Sequence, content: &mut Content, descriptor: Value<'_>) {
    let text = |message: Value<'_>, wanted: u32| {
        let field = message.fields().find(|(field, _)| *field == wanted);
        field.map(|(_, value)| value.text()).unwrap_or_default()
    };
    for (field, value) in descriptor.fields() {
        match field {
            track::PROCESS => content.program = text(value, track::PROCESS_NAME),
            track::THREAD => {
                sequence.worker = Some(content.workers.len());
                let name = text(value, track::THREAD_NAME);
                content.workers.push(unique_name(name, &mut content.namesakes));
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
            event_field::TYPE => {
                read.kind = match value.number() {
                    event_field::BEGIN => Kind::Begin,
                    event_field::END => Kind::End,
                    event_field::INSTANT => Kind::Instant,
                    event_field::COUNTER => Kind::Counter,
                    _ => Kind::Other,
                }
            }
            event_field::NAME => {
                read.name = sequence.names.get(&value.number()).copied().unwrap_or(0);
            }
            event_field::COUNTER_VALUE => read.counter = value.number() as i64,
            event_field::FLOW => read.flow = value.number(),
            event_field::LAST_FLOW => read.last_flow = value.number(),
            event_field::ANNOTATION => annotate(&mut read, sequence, value),
            _ => {}
        }
    }
    read
}

#[inline]
fn annotate(event: &mut Event, sequence: &Sequence, message: Value<'_>) {
    let (mut note, mut number, mut text) = (None, 0, 0);
    for (field, value) in message.fields() {
        match field {
            annotation::NAME => note = sequence.notes.get(&value.number()).copied(),
            annotation::UINT | annotation::INT => number = value.number(),
            annotation::TEXT => text = sequence.texts.get(&value.number()).copied().unwrap_or(0),
            _ => {}
        }
    }
    let fiber = Fiber { home: event.worker, number };
    match note {
        Some(Note::Fiber) => event.fiber = Some(fiber),
        Some(Note::ReadyNs) => event.ready_ns = Some(number),
        Some(Note::WaitsFor) => event.waits_for = Some(text),
        Some(Note::Lost) => event.lost = number,
        Some(Note::Of) => event.of = Some(fiber),
        Some(Note::Queued) => event.enters = true,
        Some(Note::Result | Note::DueNs | Note::Reason) | None => {}
    }
}
