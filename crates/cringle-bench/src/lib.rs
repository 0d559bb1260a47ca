//! `cringle bench`: measurements that say what they measure.
//!
//! Each experiment is a folder with its command line, its runs and its report: [`disk`], [`batch`], [`cp`], [`sum`],
//! [`http`]; [`all`] runs them in turn. What they share is the clock ([`meter`]), latencies, the file that is read, and
//! its content.

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

pub mod all;
mod alloc;
pub mod batch;
mod child;
mod content;
pub mod cp;
pub mod disk;
mod fio;
pub mod http;
mod latency;
mod meter;
mod notes;
mod progress;
mod ring;
pub mod sum;
pub mod target;

use clap::{Parser, Subcommand};
use cringle_report::failure::Failure;
use std::ffi::OsString;

pub use alloc::CountingAllocator;

#[derive(Subcommand)]
pub enum Bench {
    /// Read a file in eight ways and compare them: threads, mmap, tokio, io_uring, fibers, …
    Disk(Box<disk::DiskArgs>),
    /// The blockio-uring benchmark: batches of random 4 KiB reads, beside fio.
    Batch(batch::BatchArgs),
    /// Copy trees of files with every copy command there is, and compare them.
    Cp(Box<cp::CpArgs>),
    /// Sum a file's or a connection's bytes, read by read: what a runtime costs where it cannot win.
    Sum(Box<sum::SumArgs>),
    /// Serve a small page in six ways, and compare what a request costs: threads, epoll, tokio, …
    Http(Box<http::HttpArgs>),
    /// All of these in turn, with modest sizes: who wins here, by how much, and why.
    All(all::AllArgs),
}

/// A command line of its own, for experiments that are started by others.
#[derive(Parser)]
#[command(name = "bench")]
struct Line {
    #[command(subcommand)]
    bench: Bench,
}

impl Bench {
    /// Reads the command line of an experiment: `["disk", "--qd", "32"]`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for a person.
    pub fn parse<T: Into<OsString> + Clone>(arguments: &[T]) -> Result<Bench, clap::Error> {
        let words = arguments.iter().cloned().map(Into::into);
        Line::try_parse_from(std::iter::once("bench".into()).chain(words)).map(|line| line.bench)
    }

    /// Runs the experiment and writes its report.
    ///
    /// # Errors
    ///
    /// The first failure: of the command line, of an input, of a wrong result.
    pub fn run(&self, verbose: bool) -> Result<(), Failure> {
        match self {
            Bench::Disk(args) => disk::run(args, verbose),
            Bench::Batch(args) => batch::run(args, verbose),
            Bench::Cp(args) => cp::run(args, verbose),
            Bench::Sum(args) => sum::run(args, verbose),
            Bench::Http(args) => http::run(args, verbose),
            Bench::All(args) => all::run(args, verbose),
        }
    }

    /// Whether it starts processes that do the work.
    pub fn works_in_children(&self) -> bool {
        matches!(self, Bench::All(_) | Bench::Cp(_) | Bench::Http(_))
    }
}

/// For `--verbose`: how fibers do their I/O here, and why.
fn describe_driver() -> String {
    use cringle::runtime::{Driver, Feature};
    let names = |chosen: Vec<Feature>| {
        chosen.iter().map(|feature| format!("{feature:?}")).collect::<Vec<_>>().join(", ")
    };
    match cringle::Builder::new().workers(1).run(cringle::runtime::driver) {
        Ok(Driver::Uring(features)) => {
            let missing = Feature::ALL.into_iter().filter(|feature| !features.has(*feature));
            let there = names(features.iter().collect());
            match names(missing.collect()) {
                none if none.is_empty() => format!("driver: io_uring, with {there}"),
                some => format!("driver: io_uring, with {there}; this kernel refuses {some}"),
            }
        }
        Ok(Driver::Epoll(why)) => format!("driver: epoll and threads; {why}"),
        Ok(other) => format!("driver: {other:?}"),
        Err(error) => format!("driver: none; {error}"),
    }
}
