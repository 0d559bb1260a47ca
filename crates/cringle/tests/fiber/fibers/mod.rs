//! Fibers behave as std's threads do.

mod after_run;
mod identity;
mod joining;
mod locals;
mod parking;
mod placement;
mod scopes;
mod unblock;
mod unwinding;
