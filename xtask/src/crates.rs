//! The packages of this workspace: what each is, how much code it may have, and which of its rooms
//! may use which. `cargo xtask tidy` compares this table with the sources.

/// A row of the table.
pub(crate) struct Crate {
    /// The folder, from the root of the repository.
    pub(crate) folder: &'static str,
    pub(crate) kind: Kind,
    /// The lines of code below `src`, at most: without comments, documentation and tests.
    pub(crate) budget: usize,
    /// Why it needs them.
    pub(crate) reason: &'static str,
    /// If imports inside of the crate are checked: its rooms.
    pub(crate) rooms: &'static [Room],
}

/// A module below a crate's root, with the rooms that it may use. [`REST`] is one, too.
pub(crate) type Room = (&'static str, &'static [&'static str]);

/// The room of the files of a crate that are in no other room.
pub(crate) const REST: &str = "crate";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of the library, which is published for the library alone.
    Part,
    /// A part of the library that programs import: what it documents has examples.
    Library,
    /// Stands on the library, and programs import it.
    Guest,
    /// Stands on the library: a part of the command, a binding, or a tool of this repository.
    Program,
}

impl Crate {
    /// The name of the package.
    pub(crate) fn name(&self) -> &'static str {
        match self.folder {
            "crates/testing" => "cringle-testing",
            folder => folder.rsplit('/').next().unwrap_or(folder),
        }
    }

    /// The name by which Rust programs import it.
    pub(crate) fn import(&self) -> String {
        self.name().replace('-', "_")
    }

    /// Whether its code is the library's: it runs on fibers and below them.
    pub(crate) fn is_of_library(&self) -> bool {
        matches!(self.kind, Kind::Part | Kind::Library)
    }

    pub(crate) fn is_imported(&self) -> bool {
        matches!(self.kind, Kind::Library | Kind::Guest)
    }

    /// The path of a file below this crate's `src`, if it is there.
    pub(crate) fn file<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(self.folder)?.strip_prefix("/src/")
    }
}

/// The facade, whose paths programs name.
pub(crate) const FACADE: &str = "cringle";

/// Returns the crate whose sources have this file.
pub(crate) fn of(path: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|it| it.file(path).is_some())
}

/// The facade and the parts below it, by their names: `--only library` of `cargo xtask test`.
pub(crate) fn library() -> impl Iterator<Item = &'static Crate> {
    CRATES.iter().filter(|it| it.kind == Kind::Part || it.name() == FACADE)
}

const fn part(folder: &'static str, budget: usize, reason: &'static str) -> Crate {
    Crate { folder, kind: Kind::Part, budget, reason, rooms: &[] }
}

const fn program(folder: &'static str, budget: usize, reason: &'static str) -> Crate {
    Crate { folder, kind: Kind::Program, budget, reason, rooms: &[] }
}

