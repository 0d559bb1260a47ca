//! The steps that a machine runs one after the other: a test binary, or some tests of one under a
//! condition.

use crate::crates;

/// One step.
pub(super) struct Step {
    pub(super) name: String,
    /// The command line for the machine's shell.
    pub(super) command_line: String,
    /// The step is skipped if this file does not exist.
    pub(super) needs: Option<&'static str>,
}

pub(super) const LIBRARY: &str = crates::FACADE;
pub(super) const COMMAND: &str = "cringle-cli";

/// Some tests of a binary, and what precedes its name on the command line.
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
        binary: "command",
        before: "",
        filter: &["doctor::"],
        needs: None,
    },
    Part {
        name: "iopoll",
        package: COMMAND,
        binary: "bench",
        before: "",
        filter: &["disk::iopoll"],
        needs: None,
    },
    Part {
        name: "switch",
        package: LIBRARY,
        binary: "process",
        before: "",
        filter: &["denied::", "--ignored"],
        needs: SWITCH,
    },
    Part {
        name: "switch_doctor",
        package: COMMAND,
        binary: "command",
        before: "",
        filter: &["--ignored", "doctor::"],
        needs: SWITCH,
    },
    Part {
        name: "switch_epoll",
        package: LIBRARY,
        binary: "drivers",
        before: "without-rings ",
        filter: &["epoll::"],
        needs: SWITCH,
    },
];

impl Step {
    /// All tests of the binary with this file name.
    pub(super) fn whole(name: &str) -> Step {
        let command_line = format!("/tests/{name} --color never");
        Step { name: name.to_owned(), command_line, needs: None }
    }

    /// Whether one of the names that were asked for has this step.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || name == "lib" && self.name.ends_with("-lib")
    }

    /// Some tests of a binary.
    pub(super) fn part(part: &Part) -> Step {
        let Part { before, filter, .. } = part;
        let program = file_name(part.package, part.binary);
        let filter = filter.join(" ");
        let command_line = format!("{before}/tests/{program} --color never {filter}");
        Step { name: part.name.to_owned(), command_line, needs: part.needs }
    }
}

/// Returns a binary's file name in the machine, which is unique though packages may have binaries
/// of one name: each part of the library has its unit tests, `lib`.
pub(super) fn file_name(package: &str, binary: &str) -> String {
    if package == LIBRARY { binary.to_owned() } else { format!("{package}-{binary}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_of_all_parts_are_asked_for_by_one_name() {
        let step = Step::whole(&file_name("cringle-std", "lib"));
        assert_eq!(step.command_line, "/tests/cringle-std-lib --color never");
        assert!(step.is("lib") && step.is("cringle-std-lib") && !step.is("cringle-sys-lib"));
        assert!(!Step::whole(&file_name(LIBRARY, "fs")).is("lib"));
    }
}
