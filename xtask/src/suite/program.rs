//! One program of tests, from its start to its end.

use super::output::Lines;
use super::{Settings, build};
use crate::counts::Counts;
use crate::crates;
use crate::processes::{self, Leash};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often the runner looks at a program.
const INTERVAL: Duration = Duration::from_millis(20);

/// What stands for the packages of the library in the names of programs.
const LIBRARY: &str = "library";

pub(super) struct Program {
    pub(super) name: String,
    pub(super) how: How,
}

pub(super) enum How {
    /// A program, and the directory in which it runs.
    Executable { path: PathBuf, directory: PathBuf },
    /// The examples in the documentation, by cargo.
    Documentation,
}

/// How a program ended.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) counts: Counts,
    /// Why tests were skipped.
    pub(super) reasons: Vec<String>,
    /// Why the program failed, with what a person needs to see.
    pub(super) failure: Option<String>,
    pub(super) took: Duration,
}

impl Program {
    pub(super) fn named(name: &str) -> Program {
        Program { name: name.to_owned(), how: How::Documentation }
    }

    /// Whether `name` is this program's or its package's. `library` stands for each package of the
    /// library.
    pub(super) fn is(&self, name: &str) -> bool {
        let Some((package, target)) = self.name.split_once(':') else { return self.name == name };
        let (of, only) = name.split_once(':').map_or((name, None), |(of, it)| (of, Some(it)));
        let is_of_library = of == LIBRARY && crates::library().any(|it| it.name() == package);
        (of == package || is_of_library) && only.is_none_or(|only| only == target)
    }

    /// The file in the directory of the logs that has this program's output.
    pub(super) fn log(&self, logs: &Path) -> PathBuf {
        logs.join(self.name.replace(':', "-")).with_extension("log")
    }

    /// Runs the program to its end.
    pub(super) fn run(&self, settings: &Settings) -> Outcome {
        let started = Instant::now();
        let mut outcome = Outcome::default();
        if let Err(error) = self.watch(settings, &mut outcome) {
            outcome.counts.failed = outcome.counts.failed.max(1);
            outcome.failure = Some(format!("cannot be run: {error}"));
        }
        outcome.took = started.elapsed();
        outcome
    }

    fn watch(&self, settings: &Settings, outcome: &mut Outcome) -> io::Result<()> {
        let path = self.log(&settings.logs);
        // A file, and no pipe: a process that a test leaves behind would hold a pipe open. Each
        // writer appends, so that none overwrites the other's lines.
        let _ = fs::remove_file(&path);
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut command = self.command(settings);
        let mut child = command.stdout(log.try_clone()?).stderr(log).process_group(0).spawn()?;
        let _leash = Leash::of(child.id())?;
        let mut lines = Lines::new(settings.limit, matches!(self.how, How::Documentation));
        let mut output = File::open(&path)?;
        loop {
            let ended = child.try_wait()?;
            let mut new = Vec::new();
            output.read_to_end(&mut new)?;
            lines.add(&new, Instant::now());
            outcome.counts = lines.counts();
            if let Some(status) = ended {
                outcome.judge(status, &lines, &path);
                break;
            }
            if let Some(why) = lines.stuck(Instant::now()) {
                outcome.counts.failed += 1;
                outcome.failure = Some(format!("{why}\n{}", processes::show(child.id())));
                processes::kill(child.id());
                child.wait()?;
                break;
            }
            thread::sleep(INTERVAL);
        }
        outcome.reasons = lines.reasons;
        Ok(())
    }

    fn command(&self, settings: &Settings) -> Command {
        let mut command = match &self.how {
            How::Executable { path, directory } => {
                let mut command = Command::new(path);
                command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory);
                // What a test that passes has printed shows whether it was skipped. (With this
                // option, rustdoc would compile each example alone.)
                command.arg("--show-output").env_remove("RUST_TEST_NOCAPTURE");
                command
            }
            How::Documentation => {
                let mut command = build::documentation();
                command.arg("--");
                command
            }
        };
        command.arg(format!("--test-threads={}", settings.threads)).args(&settings.names);
        // Hundreds of tests panic on purpose, and each backtrace takes a tenth of a second.
        command.env_remove("RUST_BACKTRACE").stdin(Stdio::null());
        command
    }
}

impl Outcome {
    fn judge(&mut self, status: ExitStatus, lines: &Lines, log: &Path) {
        let counts = &mut self.counts;
        let lost = lines.lost();
        // A program without the usual harness says it by its status alone.
        if lines.results == 0 && status.success() && lost.is_none() {
            counts.passed += 1;
        }
        if status.success() && counts.failed == 0 && lost.is_none() {
            return;
        }
        counts.failed = counts.failed.max(1);
        let lost = lost.map(|lost| format!(": {lost}")).unwrap_or_default();
        let (output, log) = (lines.failure(), log.display());
        self.failure = Some(format!("{status}{lost}\n{output}\n(all of its output: {log})"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(3600);

    /// How a program has ended that printed this, with status 0.
    fn ended(text: &str) -> Outcome {
        let mut lines = Lines::new(LIMIT, false);
        lines.add(text.as_bytes(), Instant::now());
        let mut outcome = Outcome { counts: lines.counts(), ..Outcome::default() };
        outcome.judge(ExitStatus::default(), &lines, Path::new("log"));
        assert_eq!(outcome.failure.is_some(), outcome.counts.failed > 0);
        outcome
    }

    #[test]
    fn library_is_the_facade_and_its_parts() {
        let is = |program, name| Program::named(program).is(name);
        for program in ["cringle:fs", "cringle-std:lib"] {
            assert!(is(program, "library"), "{program}");
        }
        assert!(is("cringle-core:lib", "library:lib") && !is("cringle:fs", "library:lib"));
        assert!(!is("cringle-cp:lib", "library:lib") && !is("cringle-cp:lib", "library"));
        assert!(is("cringle-cp:lib", "cringle-cp:lib") && !is("cringle-cp:lib", "cringle-cp:fs"));
    }

    #[test]
    fn only_another_harness_needs_no_result() {
        let passed = Counts { passed: 1, ..Counts::default() };
        let failed = Counts { failed: 1, ..Counts::default() };
        let result = "test result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!(ended("all is well\n").counts, passed);
        assert_eq!(ended(&format!("running 1 test\n{result}")).counts, passed);
        assert_eq!(ended("running 1 test\n").counts, failed);
        assert_eq!(ended(&format!("running 2 tests\n{result}")).counts, failed, "a child's");
    }

    #[test]
    fn a_program_that_cannot_be_run_has_failed() {
        let directory = tempfile::tempdir().unwrap();
        let logs = directory.path().to_owned();
        let how = How::Executable { path: logs.join("missing"), directory: logs.clone() };
        let settings = Settings { names: Vec::new(), threads: 1, limit: LIMIT, logs };
        let outcome = Program { how, ..Program::named("a:b") }.run(&settings);
        assert_eq!(outcome.counts, Counts { failed: 1, ..Counts::default() });
        assert!(outcome.failure.unwrap().starts_with("cannot be run: "));
    }
}
