//! Reads traces with a parser generated from Perfetto's own definitions, independent of the
//! library.

use cringle::block::Batch;
use cringle::fs::File;
use cringle::os::unix::net::UnixStream;
use cringle::runtime::{Balance, DriverChoice};
use cringle::{Builder, fiber, trace};
use perfetto_protos::trace::Trace;
use perfetto_protos::trace_packet::TracePacket;
use perfetto_protos::track_event::track_event::Type;
use protobuf::Message;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An event with its interned names resolved.
#[derive(Debug)]
struct Event {
    sequence: u32,
    ns: u64,
    kind: Type,
    name: String,
    flows: Vec<u64>,
    last_flows: Vec<u64>,
    notes: HashMap<String, u64>,
    texts: HashMap<String, String>,
    counter: Option<i64>,
}

#[derive(Default)]
struct Sequence {
    names: HashMap<u64, String>,
    notes: HashMap<u64, String>,
    texts: HashMap<u64, String>,
    now: u64,
}

/// Reads a file as Perfetto does: each sequence has its own clock and its own tables.
fn read(path: &Path) -> (Vec<Event>, Vec<String>) {
    let trace = Trace::parse_from_bytes(&std::fs::read(path).unwrap()).expect("a valid trace");
    let mut sequences: HashMap<u32, Sequence> = HashMap::new();
    let (mut events, mut threads) = (Vec::new(), Vec::new());
    for packet in &trace.packet {
        let number = packet.trusted_packet_sequence_id();
        assert_ne!(number, 0, "every packet belongs to a sequence");
        let sequence = sequences.entry(number).or_default();
        read_declarations(sequence, packet);
        if packet.has_track_descriptor() && packet.track_descriptor().thread.is_some() {
            threads.push(packet.track_descriptor().thread.thread_name().to_owned());
        }
        if packet.has_track_event() {
            sequence.now += packet.timestamp();
            events.push(event(number, sequence, packet));
        }
    }
    (events, threads)
}

/// Reads the clock and the interned names of a packet.
fn read_declarations(sequence: &mut Sequence, packet: &TracePacket) {
    if packet.has_clock_snapshot() {
        let clocks = &packet.clock_snapshot().clocks;
        let ours =
            clocks.iter().find(|clock| clock.is_incremental()).expect("the sequence has a clock");
        assert_eq!(packet.trace_packet_defaults.timestamp_clock_id(), ours.clock_id());
        sequence.now = ours.timestamp();
    }
    let data = &packet.interned_data;
    for entry in &data.event_names {
        assert!(sequence.names.insert(entry.iid(), entry.name().to_owned()).is_none());
    }
    for entry in &data.debug_annotation_names {
        sequence.notes.insert(entry.iid(), entry.name().to_owned());
    }
    for entry in &data.debug_annotation_string_values {
        let text = String::from_utf8(entry.str().to_vec()).unwrap();
        sequence.texts.insert(entry.iid(), text);
    }
}

fn event(number: u32, sequence: &Sequence, packet: &TracePacket) -> Event {
    let event = packet.track_event();
    let mut read = Event {
        sequence: number,
        ns: sequence.now,
        kind: event.type_(),
        name: String::new(),
        flows: event.flow_ids.clone(),
        last_flows: event.terminating_flow_ids.clone(),
        notes: HashMap::new(),
        texts: HashMap::new(),
        counter: event.has_counter_value().then(|| event.counter_value()),
    };
    if event.has_name_iid() {
        read.name = sequence.names[&event.name_iid()].clone();
    }
    for note in &event.debug_annotations {
        let name = sequence.notes[&note.name_iid()].clone();
        if note.has_string_value_iid() {
            read.texts.insert(name, sequence.texts[&note.string_value_iid()].clone());
        } else {
            let value =
                if note.has_int_value() { note.int_value() as u64 } else { note.uint_value() };
            read.notes.insert(name, value);
        }
    }
    read
}

