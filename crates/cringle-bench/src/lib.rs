//! `cringle bench`: experiments that compare ways of doing I/O on this machine.
//!
//! Each experiment is a module with its command line, its runs and its report: [`disk`],
//! [`batch`], [`db`], [`cp`], [`sum`], [`http`]; [`all`] runs most of them in turn. They share the
//! clock (`meter`), the rounds, the latencies, the file that is read ([`target`]) and its content,
//! the handling of child processes, and the form of a report (`experiment`).

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

pub mod all;
mod alloc;
pub mod batch;
mod child;
mod content;
pub mod cp;
pub mod db;
pub mod disk;
mod experiment;
mod fio;
pub mod http;
mod latency;
mod meter;
mod ring;
pub mod rounds;
pub mod sum;
pub mod target;

use clap::{Parser, Subcommand};
use cringle_report::failure::Failure;
use cringle_report::machine::storage::Storage;
use cringle_report::{CommandFiles, Outputs, interrupt};
use experiment::{Experiment, Report};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

pub use alloc::CountingAllocator;

#[derive(Subcommand)]
pub enum Bench {
    /// Read a file in eight ways: threads, mmap, tokio, io_uring, fibers, ….
    Disk(Box<disk::DiskArgs>),
    /// Read batches of random 4 KiB blocks, as the benchmark of blockio-uring does, and compare
    /// with fio.
    Batch(batch::BatchArgs),
    /// Update rows of a B-tree larger than its buffer pool, by the steps from pread to registered
    /// buffers.
    Db(Box<db::DbArgs>),
    /// Copy trees of files with every installed copy command.
    Cp(Box<cp::CpArgs>),
    /// Sum the bytes of a file or a connection, one read at a time: the cost of a runtime that
    /// cannot win.
    Sum(Box<sum::SumArgs>),
    /// Serve a small page in six ways, and measure the cost of a request: threads, epoll, tokio, ….
    Http(Box<http::HttpArgs>),
    /// Run disk, http, sum and cp with modest sizes: who wins here, by how much, and why.
    All(all::AllArgs),
}

/// The command line of an experiment that another command starts.
#[derive(Parser)]
#[command(name = "bench")]
struct CommandLine {
    #[command(subcommand)]
    bench: Bench,
}

impl Bench {
    /// Parses the command line of an experiment: `["disk", "--qd", "32"]`.
    ///
    /// # Errors
    ///
    /// The error of clap, formatted for a user.
    pub fn parse<T: Into<OsString> + Clone>(arguments: &[T]) -> Result<Bench, clap::Error> {
        let arguments = arguments.iter().cloned().map(Into::into);
        let line = CommandLine::try_parse_from(std::iter::once("bench".into()).chain(arguments))?;
        Ok(line.bench)
    }

    /// Returns the experiment, its outputs, and the path that it reads, or where it creates its
    /// files, if the outputs must not overwrite it.
    fn parts(&self) -> (&dyn Experiment, &Outputs, Option<&Path>) {
        match self {
            Bench::Disk(args) => (&**args, &args.outputs, Some(&args.path)),
            Bench::Batch(args) => (args, &args.outputs, Some(&args.file)),
            Bench::Db(args) => (&**args, &args.outputs, Some(&args.path)),
            Bench::Cp(args) => (&**args, &args.outputs, None),
            Bench::Sum(args) => (&**args, &args.outputs, Some(&args.path)),
            Bench::Http(args) => (&**args, &args.outputs, None),
            Bench::All(args) => (args, &args.outputs, None),
        }
    }