/// The library from the bottom up, then what stands on it.
pub(crate) const CRATES: &[Crate] = &[
    part("crates/cringle-sys", 2_560, "System calls, locks and fork, for all crates above."),
    part("crates/cringle-tls", 1_650, "It reads and checks glibc's blocks of thread-locals."),
    Crate {
        rooms: &[
            ("trace", &[]),
            // `dispatch` chooses a driver.
            (REST, &["epoll", "trace", "uring"]),
            ("epoll", &[REST]),
            ("uring", &[REST, "trace"]),
        ],
        ..part(
            "crates/cringle-driver",
            5_750,
            "io_uring and epoll for the same ops, and what a ring may do.",
        )
    },
    part("crates/cringle-core", 9_190, "Fibers, workers and cancels, which all guests share."),
    Crate {
        rooms: &[
            ("cancel", &[]),
            ("sync", &[]),
            ("fiber", &["sync"]),
            ("time", &["fiber"]),
            ("ring", &["fiber"]),
            ("io", &["fiber", "fs", "sync"]),
            ("fs", &["fiber", "io", "sync", "time"]),
            ("signal", &["io"]),
            ("net", &["cancel", "fiber", "io", "os", "sync", "time"]),
            ("process", &["fiber", "fs", "io"]),
            ("os", &["fs", "net", "process"]),
            // What guests use, under one name.
            ("internal", &["fiber", "fs", "io", "net", "process", "signal", "sync", "time"]),
        ],
        ..part("crates/cringle-std", 14_000, "Each call of std that may wait, in std's shape.")
    },
    Crate {
        rooms: &[
            ("trace", &[]),
            ("detect", &[]),
            ("crash", &["diagnostics"]),
            ("diagnostics", &["trace"]),
            ("dump_on", &["diagnostics"]),
            ("run", &["crash", "detect", "diagnostics", "dump_on", "trace"]),
        ],
        ..part("crates/cringle-run", 4_700, "`Builder`, and what observes and reports a run.")
    },
    part("crates/cringle-storage", 2_900, "A log, mapped files, and batches of blocks."),
    Crate {
        rooms: &[("driver", &[]), (REST, &["driver"])],
        ..part("crates/cringle-sim", 2_750, "A driver with files in memory, faults and checkers.")
    },
    Crate {
        kind: Kind::Library,
        ..part(
            "crates/cringle-interpose",
            // What a thread of the kernel has, signals and cancels that reach a thread anywhere.
            6_970,
            "Each call of libc that waits or sets a thread's state, and whole programs' threads.",
        )
    },
    Crate { kind: Kind::Library, ..part("crates/cringle", 100, "It only re-exports.") },
    Crate {
        kind: Kind::Guest,
        ..part(
            "crates/cringle-cp",
            8_400,
            "GNU's options and messages, and several ways of copying.",
        )
    },
    Crate {
        kind: Kind::Guest,
        ..part("crates/cringle-object-store", 1_350, "The traits of `object_store`, on files.")
    },
    program("crates/cringle-bench", 11_500, "Each experiment has a baseline at its best settings."),
    program("crates/cringle-c", 2_350, "A function of C for each call, which checks its handles."),
    program("crates/cringle-cli", 650, "Arguments, and the choice of a subcommand."),
    program("crates/cringle-command", 750, "What subcommands need of their process."),
    program("crates/cringle-doctor", 3_950, "A remedy for each reason why a ring is denied."),
    program("crates/cringle-fuzz", 2_850, "Random programs, and a model of what they must print."),
    program("crates/cringle-launch", 550, "Each program that cannot be served has its sentence."),
    program("crates/cringle-preload", 150, "The symbols of `cringle run`, and its environment."),
    program("crates/cringle-report", 1_350, "Tables, pages and plots of the subcommands."),
    program("crates/cringle-trace", 1_750, "It reads, sums up and draws traces."),
    program("crates/testing", 0, "Only tests use it, and all of its lines count as such."),
    program("xtask", 5_590, "The checks of this repository, and what is distributed."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_crates_by_their_folders() {
        let folder = |path| of(path).map(|it| it.folder);
        assert_eq!(folder("crates/cringle/src/lib.rs"), Some("crates/cringle"));
        assert_eq!(folder("crates/cringle-std/src/fs/mod.rs"), Some("crates/cringle-std"));
        assert_eq!(folder("crates/cringle-std/tests/fs.rs"), None);
        assert_eq!(folder("crates/cringle-stdio/src/lib.rs"), None);
        assert_eq!(folder("xtask/src/main.rs"), Some("xtask"));
    }

    #[test]
    fn every_crate_has_a_reason_and_known_rooms() {
        for Crate { folder, reason, rooms, .. } in CRATES {
            assert!(!reason.trim().is_empty(), "{folder}: no reason");
            for room in rooms.iter().flat_map(|(_, may_use)| may_use.iter()) {
                assert!(rooms.iter().any(|(name, _)| name == room), "{folder}: no room {room}");
            }
        }
    }

    #[test]
    fn the_facade_and_its_parts_are_the_library() {
        let has = |name| library().any(|it| it.name() == name);
        assert!(has("cringle") && has("cringle-std"));
        assert!(!has("cringle-interpose") && !has("cringle-cp"));
    }
}