/// Asserts that every slice ends, and within the slice in which it began.
fn assert_nested(events: &[Event]) {
    let mut open: HashMap<u32, i64> = HashMap::new();
    for event in events {
        let depth = open.entry(event.sequence).or_default();
        match event.kind {
            Type::TYPE_SLICE_BEGIN => *depth += 1,
            Type::TYPE_SLICE_END => *depth -= 1,
            _ => {}
        }
        assert!(*depth >= 0, "a slice ends without a beginning: {event:?}");
    }
    assert!(open.values().all(|&depth| depth == 0), "slices are left open: {open:?}");
}

fn traced<T>(
    workers: usize,
    f: impl FnOnce() -> T,
) -> (Vec<Event>, Vec<String>, trace::Written, T) {
    traced_by(Builder::new().workers(workers), f)
}

fn traced_by<T>(
    builder: Builder,
    f: impl FnOnce() -> T,
) -> (Vec<Event>, Vec<String>, trace::Written, T) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.pftrace");
    let trace = trace::start(&path).unwrap();
    let value = builder.run(f).unwrap();
    let written = trace.finish().unwrap();
    assert_eq!(written.bytes, std::fs::metadata(&path).unwrap().len());
    let (events, threads) = read(&path);
    assert_nested(&events);
    (events, threads, written, value)
}

/// Serialises the tests: a process has at most one trace at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn named<'a>(events: &'a [Event], kind: Type, name: &'a str) -> impl Iterator<Item = &'a Event> {
    events.iter().filter(move |event| event.kind == kind && event.name == name)
}

#[test]
fn every_op_has_a_flow_from_its_push_to_its_completion() {
    let _alone = ALONE.lock();
    const WRITES: usize = 100;
    let (events, _, written, ()) = traced(1, || {
        let file = File::from(tempfile::tempfile().unwrap());
        fiber::scope(|s| {
            for _ in 0..WRITES {
                s.spawn_local(|| file.write_all_at(&[0; 64], 0).unwrap());
            }
        });
    });
    assert_eq!(written.lost, 0);
    let pushed: Vec<u64> =
        named(&events, Type::TYPE_INSTANT, "write").flat_map(|event| event.flows.clone()).collect();
    let done: Vec<&Event> = named(&events, Type::TYPE_INSTANT, "write done").collect();
    let ended: HashSet<u64> = done.iter().flat_map(|event| event.last_flows.clone()).collect();
    assert!(pushed.len() >= WRITES - 64, "only the first are tried inline: {}", pushed.len());
    assert_eq!(pushed.iter().copied().collect::<HashSet<_>>().len(), pushed.len());
    assert_eq!(pushed.iter().copied().collect::<HashSet<_>>(), ended);
    assert!(done.iter().all(|event| event.notes["result"] == 64));
    let depth = events.iter().filter_map(|event| event.counter).max().unwrap();
    assert!(depth >= 1 && depth <= WRITES as i64, "{depth}");
    let last = events.iter().rev().find_map(|event| event.counter).unwrap();
    assert_eq!(last, 0, "no op is in flight at the end");
}

/// 64 reads fill a queue of 8 entries repeatedly, so that the fiber that pushes enters the kernel.
#[test]
fn a_push_that_submits_is_a_nested_slice() {
    let _alone = ALONE.lock();
    let ring = Builder::new().workers(1).driver(DriverChoice::Uring).ring_entries(8);
    let (events, ..) = traced_by(ring, || {
        let file = File::open("/proc/self/exe").unwrap();
        let mut bufs = [[0; 64]; 64];
        let mut batch = Batch::new();
        for buf in &mut bufs {
            batch.read(&file, buf, 0);
        }
        assert!(batch.submit().iter().all(|read| read.is_ok()));
    });
    let (mut depth, mut within, mut submitted) = (0, 0, 0);
    for event in &events {
        match event.kind {
            Type::TYPE_SLICE_BEGIN => {
                if event.name == "enter" && depth > 0 {
                    within += 1;
                    submitted += event.notes["queued"];
                }
                depth += 1;
            }
            Type::TYPE_SLICE_END => depth -= 1,
            _ => {}
        }
    }
    assert!(within >= 7, "{within} slices within a fiber's");
    assert!(submitted >= 56, "{submitted} ops submitted there");
}

