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

/// The library before what the user preloads.
fn preload(library: &Path, former: &OsStr) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if !former.is_empty() {
        value.push(":");
        value.push(former);
    }
    value
}
