//! What the test harness prints, line by line.

use crate::counts::Counts;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The harness says so much later that a test still runs.
const SLOW: Duration = Duration::from_secs(60);
/// The number of lines that are shown of a program that ended without a result.
const LAST_LINES: usize = 60;

/// The lines that a program has printed so far.
pub(crate) struct Lines {
    /// Whether the results are added up, as those of the packages' examples are. Otherwise the last
    /// one counts: what is before it belongs to children, whose output tests have printed.
    adds_up: bool,
    limit: Duration,
    partial: Vec<u8>,
    all: Vec<String>,
    counts: Counts,
    /// The number of tests that the harness has started to run. A program without it says none.
    announced: Option<usize>,
    /// Why tests were skipped that the harness calls passed.
    pub(super) reasons: Vec<String>,
    /// The number of results: the examples of each package have one.
    pub(super) results: usize,
    /// Since when the tests run that the harness has called slow.
    slow: HashMap<String, Instant>,
    /// When a test ended last, or without the usual harness, when a line was printed last.
    active: Instant,
    /// The tests that have failed. The harness prints what they have printed, too.
    failed: HashSet<String>,
    /// Whether the next lines are the output of a test that passed, and it has not said yet that it
    /// was skipped.
    may_skip: bool,
}

impl Lines {
    pub(crate) fn new(limit: Duration, adds_up: bool) -> Lines {
        Lines {
            adds_up,
            limit,
            partial: Vec::new(),
            all: Vec::new(),
            counts: Counts::default(),
            announced: None,
            reasons: Vec::new(),
            results: 0,
            slow: HashMap::new(),
            active: Instant::now(),
            failed: HashSet::new(),
            may_skip: false,
        }
    }

    /// Adds bytes that the program has printed.
    pub(crate) fn add(&mut self, bytes: &[u8], now: Instant) {
        let mut pieces = bytes.split(|&byte| byte == b'\n');
        let last = pieces.next_back().expect("split returns one piece at least");
        for piece in pieces {
            self.partial.extend_from_slice(piece);
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned();
            self.line(&line, now);
            if !self.awaits_tests() || test_and(&line, " ... ").is_some() {
                self.active = now;
            }
            self.all.push(line);
        }
        self.partial.extend_from_slice(last);
    }

    fn line(&mut self, line: &str, now: Instant) {
        if let Some((name, _)) = test_and(line, " has been running for over ") {
            self.slow.insert(name.to_owned(), now.checked_sub(SLOW).unwrap_or(now));
        } else if let Some((name, result)) = test_and(line, " ... ") {
            self.slow.remove(name);
            if result == "FAILED" {
                let name = name.strip_suffix(" - should panic").unwrap_or(name);
                self.failed.insert(name.to_owned());
            }
        } else if let Some(name) = output_of(line) {
            self.may_skip = !self.failed.contains(name);
        } else if let Some(number) = Counts::announced(line) {
            // The program's own line is its first: it precedes all tests.
            if self.adds_up || self.announced.is_none() {
                self.announced = Some(self.announced.unwrap_or(0) + number);
            }
        } else if let Some(counts) = Counts::of_libtest(line) {
            self.results += 1;
            if !self.adds_up {
                self.counts = Counts::default();
            }
            self.counts.add(counts);
        } else if let (Some(reason), true) = (line.strip_prefix("skipped: "), self.may_skip) {
            self.may_skip = false;
            self.reasons.push(reason.to_owned());
        }
    }

    /// What the tests have come to so far.
    pub(crate) fn counts(&self) -> Counts {
        if !self.adds_up && self.lost().is_some() {
            return Counts::default();
        }
        let Counts { passed, failed, skipped } = self.counts;
        let more = self.reasons.len();
        Counts { passed: passed.saturating_sub(more), failed, skipped: skipped + more }
    }

    /// Says so if the harness has started other tests than it has counted: a test may have ended
    /// the program or closed its output, and the result may be a child's.
    pub(crate) fn lost(&self) -> Option<String> {
        let Counts { passed, failed, skipped } = self.counts;
        let (announced, counted) = (self.announced?, passed + failed + skipped);
        let is_whole = self.results > 0 && announced == counted;
        (!is_whole).then(|| format!("tests started: {announced}, results: {counted}"))
    }

    /// Whether the program has a line for each test that ends. A package's examples have a dot.
    fn awaits_tests(&self) -> bool {
        self.announced.is_some() && !self.adds_up
    }

    /// Says which test takes too long, if one does.
    pub(super) fn stuck(&self, now: Instant) -> Option<String> {
        let limit = self.limit.as_secs();
        let exceeds = |since: &Instant| now.saturating_duration_since(*since) > self.limit;
        if let Some((name, _)) = self.slow.iter().find(|(_, since)| exceeds(since)) {
            return Some(format!("stuck: the test {name} runs for more than {limit} s"));
        }
        // The harness calls no test slow if it runs one at a time.
        let what = if self.awaits_tests() { "no test has ended" } else { "it has printed nothing" };
        exceeds(&self.active).then(|| format!("stuck: {what} for {limit} s"))
    }

    /// The lines that say why the program failed.
    pub(crate) fn failure(&self) -> String {
        let failures = self.all.iter().position(|line| line == "failures:");
        let start = match (failures, self.results) {
            (Some(start), 1..) => start,
            _ => self.all.len().saturating_sub(LAST_LINES),
        };
        self.all[start..].join("\n")
    }
}

