//! Runs the command of a check: copies its output line by line, adds up the tests that it reports,
//! and ends it with all its processes if it takes too long.

use super::Check;
use crate::Result;
use crate::counts::Counts;
use crate::processes::{self, Leash};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The status of a command that could not check anything, by the convention of automake.
const SKIPPED: i32 = 77;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    /// The command has printed what it lacks.
    Skipped,
    TimedOut,
}

/// What a run of a check has brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    pub(crate) seconds: u64,
    pub(crate) tests: Counts,
}

/// Where the output of a command goes.
pub(crate) enum Sink<'a> {
    Terminal,
    File(&'a Path),
}

/// Runs the check's command from `root`, for at most `limit`.
pub(crate) fn run(
    check: &Check,
    root: &Path,
    environment: &[(&str, String)],
    sink: &Sink,
    limit: Duration,
) -> Result<Outcome> {
    let mut log: Box<dyn io::Write + Send> = match sink {
        Sink::Terminal => Box::new(io::stdout()),
        Sink::File(path) => Box::new(File::create(path)?),
    };
    let (output, input) = io::pipe()?;
    let started = Instant::now();
    let mut command = Command::new("sh");
    command.args(["-ec", check.command]).current_dir(root).process_group(0);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.envs(check.environment.iter().copied());
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn()?;
    // Holds the other side of the pipe: without this, the output would never end.
    drop(command);
    let leash = Leash::of(child.id())?;
    let (sender, read) = mpsc::channel();
    thread::spawn(move || sender.send(copy(output, &mut log)));
    let status = wait(&mut child, started + limit)?;
    if status.is_none() {
        println!("{}: still running after {} s:", check.name, limit.as_secs());
        println!("{}", processes::show(child.id()));
    }
    drop(leash);
    child.wait()?;
    let seconds = started.elapsed().as_secs();
    let tests = match read.recv_timeout(Duration::from_secs(60)) {
        Ok(tests) => tests?,
        Err(_) => return Err(format!("{}: a process outlives the command", check.name).into()),
    };
    let end = end(status, tests);
    if end == End::Failed && status.is_some_and(|status| status.success()) {
        println!("{}: its status is 0, but its tests: {}", check.name, tests.unwrap_or_default());
    }
    Ok(Outcome { end, seconds, tests: tests.unwrap_or_default() })
}

/// If the command has reported tests, some have passed and none has failed: a name that no test has
/// lets cargo run none, with status 0.
fn end(status: Option<ExitStatus>, tests: Option<Counts>) -> End {
    let have_passed = tests.is_none_or(|tests| tests.passed > 0 && tests.failed == 0);
    match status.map(|status| status.code()) {
        None => End::TimedOut,
        Some(Some(0)) if have_passed => End::Passed,
        Some(Some(SKIPPED)) => End::Skipped,
        _ => End::Failed,
    }
}

/// Waits for the child; returns `None` if it has not ended in time.
fn wait(child: &mut Child, until: Instant) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(200));
    }
    Ok(None)
}

/// Copies the output, and returns the sum of the tests in it, if it has any line about them.
fn copy(output: io::PipeReader, log: &mut dyn io::Write) -> io::Result<Option<Counts>> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    let mut totals = Totals::default();
    while output.read_until(b'\n', &mut line)? > 0 {
        log.write_all(&line)?;
        log.flush()?;
        totals.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(totals.sum())
}

/// The tests that a command has reported.
#[derive(Default)]
struct Totals {
    /// By the last line of `cargo xtask test`, which counts what its programs print.
    whole: Option<Counts>,
    /// By libtest's and pytest's summaries.
    parts: Option<Counts>,
    /// Programs of libtest that have begun, and have no result yet.
    begun: usize,
}

impl Totals {
    fn read(&mut self, line: &str) {
        if let Some(counts) = Counts::of_suite(line) {
            self.whole.get_or_insert_default().add(counts);
        } else if Counts::announced(line).is_some() {
            self.begun += 1;
        } else if let Some(counts) = Counts::of_libtest(line).or_else(|| pytest(line)) {
            self.parts.get_or_insert_default().add(counts);
            self.begun = self.begun.saturating_sub(1);
        }
    }

