//! What a machine does, one after the other: a test binary each, or a part of one under a condition.

use super::tools::output;
use crate::Result;
use std::path::Path;
use std::process::Command;

pub(super) struct Step {
    pub(super) name: String,
    /// What the shell of the machine is told.
    pub(super) words: String,
    /// Where this file is not, the step is left out.
    pub(super) needs: Option<&'static str>,
    /// Those that must have an outcome.
    pub(super) tests: Vec<String>,
}

pub(super) const LIBRARY: &str = "cringle";
pub(super) const COMMAND: &str = "cringle-cli";

/// Which tests of a binary, and what goes before its name.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    pub(super) binary: &'static str,
    before: &'static str,
    filter: &'static [&'static str],
    needs: Option<&'static str>,
}

const SWITCH: Option<&str> = Some("/proc/sys/kernel/io_uring_disabled");

pub(super) const PARTS: [Part; 5] = [
    Part {
        name: "doctor",
        package: COMMAND,
        binary: "doctor",
        before: "",
        filter: &[],
        needs: None,
    },
    Part {
        name: "iopoll",
        package: COMMAND,
        binary: "bench_disk",
        before: "",
        filter: &["polled_completions"],
        needs: None,
    },
    Part {
        name: "switch",
        package: LIBRARY,
        binary: "denied",
        before: "",
        filter: &["--ignored"],
        needs: SWITCH,
    },
    Part {
        name: "switch_doctor",
        package: COMMAND,
        binary: "doctor",
        before: "",
        filter: &["--ignored"],
        needs: SWITCH,
    },
    Part {
        name: "switch_epoll",
        package: LIBRARY,
        binary: "epoll",
        before: "without-rings ",
        filter: &[],
        needs: SWITCH,
    },
];

impl Step {
    /// A binary of the library, whole.
    pub(super) fn whole(name: &str, path: &Path) -> Result<Step> {
        Ok(Step {
            name: name.to_owned(),
            words: format!("/tests/{} --color never", file_name(LIBRARY, name)),
            needs: None,
            tests: listed(path, &[])?,
        })
    }

    pub(super) fn part(part: &Part, path: &Path) -> Result<Step> {
        let tests = listed(path, part.filter)?;
        if tests.is_empty() {
            return Err(format!("{} has no test for {:?}", path.display(), part.filter).into());
        }
        let Part { before, filter, .. } = part;
        let program = file_name(part.package, part.binary);
        let words = format!("{before}/tests/{program} --color never {}", filter.join(" "));
        Ok(Step { name: part.name.to_owned(), words, needs: part.needs, tests })
    }
}

/// Both packages may have one of the same name.
pub(super) fn file_name(package: &str, binary: &str) -> String {
    if package == LIBRARY { binary.to_owned() } else { format!("{package}-{binary}") }
}

/// The tests that it says it has.
fn listed(path: &Path, filter: &[&str]) -> Result<Vec<String>> {
    let listed = output(Command::new(path).args(filter).args(["--list", "--format=terse"]))?;
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(tests.map(str::to_owned).collect())
}
