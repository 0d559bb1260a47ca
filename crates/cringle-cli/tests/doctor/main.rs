//! `cringle doctor` on machines that are really so: each test changes what its child sees by filters,
//! limits, namespaces and mounts, and reads what is said of it, as text and as JSON.

#[path = "../common/mod.rs"]
mod common;

mod denied;
mod limits;
mod measured;
mod output;
mod paths;
mod support;
