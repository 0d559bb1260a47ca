//! Ranks the entrants of a contest, and explains the winner by its figures. Pure functions.

use super::contests::{Contest, Line};
use super::experiments::Question;
use cringle_report::units::figure;
use serde::Serialize;

/// An entrant that keeps this part of a processor busy is limited by it.
const BUSY: f64 = 0.8;
/// Smaller ratios explain nothing.
const CLEAR: f64 = 1.15;

/// The result of a contest; its fields are those of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Ranking {
    pub(super) question: Question,
    pub(super) case: String,
    pub(super) winner: String,
    pub(super) figure: String,
    pub(super) next: Option<String>,
    pub(super) winner_to_next: Option<f64>,
    /// Whether a round of the second was faster than a round of the winner.
    pub(super) overlap: bool,
    /// The conventional way.
    pub(super) plain: String,
    pub(super) winner_to_plain: Option<f64>,
    pub(super) ours: String,
    pub(super) ours_to_winner: Option<f64>,
    pub(super) why: String,
}

/// Ranks the entrants. Returns `None` if no entrant has figures.
pub(super) fn rank(case: &Contest) -> Option<Ranking> {
    let mut lines: Vec<&Line> = case.lines.iter().filter(|line| !line.rates.is_empty()).collect();
    lines.sort_by(|a, b| b.rate().total_cmp(&a.rate()));
    let winner = *lines.first()?;
    let next = lines.get(1).copied();
    let ratio = |line: &Line| winner.rate() / line.rate();
    Some(Ranking {
        question: case.question,
        case: case.title.clone(),
        winner: winner.name.clone(),
        figure: winner.figure(case.question),
        next: next.map(|next| next.name.clone()),
        winner_to_next: next.map(ratio),
        overlap: next.is_some_and(|next| overlap(winner, next)),
        plain: case.plain.into(),
        winner_to_plain: case.line(case.plain).map(ratio),
        ours: case.ours.into(),
        ours_to_winner: case.line(case.ours).map(|line| 1.0 / ratio(line)),
        why: why(case, winner),
    })
}

fn overlap(winner: &Line, next: &Line) -> bool {
    let lowest = winner.rates.iter().copied().fold(f64::INFINITY, f64::min);
    next.rates.iter().any(|rate| *rate >= lowest)
}

/// Compares the winner with the conventional way, or with Cringle if the conventional way has won.
fn why(case: &Contest, winner: &Line) -> String {
    let beside = if winner.name == case.plain { case.ours } else { case.plain };
    let Some(other) = case.line(beside).filter(|line| !line.rates.is_empty()) else {
        return format!("{beside} has no figure to compare with.");
    };
    if other.name == winner.name {
        return "It is the only entrant.".into();
    }
    let ratio = winner.rate() / other.rate();
    let (name, other_name) = (&winner.name, &other.name);
    let mut text = format!("`{name}` has {} × the rate of `{other_name}`", figure(ratio));
    for reason in [limits(winner, other), cost(case, winner, other), switches(winner, other)] {
        text += &reason.unwrap_or_default();
    }
    text + "."
}

/// Names the entrants that the processor limits. (An entrant that keeps no processor busy waits for
/// the device, for a peer, or for a processor that another program uses.)
fn limits(winner: &Line, other: &Line) -> Option<String> {
    let (mine, theirs) = (winner.busy?, other.busy?);
    let (w, o) = (&winner.name, &other.name);
    let busy = format!("{} and {} cores busy", figure(mine), figure(theirs));
    Some(match (mine >= BUSY, theirs >= BUSY) {
        (true, true) => format!(": both are limited by the processor ({busy})"),
        (true, false) => format!(": `{w}` keeps a processor busy, `{o}` does not ({busy})"),
        (false, true) => format!(": `{o}` is limited by the processor, `{w}` is not ({busy})"),
        (false, false) => match (winner.in_flight, other.in_flight) {
            (Some(w), Some(o)) if w != o => {
                format!(": neither keeps a processor busy ({busy}), with {w} and {o} in flight")
            }
            _ => format!(": neither keeps a processor busy ({busy})"),
        },
    })
}

