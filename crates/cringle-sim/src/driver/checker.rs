//! The checks of every simulation, and the report of one that fails.

use std::fmt;

/// The check that failed.
///
/// ```
/// use cringle::fiber;
/// use cringle::sim::{self, Checker};
///
/// let failure = sim::run(7, &sim::Options::new(), fiber::park).unwrap_err();
/// assert_eq!(failure.checker, Checker::Deadlock);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Checker {
    /// Each operation ends with exactly one completion.
    Completions,
    /// Memory lent to an operation is used by no other code until the operation has ended.
    Buffers,
    /// Some fiber can run, or an event is to come.
    Deadlock,
    /// The program ends.
    Livelock,
    /// Every descriptor that was opened is closed.
    Descriptors,
    /// Every fiber of a scope has ended when the scope ends.
    Scopes,
    /// The results of a program and the contents of its files are correct.
    Outcome,
    /// Synced data survives a loss of power.
    Durability,
    /// The code under test panicked.
    Panic,
    /// The simulation could not be set up, for lack of a memory file or a stack.
    Setup,
}

impl fmt::Display for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Checker::Completions => "one completion for each operation",
            Checker::Buffers => "lent memory is not touched",
            Checker::Deadlock => "no deadlock",
            Checker::Livelock => "no livelock",
            Checker::Descriptors => "every descriptor is closed",
            Checker::Scopes => "every scope is joined",
            Checker::Outcome => "the outcome is correct",
            Checker::Durability => "synced data survives",
            Checker::Panic => "no panic",
            Checker::Setup => "the simulation can be set up",
        })
    }
}

/// The failure of a simulated run, with its seed.
///
/// ```
/// use cringle::sim;
///
/// let failure = sim::run(7, &sim::Options::new(), || panic!("a bug")).unwrap_err();
/// assert!(failure.seed == 7 && failure.message.contains("a bug"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The seed. With the same options and the same code, it fails in the same way again.
    pub seed: u64,
    /// The check that failed.
    pub checker: Checker,
    /// The check's report.
    pub message: String,
}

impl Failure {
    /// Reports the failure of a test's own check, in the form of the library's checks.
    ///
    /// ```
    /// use cringle::sim::{self, Checker, Failure};
    ///
    /// let total = sim::run(7, &sim::Options::new(), || 6 * 7)?.value;
    /// if total != 42 {
    ///     return Err(Failure::new(7, Checker::Outcome, format!("the total is {total}")));
    /// }
    /// # Ok::<(), sim::Failure>(())
    /// ```
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
