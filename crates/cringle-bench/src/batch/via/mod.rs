//! `--via`: the same batches by another language, so that the cost of its border is a figure.
//!
//! A further language is a variant of [`Via`], its name, and an arm of [`Method::new`]. It performs
//! the batches of a round as `high` does: four submitters for each worker, batches of 32 reads. C
//! is linked into this program; the other languages have programs of their own ([`Program`]).

mod c;
mod program;

pub(super) use c::run as run_c;
use clap::ValueEnum;
use cringle_report::failure::Failure;
use program::Program;

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
