//! Compares `cringle cp` with GNU's `cp`: the same trees, messages and statuses. Tests what it
//! promises beyond that.

#[path = "../common/mod.rs"]
mod common;

mod acl;
mod bounds;
mod closed;
mod durable;
mod existing_targets;
mod faults;
mod generated;
mod gnu;
mod hostile;
mod interrupted;
mod killed;
mod links;
mod listing;
mod messages;
mod modes;
mod mounts;
mod order;
mod outputs;
mod progress;
mod resume;
mod small_cases;
mod special;
mod support;
mod threads;
mod trees;
mod uncached;
mod users;
