//! `cringle trace`: summarises a trace file and draws a part of it, without a browser.
//!
//! | module | content |
//! |---|---|
//! | [`protobuf`], [`reader`] | reads the file packet by packet, in bounded memory |
//! | [`summary`], [`depth`] | totals of fibers, waits and operations, and the queue depth over time |
//! | [`text`], [`json`] | the summary as text and as JSON |
//! | [`window`], [`svg`] | a picture of a part of the trace |

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

mod depth;
mod json;
#[cfg(test)]
mod moving_tests;
mod protobuf;
mod reader;
mod summary;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod window;

use clap::Args;
use cringle_report as report;
use cringle_report::CommandFiles;
use cringle_report::failure::Failure;
use std::path::{Path, PathBuf};
use text::time;

const EXAMPLES: &str = "\
Examples:
  cringle --trace disk.pftrace bench disk --strategies fibers --ops 1000
      Record a trace of a command
  CRINGLE_TRACE=mine.pftrace ./any-program
      Record a trace of a program that uses the library
  cringle trace disk.pftrace
      Print which fiber waited for what, and how long
  cringle trace disk.pftrace --json - | jq '.waits[0]'
      Print the cause with the most waiting time
  cringle trace disk.pftrace --svg picture.svg --from 10ms --to 12ms
      Draw two milliseconds

https://ui.perfetto.dev opens the same file. A fiber is running, ready (it could run, but another \
one is running) or waiting. A wait is named after its cause: the operation, or the call that \
suspends. A truncated file is read up to its last complete packet.

Exit status: 0 done, 1 the file is not a trace, 2 wrong usage.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    /// A trace written by `--trace`, CRINGLE_TRACE or `trace::start`
    pub file: PathBuf,

    /// Draw workers, fibers, operations and queue depth over time as SVG; `-` writes only the
    /// picture to standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Start the picture at this time since the start of the trace: 3ms, 1.5s
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "svg")]
    pub from: Option<u64>,

    /// End the picture at this time since the start of the trace
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "svg")]
    pub to: Option<u64>,

    /// Draw at most this many fibers, the first to run in that time
    #[arg(long, default_value_t = 16, value_name = "N", requires = "svg")]
    pub fibers: usize,

    /// Write this title above the picture
    #[arg(long, value_name = "TEXT", requires = "svg")]
    pub title: Option<String>,

    /// Include the fibers that the library itself starts, such as the acceptors of a server
    #[arg(long)]
    pub all: bool,

    /// Write the summary as JSON; `-` writes only JSON to standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs `cringle trace`.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    let summary = summary::of(&args.file, args.all)?;
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
    let to = to.min(u64::MAX - summary.start);
    if from >= summary.ns() {
        let text = format!("--from is after the end: the trace is {} long", time(summary.ns()));
        return Err(Failure::usage(text));
    }
    if from >= to {
        return Err(Failure::usage("the picture would be empty: --from must be before --to"));
    }
    let start = summary.start;
    let shown = window::Shown { most_rows: args.fibers, all: args.all };
    let window = window::of(&args.file, start + from, start + to, shown)?;
    let title = match &args.title {
        Some(title) => title.clone(),
        None => args.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    report::file::write("--svg", path, &svg::of(&window, start, &title))
}

impl TraceArgs {
    /// Returns the files that the command line names. The caller checks them before [`run`].
    pub fn files(&self) -> CommandFiles {
        let files = CommandFiles::default().uses(&self.file);
        files.result("--svg", self.svg.as_deref()).result("--json", self.json.as_deref())
    }
}

/// Parses a time with its unit into nanoseconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a time; write it as 1.5s, 20ms, 300us or 40ns");
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
