//! The hazard detector: it reports what a fiber holds over a wait and another fiber of its thread
//! may need.
//!
//! - [`held`] lists the guards of `cringle::detect` by the fiber that took them, and looks at them
//!   when the fiber is suspended;
//! - [`owner`] is what a `detect::Mutex` knows of its holder;
//! - [`place`] finds the place of a wait in the program;
//! - [`spans`](crate::spans) compares the `tracing` spans that a fiber is in when it is resumed and
//!   suspended.
//!
//! It is compiled into debug builds and with the feature `detect`; elsewhere [`is_active`] is a
//! constant. Reports are made in the middle of a suspension, on the fiber's stack, because only
//! there are the frames from which the place of the wait is taken. They are made beside the fiber:
//! they call no code of the program (**I13**), hold no borrow of the worker, and wait for nothing.
//!
//! # A new hazard
//!
//! Its module looks for it where a fiber is resumed, suspended or takes a guard, if [`is_active`],
//! and calls [`report`], once for each place ([`is_first`]). The compiler names nothing else. By
//! hand: a row in the documentation of `cringle::detect`, a paragraph in
//! `docs/book/src/hazards.md`, and a test in `tests/reports/detect`.

mod compiled;
pub mod held;
pub mod owner;
mod place;

pub use compiled::{COMPILED, Compiled};

use super::label::Origin;
use cringle_sys as sys;
use cringle_sys::fork::ForkLock;
use cringle_sys::word_choice;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

const VARIABLE: &str = "CRINGLE_DETECT";
const OFF: u8 = 0;
const REPORT: u8 = 1;
const ABORT: u8 = 2;

/// One of the three above. It is `OFF` until the first `run`.
static MODE: AtomicU8 = AtomicU8::new(OFF);

/// Returns the innermost place of the program in a backtrace. Needs a stack with
/// [room](super::fiber::Fiber::has_room_for_place) for it.
pub(super) fn first_place(backtrace: &std::backtrace::Backtrace) -> Option<String> {
    place::first(backtrace)
}

/// The stack that [`first_place`] may take.
pub(super) const PLACE_BYTES: usize = place::STACK_BYTES;

/// Whether hazards are reported.
#[inline(always)]
pub fn is_active() -> bool {
    COMPILED && MODE.load(Ordering::Relaxed) != OFF
}

/// Sets the mode that the environment chooses.
///
/// # Errors
///
/// If the variable has another value.
pub fn start_from_environment() -> io::Result<()> {
    let values = [("off", OFF), ("report", REPORT), ("abort", ABORT)];
    let chosen = word_choice::of_environment(VARIABLE, &values, "`off`, `report` or `abort`")?;
    if COMPILED {
        MODE.store(chosen.unwrap_or(REPORT), Ordering::Relaxed);
    } else if chosen.is_some_and(|mode| mode != OFF) && is_first("", Site::Number(0)) {
        sys::report(format_args!(
            "{VARIABLE} is set, but this build has no hazard detector; enable the feature `detect` \
             of the crate `cringle`, or build with debug assertions"
        ));
    }
    Ok(())
}

/// The site of a hazard. The hazards of a kind at a site are reported once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The place where it was taken.
    Place(&'static str, u32, u32),
    /// An address, or another number.
    Number(usize),
}

impl Site {
    pub(crate) fn of(place: Origin) -> Site {
        Site::Place(place.file(), place.line(), place.column())
    }
}

/// The kinds and sites that were reported. There are few.
static REPORTED: ForkLock<Vec<(&'static str, Site)>> = ForkLock::new(Vec::new());

/// Whether a hazard was not reported before. It counts as reported from now on.
pub fn is_first(kind: &'static str, site: Site) -> bool {
    let mut reported = REPORTED.lock();
    let is_first = !reported.contains(&(kind, site));
    if is_first {
        reported.push((kind, site));
    }
    is_first
}

/// Reports a hazard, and aborts if the environment says so.
#[cold]
pub fn report(text: fmt::Arguments<'_>) {
    sys::report(format_args!("hazard: {text}"));
    if MODE.load(Ordering::Relaxed) == ABORT {
        sys::report(format_args!("aborting, because {VARIABLE} is `abort`"));
        std::process::abort();
    }
}