fn cost(case: &Contest, winner: &Line, other: &Line) -> Option<String> {
    let (mine, theirs) = (winner.cpu_us?, other.cpu_us?);
    let (low, high) = (mine.min(theirs), mine.max(theirs));
    if high <= 0.0 {
        return None;
    }
    let (a, b, unit) = (figure(mine), figure(theirs), case.unit);
    Some(if high / low < CLEAR {
        format!("; {unit} costs both about the same CPU time, {a} and {b} µs")
    } else {
        format!("; {unit} costs {a} µs of CPU, compared with {b}")
    })
}

fn switches(winner: &Line, other: &Line) -> Option<String> {
    let (mine, theirs) = (winner.switches?, other.switches?);
    // Too few to matter.
    if mine.max(theirs) < 0.01 || mine.max(theirs) / mine.min(theirs) < CLEAR {
        return None;
    }
    Some(format!(", and {} context switches, compared with {}", figure(mine), figure(theirs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, rates: &[f64], busy: f64, cpu: f64, switches: f64) -> Line {
        Line {
            name: name.into(),
            rates: rates.to_vec(),
            shown: "figure".into(),
            in_flight: None,
            busy: Some(busy),
            cpu_us: Some(cpu),
            switches: Some(switches),
        }
    }

    fn contest(lines: Vec<Line>) -> Contest {
        let (unit, plain, ours) = ("a read", "sync", "fibers");
        Contest { question: Question::Reads, title: "case".into(), unit, lines, plain, ours }
    }

    #[test]
    fn the_fastest_wins_and_differences_explain_it() {
        let ranking = rank(&contest(vec![
            line("sync", &[100.0], 0.1, 8.0, 1.0),
            line("fibers", &[800.0, 900.0], 1.0, 4.0, 0.03),
            line("uring", &[1000.0, 1000.0, 950.0], 0.95, 2.0, 0.03),
        ]))
        .unwrap();
        assert_eq!((ranking.winner.as_str(), ranking.next.as_deref()), ("uring", Some("fibers")));
        assert_eq!((ranking.winner_to_plain, ranking.ours_to_winner), (Some(10.0), Some(0.85)));
        assert!(!ranking.overlap);
        let why = &ranking.why;
        assert!(
            why.contains("`uring` keeps a processor busy, `sync` does not (0.95 and 0.10"),
            "{why}"
        );
        assert!(why.contains("a read costs 2.00 µs of CPU, compared with 8.00"), "{why}");
        assert!(why.contains("0.030 context switches, compared with 1.00"), "{why}");
    }

    #[test]
    fn overlapping_rounds_are_marked() {
        let ranking = rank(&contest(vec![
            line("sync", &[100.0, 108.0, 90.0], 0.9, 8.0, 0.0),
            line("fibers", &[95.0, 99.0, 99.0], 0.9, 8.1, 0.0),
        ]))
        .unwrap();
        assert_eq!(ranking.winner, "sync");
        assert!(ranking.overlap);
        assert!(
            ranking.why.contains("`sync` has 1.01 × the rate of `fibers`: both are limited"),
            "{ranking:?}"
        );
        assert!(ranking.why.contains("about the same CPU time"), "{ranking:?}");
        assert!(!ranking.why.contains("switches"), "{ranking:?}");
    }

    #[test]
    fn a_missing_conventional_way_is_reported() {
        let ranking = rank(&contest(vec![line("fibers", &[1.0], 0.0, 0.0, 0.0)])).unwrap();
        assert_eq!(ranking.winner_to_plain, None);
        assert!(ranking.why.contains("sync has no figure"), "{ranking:?}");
        assert!(rank(&contest(Vec::new())).is_none());
    }
}
