//! `--resume`: interrupted copies that are continued have the result of one copy, and what is whole
//! is not copied again.

mod changed;
mod interrupted;
mod own;
mod records;
mod refused;
mod users;

use crate::support::*;
use serde_json::Value;
use std::path::Path;

/// Copies with `--json` in this place, and expects success without messages.
fn resumed(place: &Path, arguments: &[&str]) -> Value {
    let (status, out, err) = run(place, &[&["--json=-"], arguments].concat());
    assert_eq!((status, err.as_str()), (Some(0), ""), "{arguments:?}");
    serde_json::from_str(&out).unwrap()
}

/// Returns the numbers of files that were copied and kept.
fn copied_and_kept(report: &Value) -> (u64, u64) {
    let number = |name: &str| report[name].as_u64().unwrap();
    (number("files"), number("kept_files"))
}