    /// Runs the experiment and writes its report. Describes the runtimes that run if `verbose`.
    ///
    /// # Errors
    ///
    /// The first failure: a contradictory command line, unusable input, or a wrong result.
    pub fn run(&self, verbose: bool) -> Result<(), Failure> {
        let (experiment, outputs, _) = self.parts();
        experiment.validate()?;
        IS_VERBOSE.store(verbose, Ordering::Relaxed);
        if let Some(result) = experiment.assist() {
            return result;
        }
        // The children that do the work of these describe nothing: they get a runtime like this.
        if verbose
            && matches!(self, Bench::All(_) | Bench::Cp(_))
            && let Err(error) = cringle::Builder::new().run(describe_runtime)
        {
            cringle_report::complain(&format!("driver: none; {error}"));
        }
        experiment.measure()?.write(outputs)
    }

    /// Returns the files that the command line names. The caller checks them before
    /// [`run`](Bench::run).
    pub fn files(&self) -> CommandFiles {
        let (_, outputs, input) = self.parts();
        input.into_iter().fold(outputs.files(), CommandFiles::uses)
    }

    /// Whether child processes do the measured work.
    pub fn works_in_children(&self) -> bool {
        matches!(self, Bench::All(_) | Bench::Cp(_) | Bench::Http(_))
    }
}

/// Returns the storage that holds `path`; the failure names the path.
fn storage_under(path: &Path) -> Result<Storage, Failure> {
    Storage::under(path)
        .map_err(Failure::because(format_args!("{}: cannot examine", path.display())))
}

/// Returns the report of an experiment that removes its files when a signal interrupts it.
fn unless_interrupted(
    measure: impl FnOnce() -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    interrupt::let_command_clean_up();
    let result = measure();
    if interrupt::is_requested() {
        return Err(Failure::interrupted("interrupted; what was made is removed"));
    }
    result
}

/// Returns the value of a thread or fiber that was joined, or resumes its panic.
fn joined<T>(result: std::thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Explains that a thread was refused.
fn no_thread(error: &io::Error, fewer: &str) -> io::Error {
    cannot_start("a thread", error, fewer)
}

/// Explains that a thread or process was refused: limits do so by `EAGAIN`, a seccomp filter mostly
/// by `EPERM`.
fn cannot_start(what: &str, error: &io::Error, fewer: &str) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            format!("; {fewer}raise `ulimit -u`, or pids.max of the control group")
        }
        Some(libc::EPERM) => {
            "; a seccomp filter denies clone or clone3: run with one that allows them".to_owned()
        }
        _ => String::new(),
    };
    io::Error::new(error.kind(), format!("cannot start {what}: {error}{remedy}"))
}

static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// For `--verbose`, describes the runtime of the calling fiber, unless the last one was the same:
/// its driver, and the reason. Another one may have got no ring, so each experiment calls this on
/// the runtime that it measures.
pub(crate) fn describe_runtime() {
    static LAST: Mutex<String> = Mutex::new(String::new());
    if !IS_VERBOSE.load(Ordering::Relaxed) {
        return;
    }
    let fibers = match cringle::runtime::why_shared() {
        None => "each has thread-locals of its own, and may move to another worker".to_owned(),
        Some(why) => format!("share the thread-locals of their worker; {why}"),
    };
    let text = format!("{}\nfibers: {fibers}", describe_driver(cringle::runtime::driver()));
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != text {
        text.lines().for_each(cringle_report::complain);
        *last = text;
    }
}

fn describe_driver(driver: cringle::runtime::Driver) -> String {
    use cringle::runtime::{Driver, Feature};
    let list = |features: Vec<Feature>| {
        features.iter().map(|feature| format!("{feature:?}")).collect::<Vec<_>>().join(", ")
    };
    match driver {
        Driver::Uring(features) => {
            let missing = Feature::ALL.into_iter().filter(|feature| !features.has(*feature));
            let present = list(features.iter().collect());
            match list(missing.collect()) {
                none if none.is_empty() => format!("driver: io_uring, with {present}"),
                some => format!("driver: io_uring, with {present}; this kernel refuses {some}"),
            }
        }
        Driver::Epoll(why) => format!("driver: epoll and threads; {why}"),
        other => format!("driver: {other:?}"),
    }
}
