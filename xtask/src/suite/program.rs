//! One program of tests, from its start to its end.

use super::output::{Counts, Lines};
use super::{Settings, build, processes};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often the runner looks at a program.
const INTERVAL: Duration = Duration::from_millis(20);

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
pub(super) struct Outcome {
    pub(super) counts: Counts,
    /// Why the program failed, with what a person needs to see.
    pub(super) failure: Option<String>,
    pub(super) took: Duration,
    /// The time of all cores that the program and its children took.
    pub(super) busy: Duration,
}

impl Program {
    pub(super) fn named(name: &str) -> Program {
        Program { name: name.to_owned(), how: How::Documentation }
    }

    /// The file in the directory of the logs that has this program's output.
    pub(super) fn log(&self, logs: &Path) -> PathBuf {
        logs.join(self.name.replace(':', "-")).with_extension("log")
    }

    /// Runs the program to its end.
    pub(super) fn run(&self, settings: &Settings) -> Outcome {
        let started = Instant::now();
        let mut busy = Duration::ZERO;
        let (counts, failure) = self
            .watch(settings, &mut busy)
            .unwrap_or_else(|error| (Counts::default(), Some(format!("cannot be run: {error}"))));
        Outcome { counts, failure, took: started.elapsed(), busy }
    }

    fn watch(
        &self,
        settings: &Settings,
        busy: &mut Duration,
    ) -> io::Result<(Counts, Option<String>)> {
        let path = self.log(&settings.logs);
        // A file, and no pipe: a process that a test leaves behind would hold a pipe open. Each
        // writer appends, so that none overwrites the other's lines.
        let _ = fs::remove_file(&path);
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut child = self.command(settings).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut lines = Lines::new(settings.limit, matches!(self.how, How::Documentation));
        let mut output = File::open(&path)?;
        loop {
            *busy = processes::busy(child.id()).unwrap_or(*busy);
            let ended = child.try_wait()?;
            let mut new = Vec::new();
            output.read_to_end(&mut new)?;
            lines.add(&new, Instant::now());
            if let Some(status) = ended {
                return Ok(self.judge(status, &lines, &path));
            }
            if let Some(why) = lines.stuck(Instant::now()) {
                let text = format!("{why}\n{}", processes::show(child.id()));
                processes::kill(child.id());
                child.wait()?;
                let mut counts = lines.counts();
                counts.failed += 1;
                return Ok((counts, Some(text)));
            }
            thread::sleep(INTERVAL);
        }
    }

    fn judge(&self, status: ExitStatus, lines: &Lines, log: &Path) -> (Counts, Option<String>) {
        let mut counts = lines.counts();
        // A program without the usual harness says it by its status alone.
        if lines.results == 0 && status.success() {
            counts.passed += 1;
        }
        if status.success() && counts.failed == 0 {
            return (counts, None);
        }
        if counts.failed == 0 {
            counts.failed += 1;
        }
        (
            counts,
            Some(format!("{status}\n{}\n(all of its output: {})", lines.failure(), log.display())),
        )
    }

    fn command(&self, settings: &Settings) -> Command {
        let mut command = match &self.how {
            How::Executable { path, directory } => {
                let mut command = Command::new(path);
                command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory);
                // What a test that passes has printed shows whether it was skipped. (With this
                // option, rustdoc would compile each example alone.)
                command.arg("--show-output");
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