    /// A program that a test has ended, with any status, has failed.
    fn sum(mut self) -> Option<Counts> {
        if self.begun > 0 {
            self.parts.get_or_insert_default().failed += self.begun;
        }
        self.whole.or(self.parts)
    }
}

/// `N failed, N passed, N skipped in …s`
fn pytest(line: &str) -> Option<Counts> {
    let (counts, time) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
    let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('s');
    let counts = Counts::of_words(counts.split(", "));
    (is_time && counts != Counts::default()).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(lines: &[&str]) -> Counts {
        let mut totals = Totals::default();
        lines.iter().for_each(|line| totals.read(line));
        totals.sum().unwrap_or_default()
    }

    fn counts(passed: usize, failed: usize, skipped: usize) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn tests_of_each_program_are_added() {
        let result = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out";
        let other =
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(totals(&["running 6 tests", result, "", other]), counts(7, 1, 1));
        assert_eq!(totals(&["62 passed, 2 skipped in 14.31s"]), counts(62, 0, 2));
        assert_eq!(totals(&["= 1 failed, 3 passed, 1 error in 0.10s ="]), counts(3, 2, 0));
    }

    #[test]
    fn line_of_the_suite_counts_instead_of_its_parts() {
        let part = "test result: ok. 5 passed; 0 failed; 0 ignored";
        assert_eq!(totals(&[part, part, "10 passed, 0 failed, 2 skipped"]), counts(10, 0, 2));
    }

    #[test]
    fn a_program_without_a_result_has_failed() {
        let result = "test result: ok. 5 passed; 0 failed; 0 ignored";
        assert_eq!(totals(&["running 2 tests"]), counts(0, 1, 0));
        assert_eq!(totals(&["running 5 tests", result, "running 1 test"]), counts(5, 1, 0));
    }

    #[test]
    fn other_lines_are_no_tests() {
        for line in ["5 passed", "copied 3 files in 2s", "3 passed, 1 failed, many skipped"] {
            let mut totals = Totals::default();
            totals.read(line);
            assert_eq!(totals.sum(), None, "{line}");
        }
    }

    fn check(command: &'static str) -> Check {
        Check { command, name: "test", ..Check::NONE }
    }

    fn outcome(command: &'static str, limit: Duration) -> (Outcome, String) {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let environment = [("FROM_RUNNER", "yes".to_owned())];
        let root = directory.path();
        let outcome = run(&check(command), root, &environment, &Sink::File(&log), limit).unwrap();
        (outcome, std::fs::read_to_string(log).unwrap())
    }

    #[test]
    fn status_decides_how_a_check_ended() {
        let end = |command| outcome(command, Duration::from_secs(3600)).0.end;
        assert_eq!(end("true"), End::Passed);
        assert_eq!(end("false; true"), End::Failed);
        assert_eq!(end("exit 77"), End::Skipped);
        assert_eq!(end("kill -KILL $$"), End::Failed);
        assert_eq!(end("echo 1 passed, 1 failed, 0 skipped"), End::Failed);
        assert_eq!(end("echo 1 passed, 0 failed, 1 skipped"), End::Passed);
    }

    #[test]
    fn command_whose_names_match_no_test_has_failed() {
        let end = |command| outcome(command, Duration::from_secs(3600)).0.end;
        let none =
            "echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out'";
        assert_eq!(end(none), End::Failed);
        // A program without such a test, before one that has some.
        let some = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'; \
                    echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        assert_eq!(end(some), End::Passed);
    }

    #[test]
    fn output_and_errors_are_kept_in_order() {
        let command = "echo one; echo two >&2; printf three; echo $FROM_RUNNER; cat";
        assert_eq!(outcome(command, Duration::from_secs(3600)).1, "one\ntwo\nthreeyes\n");
    }

    #[test]
    fn late_command_ends_with_its_children() {
        // The command's child keeps the output open, which ends with the child.
        let (outcome, log) = outcome("sleep 1000 & sleep 1001; echo not reached", Duration::ZERO);
        assert_eq!((outcome.end, log.as_str()), (End::TimedOut, ""));
    }

    #[test]
    fn children_end_with_the_command() {
        assert_eq!(outcome("sleep 1000 & true", Duration::from_secs(3600)).0.end, End::Passed);
    }
}
