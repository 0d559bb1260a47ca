//! Traces of fibers that move between workers.

use super::summary::{self, Summary};
use super::window::{self, Window};
use super::{json, text};
use cringle::runtime::{self, Balance};
use cringle::{Builder, fiber, time, trace};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const FIBERS: u64 = 20;
const STEPS: u64 = 20;

/// Locks out the other tests that write a trace: a process writes one at a time.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The summary of a traced program of [`FIBERS`] fibers, a picture of all of it, and the number of
/// moves that the runtime has counted. `None` where fibers cannot move: the reason is printed.
fn traced(balance: Balance) -> Option<(Summary, Window, u64)> {
    let _alone = alone();
    let file = tempfile::NamedTempFile::new().unwrap();
    let trace = trace::start(file.path()).unwrap();
    let moves = Builder::new().workers(3).balance(balance).run(|| {
        fiber::scope(|s| {
            for _ in 0..FIBERS {
                fiber::Builder::new().name("roamer".into()).spawn_scoped(s, roam).unwrap();
            }
        });
        runtime::stats().unwrap().total().moves
    });
    let written = trace.finish().unwrap();
    let moves = match moves {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {
            println!("skipped: {e}");
            return None;
        }
        moves => moves.unwrap(),
    };
    assert_eq!(written.lost, 0, "{written:?}");
    let summary = summary::of(file.path(), true).unwrap_or_else(|failure| panic!("{failure}"));
    let window = window::of(
        file.path(),
        summary.start,
        summary.end,
        window::Shown { most_rows: 100, all: true },
    );
    Some((summary, window.unwrap_or_else(|failure| panic!("{failure}")), moves))
}

fn roam() {
    for _ in 0..STEPS {
        let _step = trace::span("step");
        fiber::yield_now();
        time::sleep(Duration::from_micros(50)).unwrap();
    }
}

fn assert_fibers_and_waits(summary: &Summary, window: &Window) {
    let roamers = summary.fibers.iter().find(|fibers| fibers.name == "roamer").unwrap();
    assert_eq!(roamers.count, FIBERS);
    assert!(roamers.runs >= FIBERS * STEPS * 2, "{} runs", roamers.runs);
    let most = (FIBERS + 1) * summary.ns();
    assert!(roamers.waiting_ns + roamers.ready_ns + roamers.running_ns <= most);
    for waits in &summary.waits {
        assert!(waits.ns <= most, "{}: {} ns in {} ns", waits.kind, waits.ns, summary.ns());
        assert!(waits.longest.iter().all(|wait| wait.ended), "{}: {:?}", waits.kind, waits.longest);
    }
    let yields = summary.waits.iter().find(|waits| waits.kind == "yield").unwrap();
    assert!(yields.count >= FIBERS * STEPS, "{} yields", yields.count);
    assert_eq!(yields.ns, 0, "a fiber that yields is ready");
    let rows = window.rows.iter().filter(|row| row.name.starts_with("roamer"));
    assert_eq!(rows.count() as u64, FIBERS);
    for row in &window.rows {
        let mut spans: Vec<_> = row.states.iter().map(|(_, span)| *span).collect();
        spans.sort_by_key(|span| (span.from, span.to));
        for pair in spans.windows(2) {
            assert!(pair[0].to <= pair[1].from, "{}: {pair:?} overlap", row.name);
        }
    }
}

#[test]
fn a_fiber_that_moves_is_one_fiber() {
    let Some((summary, window, moves)) = traced(Balance::Restless) else { return };
    assert_fibers_and_waits(&summary, &window);
    let counted: u64 = summary.workers.iter().map(|worker| worker.moves).sum();
    assert_eq!(counted, moves);
    assert!(moves >= FIBERS * STEPS, "{moves} moves");
    let shown = text::of(&summary);
    assert!(shown.contains(" moves\n"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let sleeps = summary.waits.iter().find(|waits| waits.kind == "sleep").unwrap();
    // On a busy machine, the time of a sleep may be over before the fiber waits.
    assert!((1..=FIBERS * STEPS).contains(&sleeps.count), "{} sleeps", sleeps.count);
}

#[test]
fn without_moves_none_are_shown() {
    let Some((summary, window, moves)) = traced(Balance::Fixed) else { return };
    assert_fibers_and_waits(&summary, &window);
    assert_eq!(moves, 0);
    assert!(!text::of(&summary).contains("moves"), "{}", text::of(&summary));
    let workers = &json::of(&summary)["workers"];
    assert!(workers.as_array().unwrap().iter().all(|worker| worker["moves"] == 0), "{workers}");
    for wait in summary.waits.iter().flat_map(|waits| &waits.longest) {
        assert_eq!(wait.fiber.home, wait.worker, "{wait:?}");
    }
}
