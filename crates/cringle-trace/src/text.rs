//! The summary as text, in 80 columns.

use super::summary::{Fibers, Summary, Wait, Worker, rank};
use cringle_report::page::Rows;
use cringle_report::units::count;

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    cringle_report::table::rows(&Rows::new(header, rows))
}

/// The width of the chart of queue depths, in characters.
const COLUMNS: usize = 64;
/// The most rows printed of each table.
const MOST_ROWS: usize = 20;
const LONGEST_NAME: usize = 24;
/// The longest name in a cell that holds more than the name.
const LONGEST_NAME_BESIDE: usize = 15;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn of(summary: &Summary) -> String {
    let mut out = head(summary);
    for part in [workers(summary), fibers(summary), waits(summary), ops(summary), depth(summary)] {
        if !part.is_empty() {
            out.push('\n');
            out.push_str(&part);
        }
    }
    out
}

fn head(summary: &Summary) -> String {
    let workers = summary.workers.len();
    let mut out = format!(
        "{}: {} on {workers} worker{}, {} events\n",
        summary.program,
        time(summary.ns()),
        if workers == 1 { "" } else { "s" },
        count(summary.events as f64),
    );
    if summary.lost > 0 {
        out.push_str(&format!(
            "{} events were lost because a worker's buffer was full; the figures lack them\n",
            count(summary.lost as f64)
        ));
    }
    if summary.cut_short {
        out.push_str("the file ends within a packet: it is read up to that packet\n");
    }
    out
}

fn workers(summary: &Summary) -> String {
    let all = summary.ns().max(1) as f64;
    let share = |ns: u64| format!("{:.1} %", ns as f64 / all * 100.0);
    let mut workers: Vec<_> = summary.workers.iter().collect();
    workers.sort_by_key(|worker| rank(&worker.name));
    let has_moves = workers.iter().any(|worker| worker.moves > 0);
    let moves = |worker: &Worker| has_moves.then(|| count(worker.moves as f64));
    let rows = workers.into_iter().map(|worker| {
        let row = [
            worker.name.clone(),
            count(worker.enters as f64),
            share(worker.running_ns),
            share(worker.kernel_ns),
            share(worker.asleep_ns),
            format!("{:.1}", worker.depth.mean()),
            worker.depth.most().to_string(),
        ];
        row.into_iter().chain(moves(worker)).collect()
    });
    let header = ["", "enters", "fibers", "kernel", "asleep", "depth", "most", "moves"];
    let columns = header.len() - usize::from(!has_moves);
    table(&header[..columns], rows.take(MOST_ROWS)) + &more(summary.workers.len(), "workers")
}

fn fibers(summary: &Summary) -> String {
    let row = |fiber: &Fibers| {
        vec![
            short(&fiber.name, LONGEST_NAME),
            count(fiber.count as f64),
            count(fiber.runs as f64),
            time(fiber.running_ns),
            time(fiber.ready_ns),
            time(fiber.waiting_ns),
        ]
    };
    let rows = summary.fibers.iter().take(MOST_ROWS).map(row);
    table(&["fibers", "count", "runs", "running", "ready", "waiting"], rows)
        + &more(summary.fibers.len(), "names")
        + &hidden(summary)
}

fn hidden(summary: &Summary) -> String {
    match summary.hidden {
        0 => String::new(),
        1 => "1 fiber of the library is hidden; --all shows it\n".into(),
        number => {
            let number = count(number as f64);
            format!("{number} fibers of the library are hidden; --all shows them\n")
        }
    }
}

fn waits(summary: &Summary) -> String {
    if summary.waits.is_empty() {
        return String::new();
    }
    let rows = summary.waits.iter().take(MOST_ROWS).map(|wait| {
        let longest = wait.longest.first();
        vec![
            wait.kind.clone(),
            count(wait.count as f64),
            time(wait.ns),
            longest.map(|wait| time(wait.ns)).unwrap_or_default(),
            longest.map(|wait| fiber_and_time(summary, wait)).unwrap_or_default(),
        ]
    });
    table(&["waits for", "count", "all", "longest", "whose, when"], rows)
        + &more(summary.waits.len(), "kinds")
}

/// Describes the fiber of a wait and the time at which the wait began.
fn fiber_and_time(summary: &Summary, wait: &Wait) -> String {
    let number = |worker: usize| summary.workers[worker].number();
    let worker = match summary.workers.len() {
        1 => String::new(),
        _ if wait.fiber.home != wait.worker => {
            // A fiber stays in its runtime, whose number follows that of the worker.
            let home = number(wait.fiber.home).split(' ').next().unwrap_or_default();
            format!(" of {home} on {}", number(wait.worker))
        }
        _ => format!(" on {}", number(wait.worker)),
    };
    let open = if wait.ended { "" } else { ", still" };
    // With several runtimes, a worker's number is longer than that of `on 0`.
    let room = LONGEST_NAME_BESIDE.saturating_sub(worker.len().saturating_sub(" on 0".len()));
    format!("{} {}{worker} at {}{open}", short(&wait.name, room), wait.fiber.number, time(wait.at))
}

fn ops(summary: &Summary) -> String {
    let inline = match summary.inline {
        [0, _] => String::new(),
        [1, _] => "1 call completed inline, without the ring\n".into(),
        [hits, _] => {
            format!("{} calls completed inline, without the ring\n", count(hits as f64))
        }
    };
    if summary.ops.is_empty() {
        return inline;
    }
    let rows = summary.ops.iter().take(MOST_ROWS).map(|op| {
        let quantile = |q: f64| time(op.ns.value_at_quantile(q));
        vec![
            op.name.clone(),
            count(op.ns.len() as f64),
            quantile(0.5),
            quantile(0.99),
            time(op.ns.max()),
        ]
    });
    table(&["operations", "count", "p50", "p99", "longest"], rows) + &inline
}

/// Draws the number of operations in flight over time as a row of bars.
fn depth(summary: &Summary) -> String {
    let depths = summary.depths(COLUMNS);
    let most = depths.iter().copied().fold(0.0, f64::max);
    if most == 0.0 {
        return String::new();
    }
    let bar = |depth: f64| {
        let step = (depth / most * (BARS.len() - 1) as f64).round() as usize;
        // A value above zero is always visible.
        BARS[if depth > 0.0 { step.max(1) } else { step }]
    };
    let bars: String = depths.iter().map(|&depth| bar(depth)).collect();
    let width = time(summary.ns() / COLUMNS as u64);
    format!("operations in flight, {width} per column, at most {most:.1}\n│{bars}│\n")
}

fn more(rows: usize, what: &str) -> String {
    match rows.saturating_sub(MOST_ROWS) {
        0 => String::new(),
        more => format!("… and {more} more {what}: --json lists them\n"),
    }
}

/// Shortens a name to at most `most` characters.
pub(super) fn short(name: &str, most: usize) -> String {
    let most = most.max(1);
    let length = name.chars().count();
    if length <= most {
        return name.into();
    }
    // Names are mostly places in files, which differ at the end.
    std::iter::once('…').chain(name.chars().skip(length - (most - 1))).collect()
}

/// Formats a duration with three significant digits and its unit.
pub(super) fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        ..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}
