//! `cringle trace`: what a trace says, without a browser.
//!
//! | file | what it does |
//! |---|---|
//! | [`protobuf`], [`reader`] | the file, packet by packet, in bounded memory |
//! | [`summary`], [`depth`] | what it comes to: fibers, waits, operations, the depth of the queue |
//! | [`text`], [`json`] | the same for a person and for a program |
//! | [`window`], [`svg`] | a picture of a part of it |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

mod depth;
mod json;
mod protobuf;
mod reader;
mod summary;
mod svg;
mod text;
mod window;

use clap::Args;
use cringle_report as report;
use cringle_report::failure::Failure;
use std::path::{Path, PathBuf};
use text::time;

const EXAMPLES: &str = "\
Examples:
  cringle --trace cp.pftrace bench disk --strategies fibers --ops 1000
  cringle trace cp.pftrace                    who waited for what, and how long
  cringle trace cp.pftrace --json - | jq '.waits[0]'
  cringle trace cp.pftrace --svg picture.svg --from 10ms --to 12ms
  CRINGLE_TRACE=mine.pftrace ./any-program    that uses the library

https://ui.perfetto.dev opens the same file. A fiber is running, ready (it could run, and others do),
or waiting; a wait is called by what it is for, and by the operation if it is for one. A file that was
cut short is read as far as it goes.

Exit status: 0 done, 1 no trace of cringle's, 2 wrong usage.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    /// What `--trace`, CRINGLE_TRACE or `trace::start` has written.
    pub file: PathBuf,

    /// Draw workers, fibers, operations and the depth of the queue over time; `-` is standard output,
    /// and nothing else on it.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Where the picture begins, from the start of the trace: 3ms, 1.5s.
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "svg")]
    pub from: Option<u64>,

    /// Where it ends.
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "svg")]
    pub to: Option<u64>,

    /// So many fibers in it, the first ones that run then.
    #[arg(long, default_value_t = 16, value_name = "N", requires = "svg")]
    pub fibers: usize,

    /// What is written above it.
    #[arg(long, value_name = "TEXT", requires = "svg")]
    pub title: Option<String>,

    /// Write the figures as JSON; `-` is standard output, and nothing else on it.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    args.validate()?;
    let summary = summary::of(&args.file)?;
    if let Some(path) = &args.svg {
        draw(args, &summary, path)?;
    }
    if let Some(path) = &args.json {
        report::save(path, &json::of(&summary))?;
    }
    if report::is_stdout(args.json.as_deref()) || report::is_stdout(args.svg.as_deref()) {
        Ok(())
    } else {
        report::print(&text::of(&summary))
    }
}

fn draw(args: &TraceArgs, summary: &summary::Summary, path: &Path) -> Result<(), Failure> {
    let (from, to) = (args.from.unwrap_or(0), args.to.unwrap_or(summary.ns()));
    if from >= summary.ns() {
        let text = format!("--from is after the end: the trace takes {}", time(summary.ns()));
        return Err(Failure::usage(text));
    }
    if from >= to {
        return Err(Failure::usage("the picture ends before it begins: see --from and --to"));
    }
    let start = summary.start;
    let window = window::of(&args.file, start + from, start + to, args.fibers)?;
    let title = match &args.title {
        Some(title) => title.clone(),
        None => args.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    report::file::write("--svg", path, &svg::of(&window, start, &title))
}

impl TraceArgs {
    /// Nothing is written over what is read, nor over what else is written.
    fn validate(&self) -> Result<(), Failure> {
        for (option, path) in [("--svg", &self.svg), ("--json", &self.json)] {
            let Some(path) = path else { continue };
            if report::file::is_same(path, &self.file) {
                return Err(Failure::usage(format!("{option} names the trace itself")));
            }
            report::file::check(option, Some(path))?;
        }
        match (&self.svg, &self.json) {
            (Some(svg), Some(json)) if svg == json || report::file::is_same(svg, json) => {
                Err(Failure::usage("--svg and --json name the same file"))
            }
            _ => Ok(()),
        }
    }
}

/// Nanoseconds of a time with its unit.
fn parse_time(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no time: 1.5s, 20ms, 300us, 40ns");
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let value: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match &text[digits..] {
        "s" => 1e9,
        "ms" => 1e6,
        "us" | "µs" => 1e3,
        "ns" => 1.0,
        _ => return Err(wrong()),
    };
    Ok((value * unit) as u64)
}
