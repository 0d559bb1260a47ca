//! The choice whether fibers move between workers, by the program and the environment.

use super::word_choice;
use std::io;

const VARIABLE: &str = "CRINGLE_BALANCE";

/// Whether started fibers move between workers: see [`Builder::balance`](crate::Builder::balance).
///
/// ```
/// use cringle::runtime::Balance;
///
/// assert_eq!(cringle::Builder::new().balance(Balance::Fixed).run(|| 7)?, 7);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Balance {
    /// A fiber stays on the worker that has started it.
    Fixed,
    /// A worker without work takes ready fibers from one that has too much. It takes a fiber that
    /// was started with `Send` bounds, together with its local fibers, and only where thread-locals
    /// are [private](crate::runtime::ThreadLocals::Private).
    #[default]
    Moving,
    /// Fibers move whenever they may, needed or not. For tests.
    #[doc(hidden)]
    Restless,
}

impl Balance {
    /// The choice of the environment variable `CRINGLE_BALANCE`, if it is set.
    pub(super) fn of_environment() -> io::Result<Option<Balance>> {
        let values = [
            ("fixed", Balance::Fixed),
            ("moving", Balance::Moving),
            ("restless", Balance::Restless),
        ];
        word_choice::of_environment(VARIABLE, &values, "`fixed` or `moving`")
    }

    pub(super) fn moves(self) -> bool {
        self != Balance::Fixed
    }
}
