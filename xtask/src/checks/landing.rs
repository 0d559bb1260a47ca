//! What every commit passes. The order is that of the time until an answer.
//!
//! The library is compiled for clippy, for the documentation, for the suite and for loom, and
//! checked once with the default features. All other steps use what these have built.

use super::Check;

/// The programs of the suite whose results depend on the driver.
const ON_EPOLL: &str = "CRINGLE_DRIVER=epoll cargo xtask test --only \
                        library:lib,cringle:children,cringle:fiber,cringle:foreign_code,\
                        cringle:fs,cringle:net,cringle:process,cringle:sync";
/// The programs whose results depend on whose the thread-locals are, and on whether a fiber
/// continues on another thread.
const SHARED: &str = "CRINGLE_THREAD_LOCALS=shared cargo xtask test --only \
                      library:lib,cringle:drivers,cringle:foreign_code,cringle:net,\
                      cringle:process,cringle:sync";

pub(crate) static CHECKS: &[Check] = &[
    Check {
        name: "formatting",
        about: "rustfmt has nothing to change",
        command: "cargo fmt --all --check; cargo fmt --all --check --manifest-path ecosystem/Cargo.toml",
        ..Check::NONE
    },
    Check {
        name: "lints",
        about: "clippy warns of nothing, with all features",
        command: "cargo clippy --workspace --all-targets --all-features -- -D warnings",
        ..Check::NONE
    },
    Check {
        name: "default-features",
        about: "the library compiles with the default features and with none, without warnings",
        // As `cargo check`, but clippy has options for the crates of this workspace alone: by
        // `RUSTFLAGS`, all others would be compiled again.
        command: "cargo clippy -p cringle --lib -- -A clippy::all -D warnings; \
                  cargo clippy -p cringle --lib --no-default-features -- -A clippy::all -D warnings",
        ..Check::NONE
    },
    Check {
        name: "tidy",
        about: "the conventions; an example on every public item",
        command: "cargo xtask tidy --examples",
        ..Check::NONE
    },
    Check {
        name: "docs",
        about: "rustdoc warns of nothing; the pages name no invariant",
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        command: "cargo doc --workspace --no-deps --all-features; cargo xtask tidy --rendered",
        ..Check::NONE
    },
    Check {
        name: "suite",
        about: "all tests, examples and blocks of the documentation",
        command: "cargo xtask test",
        ..Check::NONE
    },
    Check {
        name: "epoll",
        about: "the same programs without rings",
        command: ON_EPOLL,
        ..Check::NONE
    },
    Check {
        name: "shared",
        about: "the same programs with thread-locals that the fibers of a worker share",
        command: SHARED,
        ..Check::NONE
    },
    Check {
        name: "simulation",
        about: "random programs: 1,000 fixed seeds, and 1,000 that differ for each commit",
        command: ".ci/sim",
        ..Check::NONE
    },
    Check {
        name: "loom",
        about: "models of the protocols between threads",
        environment: &[("RUSTFLAGS", "--cfg loom")],
        command: "cargo test --config .ci/loom.toml -p cringle-sys -p cringle-core -p cringle-std \
                  --lib --target-dir target/loom loom",
        ..Check::NONE
    },
];
