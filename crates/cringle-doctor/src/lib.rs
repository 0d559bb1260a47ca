//! `cringle doctor`: what this machine gives, what it lacks, who denies it and what to do.
//!
//! First everything that is asked in children ([`child`]), while this process has one thread; then
//! what is looked at; last what is measured. What was found is one [`Report`], which is printed for a
//! person ([`text`]) or a program (its fields are the JSON).

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

pub mod args;
mod calls;
mod causes;
mod child;
mod conclusion;
mod features;
mod kernel;
mod limits;
mod measure;
mod paths;
mod permissions;
mod raw;
mod ring;
mod text;

use args::DoctorArgs;
use conclusion::Conclusion;
use cringle_report as report;
use cringle_report::failure::{FALLBACK, Failure};
use kernel::Kernel;
use limits::Limit;
use measure::Measured;
use paths::PathReport;
use ring::Ring;
use serde::Serialize;
use std::process::ExitCode;

/// The shape of the JSON; fields are added, never changed (docs/book/src/command/doctor.md).
#[derive(Serialize)]
struct Report {
    schema: u32,
    command: &'static str,
    version: &'static str,
    kernel: Kernel,
    io_uring: Ring,
    paths: Vec<PathReport>,
    limits: Vec<Limit>,
    /// `null` where nothing was to be measured.
    measured: Option<Measured>,
    verdict: Conclusion,
}

pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    args.validate()?;
    report::file::check("--json", args.json.as_deref())?;
    let kernel = kernel::examine();
    let (ring, rings) = ring::examine(&kernel);
    let paths = args.path.iter().map(|path| paths::examine(path));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let limits = limits::all(&ring.permissions, rings);
    // From here on there are threads.
    cringle_report::interrupt::watch()?;
    let measured = (!args.no_measure).then(|| measure::all(args, &ring, &paths));
    let verdict = conclusion::of(&ring, &limits, measured.as_ref());
    let report = Report {
        schema: report::SCHEMA,
        command: "doctor",
        version: env!("CARGO_PKG_VERSION"),
        kernel,
        io_uring: ring,
        paths,
        limits,
        measured,
        verdict,
    };
    show(&report, args)?;
    Ok(if report.io_uring.usable { ExitCode::SUCCESS } else { ExitCode::from(FALLBACK) })
}

fn show(found: &Report, args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(path) = &args.json {
        let value = serde_json::to_value(found).map_err(std::io::Error::from)?;
        report::save(path, &value)?;
    }
    match report::is_stdout(args.json.as_deref()) {
        true => Ok(()),
        false => report::print(&text::of(found)),
    }
}
