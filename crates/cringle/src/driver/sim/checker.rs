//! What is checked in every simulation, and what is said when a check fails.

use std::fmt;

/// What found a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Checker {
    /// Each operation has one completion, its last.
    Completions,
    /// Memory that is lent to an operation is not touched by anybody else until it has ended.
    Buffers,
    /// Some fiber can go on, or something will come.
    Deadlock,
    /// The program comes to an end.
    Livelock,
    /// Every descriptor that was opened is closed.
    Descriptors,
    /// Every fiber of a scope has ended when the scope has.
    Scopes,
    /// What a program computed, and what is in its files, is what it should be.
    Outcome,
    /// What was synced is there after the power was lost.
    Durability,
    /// The code under test panicked.
    Panic,
    /// The simulation could not be set up: no memory file, no stack.
    Setup,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Checker::Completions => "one completion for each operation",
            Checker::Buffers => "lent memory is left alone",
            Checker::Deadlock => "no deadlock",
            Checker::Livelock => "no livelock",
            Checker::Descriptors => "every descriptor is closed",
            Checker::Scopes => "every scope is joined",
            Checker::Outcome => "the outcome is as the program says",
            Checker::Durability => "what was synced survives",
            Checker::Panic => "no panic",
            Checker::Setup => "the simulation can be set up",
        })
    }
}

/// Why a simulated run failed, and of which seed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The same seed, with the same options and the same code, fails in the same way.
    pub seed: u64,
    /// What found it.
    pub checker: Checker,
    /// What it found.
    pub message: String,
}

impl Failure {
    /// Reports what a test's own check found, in the form of the library's checks.
    pub fn new(seed: u64, checker: Checker, message: impl Into<String>) -> Failure {
        Failure { seed, checker, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, checker, message } = self;
        write!(f, "seed {seed} failed the check \"{checker}\": {message}")
    }
}

impl std::error::Error for Failure {}