/// While the worker enters the kernel, the driver pushes more cancels than the queue has room for.
#[test]
fn an_enter_contains_no_other_enter() {
    let _alone = ALONE.lock();
    let ring = Builder::new().workers(1).driver(DriverChoice::Uring).ring_entries(8);
    let (events, ..) = traced_by(ring, || {
        let pairs: Vec<_> = (0..64).map(|_| UnixStream::pair().unwrap()).collect();
        fiber::scope(|s| {
            for (near, _) in &pairs {
                s.spawn_local(|| (&*near).read(&mut [0]).unwrap_err());
            }
            fiber::yield_now();
            s.cancel();
        });
    });
    assert!(named(&events, Type::TYPE_INSTANT, "cancel").count() >= 64);
    let mut open = Vec::new();
    for event in &events {
        match event.kind {
            Type::TYPE_SLICE_BEGIN => {
                let is_nested = open.last().is_some_and(|name| *name == "enter" || *name == "wait");
                assert!(!is_nested, "a slice within an enter: {event:?}");
                open.push(&event.name[..]);
            }
            Type::TYPE_SLICE_END => drop(open.pop()),
            _ => {}
        }
    }
}

#[test]
fn fibers_are_slices_that_name_their_waits() {
    let _alone = ALONE.lock();
    let (events, threads, ..) = traced(2, || {
        let (sender, receiver) = cringle::sync::mpsc::channel();
        let there = fiber::Builder::new().name("there".into()).worker(1);
        let there = there.spawn(move || {
            sender.send(1).unwrap();
            fiber::sleep(std::time::Duration::from_millis(2));
        });
        assert_eq!(receiver.recv(), Ok(1));
        there.unwrap().join().unwrap();
    });
    let mut threads = threads;
    threads.sort();
    threads.dedup();
    assert_eq!(threads, ["worker 0", "worker 1"]);
    let main: HashSet<u32> =
        named(&events, Type::TYPE_SLICE_BEGIN, "main").map(|event| event.sequence).collect();
    let there: HashSet<u32> =
        named(&events, Type::TYPE_SLICE_BEGIN, "there").map(|event| event.sequence).collect();
    assert!(main.len() == 1 && there.len() == 1 && main != there, "{main:?} {there:?}");
    let waits: HashSet<&str> = events
        .iter()
        .filter_map(|event| event.texts.get("waits_for"))
        .map(String::as_str)
        .collect();
    assert!(
        waits.contains("sleep") && waits.contains("join") && waits.contains("end"),
        "{waits:?}"
    );
    let asleep = events
        .iter()
        .position(|event| event.texts.get("waits_for").is_some_and(|what| what == "sleep"));
    let asleep = asleep.unwrap();
    let awake = events[asleep..].iter().find(|event| event.name == "there").unwrap();
    assert!(awake.ns - events[asleep].ns >= 1_900_000, "the fiber sleeps for 2 ms");
    // Flows lead from a spawn to the fiber's start, and from a sender to the receiver that it
    // wakes.
    let starts: HashSet<u64> = events.iter().flat_map(|event| event.flows.clone()).collect();
    let begun: Vec<u64> = named(&events, Type::TYPE_SLICE_BEGIN, "there")
        .chain(named(&events, Type::TYPE_SLICE_BEGIN, "main"))
        .flat_map(|event| event.last_flows.clone())
        .collect();
    assert!(begun.len() >= 2 && begun.iter().all(|flow| starts.contains(flow)), "{begun:?}");
}

