//! `cringle cp` beside GNU's `cp`: the same trees, the same words, the same status; and what it promises
//! beyond that.

#[path = "../common/mod.rs"]
mod common;

mod acl;
mod bounds;
mod durable;
mod faults;
mod faulty;
mod generated;
mod gnu;
mod hostile;
mod interrupted;
mod killed;
mod listing;
mod mounts;
mod onto;
mod small;
mod special;
mod support;
mod told;
mod trees;
mod users;
