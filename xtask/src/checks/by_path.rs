//! What a commit passes only if it changes the inputs: checks of one language or one crate.

use super::Check;

/// The options by which cargo builds the C library are those of the suite, so that it has built it
/// already.
const LIBRARY: (&str, &str) = ("CRINGLE_LIBRARY_OPTIONS", "--workspace --all-features --lib");

pub(crate) static CHECKS: &[Check] = &[
    Check {
        name: "object-store",
        about: "the tests of the object store without rings",
        environment: &[("CRINGLE_DRIVER", "epoll")],
        command: "cargo xtask test --only cringle-object-store:store",
        packages: &["cringle-object-store"],
        minutes: 1,
        ..Check::NONE
    },
    Check {
        name: "header",
        about: "cringle.h is the header of cringle-c",
        command: "cd ecosystem; cargo test -p cringle-ecosystem-header",
        packages: &["cringle-ecosystem-header", "cringle-c"],
        minutes: 1,
        ..Check::NONE
    },
    Check {
        name: "ocaml",
        about: "the binding of OCaml 4",
        environment: &[LIBRARY],
        command: ".ci/bindings ocaml",
        packages: &["cringle-c"],
        paths: &["bindings/ocaml"],
        ..Check::NONE
    },
    Check {
        name: "haskell",
        about: "the binding of Haskell",
        environment: &[LIBRARY],
        command: ".ci/bindings haskell",
        packages: &["cringle-c"],
        paths: &["bindings/haskell"],
        minutes: 2,
        ..Check::NONE
    },
    Check {
        name: "python",
        about: "the Python package, as a wheel in a fresh environment",
        command: "bindings/python/test -q",
        packages: &["cringle-python"],
        paths: &["rustfmt.toml", "docs/book/src/python.md"],
        minutes: 3,
        ..Check::NONE
    },
    Check {
        name: "browser",
        about: "the pages of --html in Chromium",
        environment: &[("CRINGLE_BROWSER", "required")],
        command: ".ci/browser; cargo xtask test --only cringle-cli:command browser::",
        packages: &["cringle-cli"],
        minutes: 2,
        ..Check::NONE
    },
    Check {
        name: "interposed",
        about: "unmodified crates that build quickly, on fibers with the hazard detector",
        environment: &[("CRINGLE_DETECT", "abort")],
        command: "cd ecosystem; cargo test -p cringle-ecosystem-interposed \
                  --no-default-features --features ci",
        packages: &["cringle-ecosystem-interposed"],
        minutes: 3,
        ..Check::NONE
    },
    Check {
        name: "ecosystem",
        about: "SQLite, rustls, ureq, tungstenite, tokio, and the book's programs with them",
        command: "cd ecosystem; cargo test -p cringle-ecosystem; \
                  CRINGLE_DETECT=abort cargo test -p cringle-ecosystem --tests",
        packages: &["cringle-ecosystem"],
        paths: &["docs/book/src"],
        minutes: 3,
        ..Check::NONE
    },
];
