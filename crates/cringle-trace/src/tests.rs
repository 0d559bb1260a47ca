//! Files with numbers and names that the library never writes.

use super::{json, summary, svg, text, window};
use cringle::trace::wire::{
    LIBRARY_NAMES, Note, PACKET, annotation, clock, event, interned, packet, tag, track, wire_type,
};
use std::time::Duration;

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn number(field: u32, value: u64) -> Vec<u8> {
    [varint(tag(field, wire_type::VARINT)), varint(value)].concat()
}

fn message(field: u32, content: &[u8]) -> Vec<u8> {
    let length = varint(content.len() as u64);
    [&varint(tag(field, wire_type::BYTES)), &length, content].concat()
}

/// Returns a packet of a sequence. Each sequence is a worker.
fn of(sequence: u64, content: &[u8]) -> Vec<u8> {
    message(PACKET, &[&number(packet::SEQUENCE, sequence), content].concat())
}

fn worker(sequence: u64, name: &str) -> Vec<u8> {
    let thread = message(track::THREAD, &message(track::THREAD_NAME, name.as_bytes()));
    of(sequence, &message(packet::TRACK, &thread))
}

/// Sets the time of the sequence.
fn time(sequence: u64, ns: u64) -> Vec<u8> {
    let reading = [number(clock::TIMESTAMP, ns), number(clock::IS_INCREMENTAL, 1)].concat();
    of(sequence, &message(packet::CLOCK_SNAPSHOT, &message(clock::CLOCKS, &reading)))
}

/// Interns a name as number 1 of events and of texts, and the names of all annotations.
fn names(sequence: u64, name: &str) -> Vec<u8> {
    names_from(sequence, 1, name)
}

/// The same with another number of the event.
fn names_from(sequence: u64, number_of_event: u64, name: &str) -> Vec<u8> {
    let entry = |table, id, name: &str| {
        let entry = [number(interned::ID, id), message(interned::NAME, name.as_bytes())].concat();
        message(table, &entry)
    };
    let notes = Note::NAMES.iter();
    let notes =
        notes.flat_map(|(note, name)| entry(interned::ANNOTATION_NAMES, *note as u64, name));
    let own = [(interned::EVENT_NAMES, number_of_event), (interned::TEXTS, 1)];
    let own = own.map(|(table, id)| entry(table, id, name));
    let all: Vec<u8> = own.concat().into_iter().chain(notes).collect();
    of(sequence, &message(packet::INTERNED, &all))
}

/// Returns an event named 1, `since` nanoseconds after the one before.
fn event(sequence: u64, since: u64, kind: u64, more: &[u8]) -> Vec<u8> {
    event_named(sequence, since, kind, 1, more)
}

fn event_named(sequence: u64, since: u64, kind: u64, name: u64, more: &[u8]) -> Vec<u8> {
    let fields = [&number(event::TYPE, kind), &number(event::NAME, name), more].concat();
    let content = [number(packet::TIMESTAMP, since), message(packet::TRACK_EVENT, &fields)];
    of(sequence, &content.concat())
}

fn note(note: Note, value: u64) -> Vec<u8> {
    let field = if note == Note::WaitsFor { annotation::TEXT } else { annotation::UINT };
    let fields = [number(annotation::NAME, note as u64), number(field, value)].concat();
    message(event::ANNOTATION, &fields)
}

fn fiber() -> Vec<u8> {
    note(Note::Fiber, 7)
}

/// Summarises and draws the file in every form; returns the text.
fn shown(parts: &[Vec<u8>]) -> String {
    shown_with(parts, true)
}

fn shown_with(parts: &[Vec<u8>], all: bool) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), parts.concat()).unwrap();
    let summary = summary::of(file.path(), all).unwrap_or_else(|failure| panic!("{failure}"));
    json::of(&summary);
    if summary.ns() > 0 {
        let window = window::of(
            file.path(),
            summary.start,
            summary.end,
            window::Shown { most_rows: 16, all },
        );
        let window = window.unwrap_or_else(|failure| panic!("{failure}"));
        let picture = svg::of(&window, summary.start, "title");
        assert!(roxmltree::Document::parse(&picture).is_ok(), "{picture}");
    }
    text::of(&summary)
}

const FAR: u64 = u64::MAX - 1;

#[test]
fn the_largest_numbers_neither_overflow_nor_hang() {
    let start = [worker(1, "worker 0"), names(1, "name")].concat();
    let counter = |value| number(event::COUNTER_VALUE, value);
    let waits = note(Note::WaitsFor, 1);
    let waiting = |since: u64| {
        let run = [event(1, 0, event::BEGIN, &fiber()), event(1, 0, event::END, &waits)].concat();
        [time(1, 0), run, event(1, since, event::BEGIN, &fiber())].concat()
    };
    let run = [time(1, 0), event(1, 0, event::BEGIN, &fiber()), event(1, FAR, event::END, &[])];
    let late = [fiber(), note(Note::ReadyNs, FAR)].concat();
    let entered = note(Note::Queued, 1);
    let enter = [time(1, 0), event(1, 0, event::BEGIN, &entered), event(1, FAR, event::END, &[])];
    let most = counter(i64::MAX as u64);
    for parts in [
        vec![event(1, FAR, event::INSTANT, &[]), event(1, FAR, event::INSTANT, &[])],
        vec![event(1, 0, event::COUNTER, &counter(5)), event(1, FAR, event::COUNTER, &counter(7))],
        vec![event(1, 5, event::COUNTER, &counter(5)), event(1, FAR - 5, event::INSTANT, &[])],
        vec![waiting(FAR), event(1, 0, event::END, &waits), waiting(FAR)],
        vec![run.concat(), run.concat()],
        vec![enter.concat(), enter.concat()],
        vec![event(1, 0, event::BEGIN, &late), event(1, 0, event::BEGIN, &late)],
        vec![event(1, 0, event::INSTANT, &note(Note::Lost, FAR)); 2],
        vec![
            worker(2, "worker 1"),
            event(1, 1, event::COUNTER, &most),
            event(2, 1, event::COUNTER, &most),
            event(2, 9, event::COUNTER, &most),
        ],
    ] {
        shown(&[std::slice::from_ref(&start), &parts[..]].concat());
    }
}

