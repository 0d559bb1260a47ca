//! `--via`: the same batches by another language, so that the cost of its border is a figure.
//!
//! A further language is a variant of [`Via`], its name, and an arm of [`Method::new`]. It performs
//! the batches of a round as `high` does: four submitters for each worker, batches of 32 reads. C
//! is linked into this program; the other languages have programs of their own ([`Program`]).

mod c;
mod program;

use super::{Measured, RoundConfig, ThreadResult};
use crate::meter::Gate;
use clap::ValueEnum;
use cringle_report::failure::Failure;
use program::Program;
use std::io;

/// A language whose border is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// C's `cringle_submit`, with a plain descriptor.
    C,
    /// Haskell's `submitIO`, by the benchmark of the binding (--via-program).
    Haskell,
    /// Python's `BlockIO.read_many`, by `python3 -m cringle.bench` (or --via-program).
    Python,
}

impl Via {
    pub(super) fn name(self) -> &'static str {
        match self {
            Via::C => "c",
            Via::Haskell => "haskell",
            Via::Python => "python",
        }
    }

    /// Returns how a user gets the language's program.
    fn remedy(self) -> &'static str {
        match self {
            Via::C => "C needs no program",
            Via::Haskell => {
                "`bindings/haskell/build OUT INCLUDE LIB` in the repository makes OUT/bench; give \
                 --via-program OUT/bench"
            }
            Via::Python => {
                "`pip install ./bindings/python` in the repository installs the package; for one \
                 in a virtual environment, give --via-program 'VENV/bin/python -m cringle.bench'"
            }
        }
    }
}

/// How the batches of a language are performed.
pub(super) enum Method {
    C,
    Program(Program),
}

impl Method {
    /// `command` is the program of the language, or replaces the usual one.
    pub(super) fn new(via: Via, command: Option<&str>) -> Result<Method, Failure> {
        let command = match (via, command) {
            (Via::C, None) => return Ok(Method::C),
            (Via::C, Some(_)) => {
                return Err(Failure::usage("--via-program is for --via haskell and python"));
            }
            (Via::Haskell, None) => {
                let remedy = via.remedy();
                return Err(Failure::usage(format!("--via haskell needs a program: {remedy}")));
            }
            (Via::Python, None) => "python3 -m cringle.bench",
            (Via::Haskell | Via::Python, Some(command)) => command,
        };
        Program::new(via, command).map(Method::Program)
    }
}

/// Performs the batches of a round by C.
pub(super) fn run_c(config: &RoundConfig, gate: &Gate) -> io::Result<Vec<ThreadResult>> {
    c::run(config, gate)
}

/// The rounds by another language, each beside a round of `high`.
pub(super) struct ViaRounds {
    pub(super) via: Via,
    pub(super) rounds: Vec<Measured>,
}

impl ViaRounds {
    /// Returns the median of the rounds' rates divided by those of `rust`.
    pub(super) fn ratio(&self, rust: &[Measured]) -> Option<f64> {
        self.median_ratio(rust, Measured::iops)
    }

    /// Returns the median of the rounds' CPU times of a read divided by those of `rust`.
    pub(super) fn cpu_ratio(&self, rust: &[Measured]) -> Option<f64> {
        self.median_ratio(rust, Measured::cpu_us_per_op)
    }

    pub(super) fn iops(&self) -> Option<f64> {
        cringle_report::stats::median(self.rounds.iter().map(Measured::iops))
    }

    pub(super) fn cpu_us_per_op(&self) -> Option<f64> {
        cringle_report::stats::median(self.rounds.iter().map(Measured::cpu_us_per_op))
    }

    fn median_ratio(&self, rust: &[Measured], figure: fn(&Measured) -> f64) -> Option<f64> {
        let ratios = self.rounds.iter().zip(rust).map(|(via, rust)| figure(via) / figure(rust));
        cringle_report::stats::median(ratios.filter(|ratio| ratio.is_finite()))
    }
}
