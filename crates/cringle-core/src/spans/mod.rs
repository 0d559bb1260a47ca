//! What happens to the entered spans of the `tracing` crate while a fiber waits.
//!
//! With the feature `tracing` they follow (`follow.rs`) their fiber. With `detect` alone the span
//! in which a fiber is suspended is compared (`compare.rs`) with the one in which it was resumed.
//! Without both nothing is done, at no cost. The three have the same items:
//!
//! - [`AcrossWait`] stands for the spans of a fiber that is about to be suspended;
//! - [`begin_body`] and [`end_body`] enclose the code of a fiber;
//! - [`OuterSpans`] are those of `run`'s caller, which the main fiber is in;
//! - [`OfFiber`] is what is kept for each fiber.

#[cfg_attr(feature = "tracing", path = "follow.rs")]
#[cfg_attr(all(feature = "detect", not(feature = "tracing")), path = "compare.rs")]
#[cfg_attr(not(any(feature = "detect", feature = "tracing")), path = "ignore.rs")]
mod chosen;

pub use chosen::OfFiber;
pub(crate) use chosen::{AcrossWait, OuterSpans, begin_body, end_body};