#[test]
fn names_cannot_control_the_terminal() {
    let hostile = "\u{1b}[31m\u{7}\nname";
    let text = shown(&[
        worker(1, hostile),
        names(1, hostile),
        event(1, 1, event::BEGIN, &fiber()),
        event(1, 9, event::END, &note(Note::WaitsFor, 1)),
        event(1, 9, event::BEGIN, &fiber()),
    ]);
    assert!(text.contains("name"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn long_names_of_workers_leave_no_room_for_others() {
    let home = note(Note::Fiber, 1 << 32 | 7);
    let text = shown(&[
        worker(1, "worker of a long name"),
        worker(2, "worker of another long name"),
        names(1, "name"),
        names(2, "name"),
        event(1, 1, event::BEGIN, &fiber()),
        event(1, 9, event::END, &note(Note::WaitsFor, 1)),
        event(2, 20, event::BEGIN, &home),
        event(2, 9, event::END, &note(Note::WaitsFor, 1)),
        event(2, 50, event::INSTANT, &[]),
    ]);
    assert!(text.contains("… 7 of of on of another long name"), "{text}");
}

/// The time grows like the number of the workers, and not like its square.
#[test]
fn many_workers_of_one_name_are_numbered_quickly() {
    let time_of = |workers: u64| {
        let mut parts: Vec<_> = (1..=workers).map(|number| worker(number, "worker 0")).collect();
        parts.push(event(1, 1, event::INSTANT, &[]));
        let before = processor_time();
        let text = shown(&parts);
        assert!(text.contains("worker 0 (2)"), "{text}");
        processor_time() - before
    };
    let (few, many) = (time_of(5_000), time_of(40_000));
    println!("{few:?}, and for 8 times as many workers {many:?}");
    assert!(many < few * 8 * 2, "it grows faster than the number of workers");
}

/// The processor time of this thread, which hardly depends on what else the machine does.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to the structure.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(read, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_picture_keeps_only_the_depths_that_it_shows() {
    let mut parts = vec![worker(1, "worker 0"), names(1, "name")];
    let value = |value| event(1, 10, event::COUNTER, &number(event::COUNTER_VALUE, value));
    parts.extend((0..1000).map(value));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), parts.concat()).unwrap();
    let window = window::of(file.path(), 5005, 5035, window::Shown { most_rows: 16, all: true });
    let window = window.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(window.depth, [(5000, 499), (5010, 500), (5020, 501), (5030, 502)]);
}

#[test]
fn fibers_of_the_library_are_hidden() {
    let of_fiber = |worker: u64, name: u64, number: u64| {
        let waits = note(Note::WaitsFor, 1);
        let begin = note(Note::Fiber, number);
        let begins = |since| event_named(worker, since, event::BEGIN, name, &begin);
        [begins(5), event(worker, 5, event::END, &waits), begins(7)].concat()
    };
    // The two have one name, and differ by its number.
    let (ours, name) = (LIBRARY_NAMES, "net/server/accept.rs:50");
    let trace = [
        [worker(1, "worker 0"), names_from(1, ours, name), time(1, 0)].concat(),
        [worker(2, "worker 1"), names(2, name), time(2, 0)].concat(),
        of_fiber(1, ours, 1),
        of_fiber(2, 1, 2),
    ];
    let text = shown_with(&trace, false);
    assert!(text.contains("1 fiber of the library is hidden; --all shows it"), "{text}");
    let rows = |text: &str| text.matches("accept.rs:50      1     2 ").count();
    assert_eq!(rows(&text), 1, "{text}");
    let text = shown_with(&trace, true);
    assert!(rows(&text) == 2 && !text.contains("hidden"), "{text}");
}

/// A program may name its fibers as the library names its own.
#[test]
fn only_fibers_that_the_library_spawns_are_hidden() {
    use cringle::{fiber, net};
    const NAMES: [&str; 3] = ["a/b.rs:5", "cringle acceptor 0", "net/server/accept.rs:50"];
    let file = tempfile::NamedTempFile::new().unwrap();
    let _alone = super::moving_tests::alone();
    let trace = cringle::trace::start(file.path()).unwrap();
    cringle::run(|| {
        for name in NAMES {
            let named = fiber::Builder::new().name(name.into());
            named.spawn_local(fiber::yield_now).unwrap().join().unwrap();
        }
        let server = net::Server::bind("127.0.0.1:0").unwrap();
        let stopper = server.stopper();
        fiber::scope(|s| {
            s.spawn_local(|| server.run(|_, _| Ok(())).unwrap());
            fiber::yield_now();
            stopper.stop();
        });
    });
    trace.finish().unwrap();
    let shown = |all| text::of(&summary::of(file.path(), all).unwrap_or_else(|e| panic!("{e}")));
    let (some, all) = (shown(false), shown(true));
    assert!(NAMES.iter().all(|name| some.contains(name)), "{some}");
    assert!(some.contains("of the library") && some.contains("hidden"), "{some}");
    // Its own acceptor, and the program's.
    let acceptors = |text: &str| {
        text.lines().filter(|line| line.trim_start().starts_with("cringle acceptor 0")).count()
    };
    assert!(acceptors(&all) > acceptors(&some), "{some}{all}");
}