#[test]
fn spans_scopes_and_cancels_are_recorded() {
    let _alone = ALONE.lock();
    let (events, _, _, spawned) = traced(1, || {
        let _outer = trace::span("outer");
        fiber::scope(|s| {
            let spawned = line!() + 1;
            s.spawn_local(|| fiber::sleep(std::time::Duration::from_secs(3600)));
            fiber::yield_now();
            s.cancel();
            spawned
        })
    });
    // The main fiber suspends within both, which splits their slices.
    assert!(named(&events, Type::TYPE_SLICE_BEGIN, "outer").count() >= 2);
    assert!(named(&events, Type::TYPE_SLICE_BEGIN, "scope").count() >= 2);
    let cancels: Vec<&Event> = named(&events, Type::TYPE_INSTANT, "cancel").collect();
    assert!(cancels.iter().any(|event| event.texts["reason"] == "cancelled"), "{cancels:?}");
    assert!(
        named(&events, Type::TYPE_INSTANT, "timer set")
            .any(|event| event.notes["due_ns"] > 1_000_000_000)
    );
    // The sleeping fiber has no name, and is named after the place that spawned it.
    let place = format!("trace.rs:{spawned}");
    assert!(named(&events, Type::TYPE_SLICE_BEGIN, &place).next().is_some(), "{place}");
}

/// Runs 20 fibers that move at every chance. False where fibers cannot move: the reason is printed.
fn roam(steps: usize) -> bool {
    let run = Builder::new().workers(3).balance(Balance::Restless).run(|| {
        fiber::scope(|s| {
            for _ in 0..20 {
                s.spawn(move || {
                    let _all = trace::span("all");
                    (0..steps).for_each(|_| fiber::yield_now());
                });
            }
        });
    });
    match run {
        Err(e) if e.kind() == std::io::ErrorKind::Unsupported => {
            println!("skipped: {e}");
            false
        }
        run => {
            run.unwrap();
            true
        }
    }
}

/// The sequence that has numbered a fiber, and the number.
fn identity(event: &Event, note: &str) -> (u32, u64) {
    let number = event.notes[note];
    match (number >> 32) as u32 {
        0 => (event.sequence, number),
        home => (home, number & u64::from(u32::MAX)),
    }
}

#[test]
fn a_flow_leads_from_a_departure_to_the_arrival() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("moves.pftrace");
    let trace = trace::start(&path).unwrap();
    let has_moved = roam(50);
    assert_eq!(trace.finish().unwrap().lost, 0);
    if !has_moved {
        return;
    }
    let (events, _) = read(&path);
    assert_nested(&events);
    let mut left = HashMap::new();
    let mut moves = 0;
    for event in &events {
        match &event.name[..] {
            "depart" => assert!(left.insert(event.flows[0], event).is_none()),
            "arrive" => {
                let from = left.remove(&event.last_flows[0]).expect("the departure was before");
                assert_ne!(from.sequence, event.sequence);
                assert!(from.ns <= event.ns, "{from:?}, {event:?}");
                assert_eq!(identity(from, "of"), identity(event, "of"));
                moves += 1;
            }
            _ => {}
        }
    }
    assert!(moves >= 20 * 50, "{moves} moves");
    assert!(left.is_empty(), "each fiber has arrived");
    let slices = events.iter().filter(|event| event.notes.contains_key("fiber"));
    let fibers: HashSet<_> = slices.clone().map(|event| identity(event, "fiber")).collect();
    assert_eq!(fibers.len(), 21, "{fibers:?}");
    // A span that is open over a move continues on the other row.
    let rows = named(&events, Type::TYPE_SLICE_BEGIN, "all").map(|event| event.sequence);
    assert_eq!(rows.collect::<HashSet<_>>().len(), 3);
}

#[test]
fn lost_departures_hold_no_arrival_back() {
    let _alone = ALONE.lock();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.pftrace");
    let trace = trace::Builder::new().events(64).start(&path).unwrap();
    let has_moved = roam(5_000);
    let written = trace.finish().unwrap();
    if !has_moved {
        return;
    }
    assert!(written.lost > 0, "a buffer of 64 events has room for all: {written:?}");
    let (events, _) = read(&path);
    assert_nested(&events);
    let departed: HashSet<u64> = named(&events, Type::TYPE_INSTANT, "depart")
        .flat_map(|event| event.flows.clone())
        .collect();
    let mut arrived =
        named(&events, Type::TYPE_INSTANT, "arrive").flat_map(|e| e.last_flows.clone());
    assert!(arrived.any(|flow| !departed.contains(&flow)), "no departure was lost");
}
