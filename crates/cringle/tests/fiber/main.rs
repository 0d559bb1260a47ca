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
mod overflow;
mod reasons;
mod run;
mod same_shape;
mod scopes;
mod signal_handlers;
mod stacks;
mod stubborn;
mod time;
