//! Fibers behave as std's threads do.

mod after_run;
#[path = "../child/mod.rs"]
mod child;
mod identity;
mod joining;
mod locals;
mod parking;
mod placement;
mod scopes;
#[path = "../tools/mod.rs"]
mod tools;
mod unblock;
mod unwinding;
