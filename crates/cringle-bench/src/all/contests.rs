//! Extracts the contests from the report of an experiment: their entrants, and the figures of each.

use super::experiments::Question;
use cringle_report::stats::median;
use cringle_report::units::{count, figure};
use serde_json::Value;

/// The same work, done in several ways.
pub(super) struct Contest {
    pub(super) question: Question,
    pub(super) title: String,
    /// The unit of work that the costs refer to: "a read".
    pub(super) unit: &'static str,
    pub(super) lines: Vec<Line>,
    /// The name of the conventional way, and of Cringle's.
    pub(super) plain: &'static str,
    pub(super) ours: &'static str,
}

/// An entrant of a contest, with its figures.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    /// Work per second, in each round.
    pub(super) rates: Vec<f64>,
    /// The figure in the table.
    pub(super) shown: String,
    pub(super) in_flight: Option<u64>,
    /// The average number of busy processors, and the cost of a unit of work.
    pub(super) busy: Option<f64>,
    pub(super) cpu_us: Option<f64>,
    pub(super) switches: Option<f64>,
}

impl Line {
    pub(super) fn rate(&self) -> f64 {
        median(self.rates.iter().copied()).unwrap_or(0.0)
    }
}

impl Contest {
    pub(super) fn line(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name)
    }
}

/// Returns the contests of a report, in its order.
pub(super) fn of(question: Question, report: &Value) -> Vec<Contest> {
    let Some(runs) = report["runs"].as_array() else { return Vec::new() };
    let contest = match question {
        Question::Reads | Question::Cached => disk,
        Question::Web => web,
        Question::Sums => sums,
        Question::Copies => copies,
    };
    let mut contests: Vec<Contest> = Vec::new();
    for run in runs {
        let Some((title, line)) = contest(run) else { continue };
        match contests.iter_mut().find(|case| case.title == title) {
            Some(case) => case.add(line),
            None => contests.push(Contest { lines: vec![line], ..empty(question, title) }),
        }
    }
    if matches!(question, Question::Reads | Question::Cached) {
        add_entrants_without_queue(&mut contests);
    }
    contests
}

fn empty(question: Question, title: String) -> Contest {
    let (unit, plain, ours) = match question {
        Question::Reads => ("a read", "threads", "fibers"),
        Question::Cached => ("a read", "sync", "fibers"),
        Question::Web => ("a request", "threads", "fibers"),
        Question::Sums => ("a MiB", "sync", "fibers"),
        Question::Copies => ("a file", "cp", "cringle"),
    };
    Contest { question, title, unit, lines: Vec::new(), plain, ours }
}

impl Contest {
    /// Adds an entrant, or a round of one: some reports have a run for each round.
    fn add(&mut self, line: Line) {
        let Some(old) = self.lines.iter_mut().find(|old| old.name == line.name) else {
            return self.lines.push(line);
        };
        old.rates.extend(line.rates);
        let mean = |a: Option<f64>, b: Option<f64>, n: f64| Some((a? * (n - 1.0) + b?) / n);
        let n = old.rates.len() as f64;
        old.busy = mean(old.busy, line.busy, n);
        old.cpu_us = mean(old.cpu_us, line.cpu_us, n);
        old.switches = mean(old.switches, line.switches, n);
    }
}

/// Adds the strategies without a queue, whose contest has no title, to the contest of each queue
/// depth.
fn add_entrants_without_queue(contests: &mut Vec<Contest>) {
    let Some(at) = contests.iter().position(|case| case.title.is_empty()) else { return };
    let without = contests.remove(at).lines;
    for case in contests {
        let (mut lines, queued) = (without.clone(), std::mem::take(&mut case.lines));
        lines.extend(queued);
        case.lines = lines;
    }
}

fn number(run: &Value, field: &str) -> Option<f64> {
    run[field].as_f64()
}

fn name(run: &Value, field: &str) -> Option<String> {
    run[field].as_str().map(String::from)
}

fn disk(run: &Value) -> Option<(String, Line)> {
    let name = name(run, "strategy")?;
    let direct = run["profile"] == "direct";
    // fio checks no content, and mmap may find a block in memory: both do other work.
    if name == "fio" || (direct && name == "mmap") {
        return None;
    }
    let (threads, depth) = (run["threads"].as_u64()?, run["queue_depth"].as_u64()?);
    let in_flight = threads * depth;
    let queue = !["sync", "mmap"].contains(&name.as_str());
    let title = if queue { format!("{in_flight} in flight") } else { String::new() };
    let (iops, cpu) = (number(run, "iops")?, number(run, "cpu_us_per_op")?);
    let samples = run["samples"].as_array()?;
    let line = Line {
        name,
        rates: samples.iter().filter_map(|sample| number(sample, "iops")).collect(),
        shown: format!("{} IOPS", count(iops)),
        in_flight: Some(in_flight),
        busy: Some(cpu * iops / 1e6),
        cpu_us: Some(cpu),
        switches: number(run, "context_switches_per_op"),
    };
    Some((title, line))
}

fn web(run: &Value) -> Option<(String, Line)> {
    let keepalive = run["keepalive"].as_bool()?;
    let kind = if keepalive { "kept alive" } else { "a request each" };
    let title = format!("{} connections, {kind}", run["connections"]);
    let (rate, cpu) = (number(run, "requests_per_second")?, number(run, "cpu_us_per_request"));
    let line = Line {
        name: name(run, "server")?,
        rates: vec![rate],
        busy: cpu.map(|cpu| cpu * rate / 1e6),
        cpu_us: cpu,
        switches: number(run, "context_switches_per_request"),
        ..Line::default()
    };
    Some((title, line))
}