/// Returns the name in a line before what a test has printed, `---- NAME stdout ----`.
fn output_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Splits a line such as `test NAME ... ok`.
fn test_and<'a>(line: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix("test ")?.split_once(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);

    fn lines(text: &str) -> Lines {
        let mut lines = Lines::new(LIMIT, false);
        // In pieces, as they come from a program.
        text.as_bytes().chunks(7).for_each(|bytes| lines.add(bytes, Instant::now()));
        lines
    }

    #[test]
    fn results_and_skipped_tests_are_counted() {
        let lines = lines(
            "running 4 tests\ntest a ... ok\ntest b ... ok\ntest c ... ignored\ntest d ... ok\n\n\
             successes:\n\n---- a stdout ----\nskipped: no redis\nskipped: no curl\n\n\
             ---- b stdout ----\nnothing was skipped: all is well\n\n\
             test result: ok. 1 passed; 0 failed; 0 ignored\n\
             ---- d stdout ----\nskipped: no curl\n\n\
             successes:\n    a\n    b\n    d\n\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n",
        );
        assert_eq!(lines.counts(), Counts { passed: 1, failed: 0, skipped: 3 });
        assert_eq!(lines.reasons, ["no redis", "no curl"]);
    }

    #[test]
    fn skipped_tests_are_those_that_passed() {
        let lines = lines(
            "running 4 tests\ntest a ... ok\ntest b ... ok\ntest c ... FAILED\n\
             test d - should panic ... FAILED\n\nsuccesses:\n\n\
             ---- a stdout ----\na line of a test:\n\nfailures:\n\n\
             ---- b stdout ----\nskipped: no curl\n\nsuccesses:\n    a\n    b\n\nfailures:\n\n\
             ---- c stdout ----\nskipped: no redis\n\n---- d stdout ----\nskipped: no gdb\n\n\
             failures:\n    c\n    d\n\ntest result: FAILED. 2 passed; 2 failed; 0 ignored\n",
        );
        assert_eq!(lines.counts(), Counts { passed: 1, failed: 2, skipped: 1 });
        assert_eq!(lines.reasons, ["no curl"]);
    }

    #[test]
    fn results_of_packages_are_added_up() {
        let mut lines = Lines::new(LIMIT, true);
        let text = "test result: ok. 3 passed; 0 failed; 1 ignored\n".repeat(2);
        lines.add(text.as_bytes(), Instant::now());
        assert_eq!(lines.counts(), Counts { passed: 6, skipped: 2, ..Counts::default() });
    }

    #[test]
    fn tests_without_a_result_are_lost() {
        let whole = "running 2 tests\ntest result: ok. 1 passed; 0 failed; 1 ignored\n";
        let child = "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        let start = "running 2 tests\ntest a ... ok\n";
        assert_eq!(lines(whole).lost(), None);
        assert_eq!(lines(&format!("{start}{child}{}", &whole[16..])).lost(), None);
        assert_eq!(lines("running late\nall is well\n").lost(), None, "another harness");
        assert_eq!(lines(start).lost().unwrap(), "tests started: 2, results: 0");
        let ended = lines(&format!("{start}{child}"));
        assert_eq!(ended.lost().unwrap(), "tests started: 2, results: 1");
        assert_eq!(ended.counts(), Counts::default());
        assert!(lines("running 0 tests\n").lost().is_some());
        let mut packages = Lines::new(LIMIT, true);
        packages.add(format!("{whole}{child}").as_bytes(), Instant::now());
        assert_eq!(packages.lost(), None);
        packages.add(b"running 0 tests\nrunning 1 test\n", Instant::now());
        assert!(packages.lost().is_some());
    }

    #[test]
    fn failures_are_shown_from_their_section_on() {
        let failed = lines(
            "test a ... FAILED\n\nsuccesses:\n\nsuccesses:\n\nfailures:\n\n---- a stdout ----\nwhy\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\n",
        );
        assert_eq!(failed.counts().failed, 1);
        assert!(failed.failure().starts_with("failures:\n\n---- a stdout ----\nwhy\n"));
        let crashed = lines("test a ... ok\nthread 'b' has overflowed its stack\n");
        assert_eq!((crashed.results, crashed.counts().passed), (0, 0));
        assert!(crashed.failure().ends_with("overflowed its stack"));
    }

    #[test]
    fn a_test_is_stuck_after_the_limit() {
        let mut lines = lines("");
        let start = Instant::now();
        lines.add(b"test a has been running for over 60 seconds\ntest b ... ok\n", start);
        let later = start + LIMIT - SLOW;
        lines.add(b"test c ... ok\n", later);
        assert_eq!(lines.stuck(later), None);
        let later = later + Duration::from_secs(1);
        assert_eq!(lines.stuck(later).unwrap(), "stuck: the test a runs for more than 600 s");
        lines.add(b"test a ... ok\n", later);
        assert_eq!(lines.stuck(later + LIMIT), None);
        let silent = lines.stuck(later + LIMIT + SLOW).unwrap();
        assert_eq!(silent, "stuck: it has printed nothing for 600 s");
    }

    #[test]
    fn a_stuck_test_that_prints_is_stuck() {
        let mut lines = lines("running 2 tests\n");
        let start = Instant::now();
        lines.add(b"test a ... ok\n", start);
        let later = start + LIMIT + Duration::from_secs(1);
        lines.add(b"a line of the test b\n", later);
        assert_eq!(lines.stuck(later).unwrap(), "stuck: no test has ended for 600 s");
    }
}
