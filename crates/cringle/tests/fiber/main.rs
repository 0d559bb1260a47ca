//! Fibers, scopes, cancels and deadlines. One program, so that tests that wait do so side by side.

mod block_on;
mod cancel;
mod cancel_calls;
mod cancel_tree;
mod combinators;
mod deadlines;
mod fairness;
mod fibers;
mod moving;
mod moving_families;
// AddressSanitizer handles the signals itself.
#[cfg(not(cringle_sanitizer))]
mod overflow;
mod public_paths;
mod reasons;
mod run;
mod same_shape;
mod scopes;
#[cfg(not(cringle_sanitizer))]
mod signal_handlers;
mod stacks;
mod stubborn;
mod time;