fn sums(run: &Value) -> Option<(String, Line)> {
    let (source, cache) = (run["source"].as_str()?, run["cache"].as_str());
    let title = cache.map_or_else(|| source.into(), |cache| format!("{cache} {source}"));
    let amount = number(run, "bytes")? / (1 << 20) as f64;
    let seconds = number(run, "seconds")?;
    let cpu = number(run, "user_s")? + number(run, "system_s")?;
    let line = Line {
        name: name(run, "strategy")?,
        rates: vec![amount / seconds],
        busy: Some(cpu / seconds),
        cpu_us: Some(cpu * 1e6 / amount),
        switches: number(run, "context_switches").map(|switches| switches / amount),
        ..Line::default()
    };
    Some((title, line))
}

fn copies(run: &Value) -> Option<(String, Line)> {
    // A tool that failed has no figure, and `cp` with one sync gives another guarantee.
    if !run["error"].is_null() || run["then_sync"] == true {
        return None;
    }
    let (tree, regime) = (run["tree"].as_str()?, run["regime"].as_str()?);
    let size = if tree == "a" { "small" } else { "large" };
    let files = number(run, "files")?;
    let seconds = number(run, "seconds")?;
    let cpu = number(run, "user_seconds")? + number(run, "system_seconds")?;
    let samples = run["samples"].as_array()?;
    let line = Line {
        name: name(run, "tool")?,
        rates: samples.iter().filter_map(|one| Some(files / number(one, "seconds")?)).collect(),
        shown: format!("{} s", figure(seconds)),
        busy: Some(cpu / seconds),
        cpu_us: Some(cpu * 1e6 / files),
        ..Line::default()
    };
    Some((format!("{size} files, {regime}"), line))
}

impl Line {
    /// Returns the figure in the table.
    pub(super) fn figure(&self, question: Question) -> String {
        match question {
            Question::Web => format!("{} requests/s", count(self.rate())),
            Question::Sums => format!("{} MiB/s", figure(self.rate())),
            _ => self.shown.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(strategy: &str, threads: u64, depth: u64) -> Value {
        json!({
            "strategy": strategy, "profile": "direct", "threads": threads, "queue_depth": depth,
            "iops": 1000.0, "cpu_us_per_op": 100.0, "context_switches_per_op": 1.0,
            "samples": [{ "iops": 1000.0 }],
        })
    }

    #[test]
    fn reads_are_compared_at_the_same_depth() {
        let runs = [
            read("sync", 1, 1),
            read("threads", 32, 1),
            read("fibers", 1, 32),
            read("threads", 128, 1),
            read("fibers", 1, 128),
            read("fio", 1, 128),
            read("mmap", 1, 1),
        ];
        let contests = of(Question::Reads, &json!({ "runs": runs }));
        let titles: Vec<_> = contests.iter().map(|case| case.title.as_str()).collect();
        assert_eq!(titles, ["32 in flight", "128 in flight"]);
        for case in &contests {
            let names: Vec<_> = case.lines.iter().map(|line| line.name.as_str()).collect();
            assert_eq!(names, ["sync", "threads", "fibers"]);
            assert_eq!(case.lines[0].busy, Some(0.1));
        }
    }

    #[test]
    fn rounds_of_a_sum_are_samples_of_one_entrant() {
        let run = |seconds: f64| {
            json!({
                "strategy": "fibers", "source": "tcp", "cache": null, "bytes": 1 << 21,
                "seconds": seconds, "user_s": seconds, "system_s": 0.0, "context_switches": 4,
            })
        };
        let contests = of(Question::Sums, &json!({ "runs": [run(1.0), run(2.0), run(4.0)] }));
        assert_eq!((contests.len(), contests[0].title.as_str()), (1, "tcp"));
        let line = &contests[0].lines[0];
        assert_eq!(line.rates, [2.0, 1.0, 0.5]);
        assert_eq!((line.rate(), line.busy, line.switches), (1.0, Some(1.0), Some(2.0)));
    }

    #[test]
    fn keepalive_is_a_contest_of_its_own() {
        let run = |server: &str, keepalive: bool, rate: f64| {
            json!({
                "server": server, "workers": 1, "connections": 50, "keepalive": keepalive,
                "requests_per_second": rate, "cpu_us_per_request": 10.0,
                "context_switches_per_request": 0.5,
            })
        };
        let runs = [
            run("threads", true, 1e4),
            run("fibers", true, 3e4),
            run("fibers", true, 5e4),
            run("fibers", false, 1e4),
        ];
        let contests = of(Question::Web, &json!({ "runs": runs }));
        let titles: Vec<_> = contests.iter().map(|case| case.title.as_str()).collect();
        assert_eq!(titles, ["50 connections, kept alive", "50 connections, a request each"]);
        let fibers = contests[0].line("fibers").unwrap();
        assert_eq!((fibers.rate(), fibers.switches), (4e4, Some(0.5)));
        assert!((fibers.busy.unwrap() - 0.4).abs() < 1e-9);
        assert_eq!(fibers.figure(Question::Web), "40,000 requests/s");
    }

    #[test]
    fn a_tool_that_failed_is_no_entrant() {
        let run = json!({
            "tree": "a", "regime": "warm", "tool": "cp", "files": 5, "then_sync": false,
            "seconds": 1.0, "user_seconds": 0.0, "system_seconds": 0.0, "samples": [],
            "error": "no",
        });
        assert!(of(Question::Copies, &json!({ "runs": [run] })).is_empty());
    }
}
