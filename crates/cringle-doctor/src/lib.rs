//! `cringle doctor`: reports what this machine offers to io_uring, what it lacks, what denies it,
//! and the remedy.
//!
//! It first runs every test that needs a child process ([`child`]), while this process has one
//! thread; then it reads files and limits; last it measures. The result is one [`Report`], which
//! [`text`] prints for a person and serde writes as JSON. With `--program` it reads a program
//! instead ([`program`]); with `--container` it prints what rings need ([`container`]).

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

pub mod args;
mod calls;
mod causes;
mod child;
mod conclusion;
mod container;
mod features;
mod kernel;
mod limits;
mod locked;
mod measure;
mod paths;
mod permissions;
pub mod program;
mod raw;
mod ring;
mod start;
mod text;

pub use start::refusal;
pub use text::Page;

use args::DoctorArgs;
use conclusion::Conclusion;
use cringle::Builder;
use cringle::runtime::{DriverChoice, ThreadLocals};
use cringle_report as report;
use cringle_report::failure::{FALLBACK, Failure};
use kernel::Kernel;
use limits::Limit;
use measure::Measured;
use paths::PathReport;
use ring::Ring;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// The findings. Its fields are the JSON: new ones may be added, existing ones never change
/// (docs/book/src/command/doctor.md).
#[derive(Serialize)]
struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    kernel: Kernel,
    io_uring: Ring,
    paths: Vec<PathReport>,
    limits: Vec<Limit>,
    thread_locals: PrivateLocals,
    /// `null` with `--no-measure`.
    measured: Option<Measured>,
    verdict: Conclusion,
}

/// Whether fibers can have thread-locals of their own, and so move between workers, in a program
/// that is linked as this one.
#[derive(Serialize)]
struct PrivateLocals {
    private: bool,
    moves: bool,
    /// Why not.
    why: Option<String>,
}

impl PrivateLocals {
    fn find() -> PrivateLocals {
        let builder = Builder::new().workers(1).driver(DriverChoice::Epoll);
        let tried = builder.thread_locals(ThreadLocals::Private).run(|| ());
        let possible = tried.is_ok();
        PrivateLocals {
            private: possible,
            moves: possible,
            why: tried.err().map(|e| e.to_string()),
        }
    }
}

/// The findings about a program, with `--program`.
#[derive(Serialize)]
struct Examined {
    schema: u32,
    command: &'static str,
    version: &'static str,
    program: program::ProgramReport,
}

/// What rings need, with `--container`.
#[derive(Serialize)]
struct Needed {
    schema: u32,
    command: &'static str,
    version: &'static str,
    container: container::Settings,
}

/// Runs `cringle doctor`.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    args.validate()?;
    if args.container {
        let settings = container::Settings::new()?;
        let (schema, version) = (report::SCHEMA, env!("CARGO_PKG_VERSION"));
        let found = Needed { schema, command: "doctor", version, container: settings };
        show(&found, || found.container.text(), args)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.program {
        return examine_program(path, args);
    }
    let kernel = kernel::examine();
    let ring = ring::examine(&kernel);
    let paths = args.path.iter().map(|path| paths::examine(path));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let limits = limits::all(&ring.permissions, ring.locked_memory);
    // This starts a thread: no child may be forked from here on.
    cringle_report::interrupt::watch()?;
    let thread_locals = PrivateLocals::find();
    let measured = (!args.no_measure).then(|| measure::all(args, &ring, &paths));
    let verdict = conclusion::of(&ring, &limits, measured.as_ref(), &kernel);
    let report = Report {
        schema: report::SCHEMA,
        command: "doctor",
        version: env!("CARGO_PKG_VERSION"),
        kernel,
        io_uring: ring,
        paths,
        limits,
        thread_locals,
        measured,
        verdict,
    };
    show(&report, || text::of(&report), args)?;
    Ok(if report.io_uring.usable { ExitCode::SUCCESS } else { ExitCode::from(FALLBACK) })
}

/// Runs `cringle doctor --program`.
fn examine_program(path: &Path, args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let program = program::examine(path)?;
    let works = program.hooks_work();
    let (schema, version) = (report::SCHEMA, env!("CARGO_PKG_VERSION"));
    let found = Examined { schema, command: "doctor", version, program };
    show(&found, || program::text_of(&found.program), args)?;
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::from(FALLBACK) })
}

fn show(
    found: &impl Serialize,
    text: impl FnOnce() -> String,
    args: &DoctorArgs,
) -> Result<(), Failure> {
    if let Some(path) = &args.json {
        let value = serde_json::to_value(found).map_err(std::io::Error::from)?;
        report::save(path, &value)?;
    }
    if report::is_stdout(args.json.as_deref()) {
        return Ok(());
    }
    report::print(&text())
}
