//! The environment of the program: how the library gets the options.

use crate::args::RunArgs;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

const PRELOAD: &str = "LD_PRELOAD";
/// The value of `LD_PRELOAD` for what the program starts. The library sets it before the program's
/// own code runs. Without this variable, children are preloaded, too.
const CHILDREN_PRELOAD: &str = "CRINGLE_CHILDREN_PRELOAD";

/// Returns the variables that differ from those of this process.
pub(crate) fn changes(args: &RunArgs, library: &Path) -> Vec<(&'static str, OsString)> {
    let former = env::var_os(PRELOAD).unwrap_or_default();
    let mut changes = vec![(PRELOAD, preload(library, &former))];
    if !args.children {
        changes.push((CHILDREN_PRELOAD, former));
    }
    let options = [
        ("CRINGLE_WORKERS", args.workers.map(|workers| workers.to_string().into())),
        ("CRINGLE_DRIVER", args.driver.clone().map(OsString::from)),
        ("CRINGLE_DUMP", args.dump.clone()),
        ("CRINGLE_WATCHDOG", args.watchdog.clone().map(OsString::from)),
    ];
    let given = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
    changes.extend(given);
    changes
}

/// Returns why the library cannot start as the variables demand. It tries that only if one is set:
/// without a demand, a program whose threads stay threads of the system runs, too.
pub(crate) fn refusal(changes: &[(&'static str, OsString)]) -> Option<String> {
    let own = env::vars_os().map(|(name, _)| name).chain(changes.iter().map(|it| it.0.into()));
    let chooses = |name: OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CRINGLE_") && !name.ends_with("PRELOAD") && name != "CRINGLE_TRACE"
    };
    let is_off = env::var_os("CRINGLE_THREADS").is_some_and(|threads| threads == "system");
    if is_off || !own.into_iter().any(chooses) {
        return None;
    }
    cringle_doctor::refusal(changes)
}

/// The library before what the user preloads.
fn preload(library: &Path, former: &OsStr) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if !former.is_empty() {
        value.push(":");
        value.push(former);
    }
    value
}
