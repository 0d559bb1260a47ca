//! `cargo xtask tidy`: checks the conventions of this repository.
//!
//! Each finding is one line, `file:line: what is wrong; what to do`. Exceptions, each with its
//! reason, are in `xtask/tidy.json`.

mod book;
mod budgets;
mod calls;
mod doctests;
mod examples;
mod exceptions;
mod functions;
mod ledger;
mod lines;
mod rendered;
mod rooms;
mod safety;
mod sources;
mod std_paths;
mod units;

use crate::Result;
use exceptions::Exceptions;
use sources::Source;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also print lines of code by room, what each crate has left of its budget, names with several
    /// meanings, files with several subjects
    #[arg(long)]
    ledger: bool,
    /// Also require an example on what the libraries have and std does not, and on types (builds
    /// their documentation)
    #[arg(long)]
    examples: bool,
    /// Also look for numbers of invariants in the documentation that `cargo doc` has written
    #[arg(long)]
    rendered: bool,
    /// Also find what `cargo xtask` compiles again after the tests (builds both)
    #[arg(long)]
    units: bool,
    /// Renew the book's copies of parts of sources, instead of comparing them
    #[arg(long)]
    copies: bool,
}

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    line: usize,
    text: String,
}

impl Finding {
    fn new(source: &Source, line: usize, text: impl Into<String>) -> Finding {
        Finding { file: source.path.clone(), line, text: text.into() }
    }
}

/// Runs the checks and prints every finding. Returns whether there is none.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let sources = sources::all()?;
    let exceptions = Exceptions::read()?;
    let mut findings = Vec::new();
    for source in &sources {
        lines::check(source, &exceptions, &mut findings);
        functions::check(source, &exceptions, &mut findings)?;
        safety::check(source, &mut findings);
        calls::check(source, &exceptions, &mut findings);
    }
    rooms::check(&sources, &mut findings)?;
    budgets::check(&sources, &mut findings)?;
    doctests::check(&sources, &mut findings)?;
    book::check(args.copies, &mut findings)?;
    if args.examples {
        examples::check(&mut findings)?;
    }
    if args.rendered {
        rendered::check(&mut findings)?;
    }
    if args.units {
        units::check(&mut findings)?;
    }
    findings.extend(exceptions.unused());
    findings.sort();
    for Finding { file, line, text } in &findings {
        println!("{file}:{line}: {text}");
    }
    if args.ledger {
        ledger::print(&sources)?;
    }
    match findings.len() {
        0 => println!("tidy: {} files, nothing found", sources.len()),
        count => println!("tidy: {count} findings"),
    }
    Ok(findings.is_empty())
}
