//! `cringle doctor` in changed environments: each test applies filters, limits, namespaces or
//! mounts to its child process, and checks the report as text and as JSON.

mod denied;
mod limits;
mod measured;
mod output;
mod paths;
mod program;
pub(crate) mod support;
