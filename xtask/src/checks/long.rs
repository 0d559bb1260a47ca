//! What takes too long for every commit: other targets, optimised builds, sanitizers, the packages,
//! and the generators of the suite with their full counts, of which each commit draws a sample.
//!
//! No job takes longer than two hours on two cores, so that a session of work can have it run.
//!
//! The jobs that are not about a build use the suite's, or one optimised build of all features.

use super::Check;

/// A job that only says how the library's tests run, which the suite has built.
const LIBRARY: Check = Check {
    command: "cargo xtask test --only library",
    packages: &["cringle"],
    minutes: 4,
    ..Check::NONE
};
/// Misbehaving code, and cancels.
const FOREIGN_AND_SOAK: &str = "cargo test --release --workspace --all-features --test foreign --test foreign_code; \
     cargo test --release --workspace --all-features --test memory soak";
/// A job of random programs in the simulation, which starts with building the command.
macro_rules! simulation {
    ($options:literal) => {
        concat!(
            "cargo build --release --workspace --all-features --bin cringle; \
             \"${CARGO_TARGET_DIR:-target}/release/cringle\" sim --quiet ",
            $options
        )
    };
}
const SIMULATION: Check = Check {
    packages: &["cringle-fuzz", "cringle-command"],
    paths: &["crates/cringle-cli/Cargo.toml", "crates/cringle-cli/src"],
    ..Check::NONE
};
/// A job of copies that are generated.
const COPIES: Check = Check {
    packages: &["cringle-cp", "cringle-testing"],
    paths: &["crates/cringle-cli"],
    ..Check::NONE
};
/// A job of unmodified crates, all of them.
const INTERPOSED: Check = Check {
    command: "cd ecosystem; cargo test -p cringle-ecosystem-interposed -- \
              --nocapture --test-threads 1",
    packages: &["cringle-ecosystem-interposed"],
    minutes: 15,
    ..Check::NONE
};

pub(crate) static CHECKS: &[Check] = &[
    // The library and its packages, as others get them.
    Check {
        name: "dependencies",
        about: "licences and sources of the dependencies",
        command: "cargo deny --workspace check bans licenses sources; \
                  cd ecosystem; cargo deny --workspace check bans licenses sources",
        paths: &[
            "Cargo.toml",
            "Cargo.lock",
            "deny.toml",
            "ecosystem/Cargo.toml",
            "ecosystem/Cargo.lock",
            "ecosystem/deny.toml",
        ],
        needs: &["cargo-deny"],
        ..Check::NONE
    },
    Check {
        name: "semver",
        about: "the public API, against that of the commit in .ci/api-baseline",
        command: "cargo xtask semver",
        packages: &["cringle"],
        paths: &[".ci/api-baseline", ".ci/rustdoc", "xtask/src/rustdoc.rs", "xtask/src/semver.rs"],
        needs: &["cargo-semver-checks"],
        minutes: 3,
        ..Check::NONE
    },
    Check {
        name: "packages",
        about: "what a registry would be given is whole, and compiles by itself",
        command: ".ci/packages",
        // Packages have links to the licences, and two have the README.
        paths: &[
            "Cargo.toml",
            "Cargo.lock",
            "crates",
            "README.md",
            "LICENSE-APACHE",
            "LICENSE-MIT",
        ],
        minutes: 6,
        ..Check::NONE
    },
    Check {
        name: "dist",
        about: "what users install: built twice to the same bytes, and used on a bare Debian",
        command: "cargo xtask dist --twice",
        paths: &[
            "Cargo.toml",
            "Cargo.lock",
            "crates",
            "bindings/python",
            "docs/book/src/c.md",
            "xtask/src/dist",
            "CHANGELOG.md",
            "README.md",
            "LICENSE-APACHE",
            "LICENSE-MIT",
        ],
        needs: &["debootstrap", "dpkg-deb", "python3", "rustup"],
        minutes: 30,
        ..Check::NONE
    },
    Check {
        name: "capi",
        about: "the C library, as cargo-c installs it",
        command: ".ci/capi",
        packages: &["cringle-c"],
        paths: &["docs/book/src/c.md"],
        needs: &["cargo-cinstall", "cc", "pkg-config"],
        minutes: 4,
        ..Check::NONE
    },
    Check {
        name: "aarch64",
        about: "the library compiles for aarch64",
        command: "rustup target add aarch64-unknown-linux-gnu || exit 77; \
                  cargo check -p cringle --all-features --target aarch64-unknown-linux-gnu",
        packages: &["cringle"],
        needs: &["rustup"],
        minutes: 1,
        ..Check::NONE
    },
    Check {
        name: "musl",
        about: "tests compile with musl's libc; the static command is static, and works",
        command: "target=$(uname -m)-unknown-linux-musl; rustup target add $target || exit 77; \
                  cargo check -p cringle -p cringle-cli -p cringle-sys -p cringle-tls \
                  -p cringle-driver -p cringle-core -p cringle-std -p cringle-run \
                  -p cringle-storage -p cringle-sim --features cringle/sim,cringle/raw \
                  --tests --target $target; cargo build -p cringle-cli --target $target; \
                  .ci/static \"${CARGO_TARGET_DIR:-target}/$target/debug/cringle\"",
        packages: &["cringle", "cringle-cli"],
        needs: &["rustup"],
        minutes: 4,
        ..Check::NONE
    },
    Check {
        name: "switches",
        about: "the machine code of the switch to a fiber's stack, with each link-time optimisation",
        command: "cargo xtask switches",
        packages: &["cringle"],
        paths: &["xtask/src/switches.rs"],
        needs: &["objdump"],
        minutes: 3,
        ..Check::NONE
    },
    // The library's tests in other ways.
    Check {
        name: "epoll-all",
        about: "the tests of the library on epoll, all of them",
        environment: &[("CRINGLE_DRIVER", "epoll")],
        ..LIBRARY
    },
    Check {
        name: "restricted",
        about: "the tests of the library on rings that can do only what it asks of them",
        environment: &[("CRINGLE_RESTRICT", "on")],
        ..LIBRARY
    },
    Check {
        name: "shared-all",
        about: "the tests of the library with shared thread-locals",
        environment: &[("CRINGLE_THREAD_LOCALS", "shared")],
        ..LIBRARY
    },
    Check {
        name: "shared-epoll",
        about: "the same on epoll, but the documentation's examples of rings",
        environment: &[("CRINGLE_THREAD_LOCALS", "shared"), ("CRINGLE_DRIVER", "epoll")],
        ..LIBRARY
    },
    Check {
        name: "restless",
        about: "the tests of the library with fibers that move at every chance",
        environment: &[("CRINGLE_BALANCE", "restless")],
        ..LIBRARY
    },
    Check {
        name: "restless-epoll",
        about: "the same on epoll",
        environment: &[("CRINGLE_BALANCE", "restless"), ("CRINGLE_DRIVER", "epoll")],
        ..LIBRARY
    },
    Check {
        name: "optimised",
        about: "unwinding and foreign code, with an optimised library: the optimiser merges frames",
        command: "cargo test --config .ci/optimized.toml --workspace --all-features \
                  --test foreign_code --test foreign",
        ..LIBRARY
    },
    Check {
        name: "foreign",
        about: "destructors, hooks, subscribers and callbacks that misbehave, all optimised",
        command: "cargo test --release --workspace --all-features --test foreign --test foreign_code",
        ..LIBRARY
    },
    Check {
        name: "foreign-abort",
        about: "the same with panics that abort",
        environment: &[("RUSTFLAGS", "-Cpanic=abort")],
        command: "cargo test --target x86_64-unknown-linux-gnu --target-dir target/abort -p cringle \
                  --all-features --test foreign",
        minutes: 4,
        ..LIBRARY
    },
    Check {
        name: "asan",
        about: "the same, teardown and unwinding under AddressSanitizer",
        environment: &[
            ("RUSTC_BOOTSTRAP", "1"),
            (
                "RUSTFLAGS",
                // Without the sanitizer's constructors: with them, a codegen unit that has only
                // assembly (as corosensei's) would have no unwind tables, and no backtrace could
                // pass it.
                "-Zsanitizer=address -Cllvm-args=-asan-constructor-kind=none --cfg cringle_sanitizer",
            ),
            // Its copies of frames, by which it finds uses after return, take gigabytes with so
            // many stacks: then the process cannot fork.
            ("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0"),
            // As they are there in any case; then no program prints a line that says why.
            ("CRINGLE_THREAD_LOCALS", "shared"),
        ],
        command: "cargo test --target x86_64-unknown-linux-gnu --target-dir target/asan -p cringle \
                  --all-features --test fiber --test foreign_code --test foreign",
        minutes: 10,
        ..LIBRARY
    },
    Check {
        name: "shared-foreign",
        about: "code that misbehaves, and a million cancels, optimised, with shared thread-locals",
        environment: &[("CRINGLE_THREAD_LOCALS", "shared"), ("CRINGLE_SOAK_CANCELS", "1000000")],
        command: FOREIGN_AND_SOAK,
        minutes: 15,
        ..LIBRARY
    },
    Check {
        name: "restless-foreign",
        about: "the same with fibers that move",
        environment: &[("CRINGLE_BALANCE", "restless"), ("CRINGLE_SOAK_CANCELS", "1000000")],
        command: FOREIGN_AND_SOAK,
        minutes: 15,
        ..LIBRARY
    },
    Check {
        name: "scale",
        about: "a million fibers, directories of 100,000 entries, trees of 10,000 levels",
        environment: &[("CRINGLE_FULL", "1")],
        command: "cargo test --release --workspace --all-features --test memory --test fs \
                  --test children --test thread_locals --test process --test sim; \
                  cargo test --release --workspace --all-features --test fiber deadlines",
        minutes: 20,
        ..LIBRARY
    },
    Check {
        name: "debugger",
        about: "gdb lists 10,000 fibers; the log has the seconds",
        environment: &[("CRINGLE_FULL", "1")],
        command: "cargo build --workspace --all-features --examples; \
                  cargo test --workspace --all-features --test examples debugger -- --nocapture",
        needs: &["gdb"],
        minutes: 6,
        ..LIBRARY
    },
    // Generated programs.
    Check {
        name: "soak",
        about: "a million cancels of operations in flight",
        environment: &[("CRINGLE_SOAK_CANCELS", "1000000")],
        command: "cargo test --release --workspace --all-features --test memory soak -- --nocapture",
        minutes: 12,
        ..LIBRARY
    },
    Check {
        name: "drivers",
        about: "10,000 random programs with the same results on io_uring and on epoll",
        environment: &[("CRINGLE_PROGRAMS", "10000")],
        command: "cargo test --release --workspace --all-features --test drivers drivers_agree",
        minutes: 8,
        ..LIBRARY
    },
    Check {
        name: "sim-tests",
        about: "10,000 random programs in the simulation and on the ring",
        environment: &[("CRINGLE_PROGRAMS", "10000")],
        command: "cargo test --release --workspace --all-features --test programs -- outcomes:: memory::",
        packages: &["cringle-fuzz"],
        minutes: 12,
        ..Check::NONE
    },
    Check {
        name: "sim",
        about: "a million random programs in the simulation",
        command: simulation!("--seeds 1000000"),
        minutes: 20,
        ..SIMULATION
    },
    Check {
        name: "shared-sim",
        about: "100,000 random programs in the simulation with shared thread-locals",
        environment: &[("CRINGLE_THREAD_LOCALS", "shared")],
        command: simulation!("--seeds 100000"),
        minutes: 8,
        ..SIMULATION
    },
    Check {
        name: "moving-sim",
        about: "200,000 random programs in the simulation on four workers, between which fibers move",
        command: simulation!("--seeds 200000 --workers 4"),
        minutes: 10,
        ..SIMULATION
    },
    Check {
        name: "c",
        about: "a million random calls of the C interface",
        environment: &[("CRINGLE_CALLS", "1000000")],
        command: "cargo test --release --workspace --all-features --test programs -- --nocapture random_calls",
        packages: &["cringle-c"],
        minutes: 12,
        ..Check::NONE
    },
    Check {
        name: "threads",
        about: "a million threads that are fibers, joined or detached",
        environment: &[("CRINGLE_SPAWNED", "250000")],
        command: "cargo xtask test --only cringle-interpose:installed threads::spawned::handles",
        packages: &["cringle-interpose"],
        minutes: 5,
        ..Check::NONE
    },
    // Generated trees, and tables of which the suite takes a part.
    Check {
        name: "copies",
        about: "every combination in the tables of the tests of `cringle cp`",
        environment: &[("CRINGLE_FULL", "1")],
        command: "cargo test --release --workspace --all-features --test cp",
        minutes: 8,
        ..COPIES
    },
    Check {
        name: "trees",
        about: "10,000 random trees onto occupied targets, by GNU's cp and by ours",
        environment: &[("CRINGLE_TREES", "10000")],
        command: "cargo test --release --workspace --all-features --test cp generated -- --nocapture",
        minutes: 15,
        ..COPIES
    },
    Check {
        name: "kills",
        about: "1,000 copies that are killed and repeated",
        environment: &[("CRINGLE_KILLS", "1000")],
        command: "cargo test --release --workspace --all-features --test cp killed -- --nocapture",
        minutes: 25,
        ..COPIES
    },
    Check {
        name: "resumes",
        about: "2,000 copies that are interrupted several times and continued",
        environment: &[("CRINGLE_RESUMES", "2000")],
        command: "cargo test --release --workspace --all-features --test cp interrupted_copies -- --nocapture",
        minutes: 30,
        ..COPIES
    },
    Check {
        name: "faults",
        about: "every fault of a file system under every way of copying",
        environment: &[("CRINGLE_FAULTS", "all")],
        command: "cargo test --release --workspace --all-features --test cp no_fault -- --nocapture",
        minutes: 30,
        ..COPIES
    },
    // Other crates, and other compilers.
    Check {
        name: "ecosystem-lints",
        about: "clippy warns of nothing in ecosystem/",
        command: "cd ecosystem; cargo clippy --workspace --exclude cringle-ecosystem-datafusion --all-targets -- -D warnings",
        packages: &[
            "cringle-ecosystem",
            "cringle-ecosystem-header",
            "cringle-ecosystem-interposed",
            "cringle-ecosystem-parquet",
            "cringle-ecosystem-trace",
        ],
        minutes: 6,
        ..Check::NONE
    },
    Check {
        name: "parquet",
        about: "Parquet files, and DataFusion's queries, through the object store",
        command: "cd ecosystem; cargo test -p cringle-ecosystem-parquet; cargo test --release -p cringle-ecosystem-datafusion",
        packages: &["cringle-ecosystem-parquet", "cringle-ecosystem-datafusion"],
        minutes: 30,
        ..Check::NONE
    },
    Check {
        name: "trace",
        about: "traces, read by Perfetto's definitions",
        command: "cd ecosystem; cargo test -p cringle-ecosystem-trace",
        packages: &["cringle-ecosystem-trace"],
        minutes: 4,
        ..Check::NONE
    },
    Check {
        name: "crates",
        about: "1,000 fibers with unmodified crates against real servers",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "1"),
            ("CRINGLE_DRIVER", "uring"),
        ],
        ..INTERPOSED
    },
    Check {
        name: "crates-2",
        about: "the same on two workers",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "2"),
            ("CRINGLE_DRIVER", "uring"),
        ],
        ..INTERPOSED
    },
    Check {
        name: "crates-epoll",
        about: "the same on epoll",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "1"),
            ("CRINGLE_DRIVER", "epoll"),
        ],
        ..INTERPOSED
    },
    Check {
        name: "crates-epoll-2",
        about: "the same on epoll and two workers",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "2"),
            ("CRINGLE_DRIVER", "epoll"),
        ],
        ..INTERPOSED
    },
    Check {
        name: "programs",
        about: "unmodified programs, with threads and with the preloaded library",
        command: "cargo build --release -p cringle-preload; \
                  ecosystem/programs/run --preload \
                  \"${CARGO_TARGET_DIR:-target}/release/libcringle_preload.so\"",
        packages: &["cringle-preload"],
        paths: &["ecosystem/programs"],
        needs: &["python3", "cc"],
        minutes: 25,
        ..Check::NONE
    },
    Check {
        name: "ocaml5",
        about: "the binding of OCaml 5, in a chroot (installs its packages there, as root)",
        command: ".ci/bindings ocaml5",
        packages: &["cringle-c"],
        paths: &["bindings/ocaml"],
        minutes: 4,
        ..Check::NONE
    },
    Check {
        name: "python-free-threaded",
        about: "the Python package in CPython without a GIL",
        command: ".ci/bindings python-free-threaded",
        packages: &["cringle-python"],
        paths: &["rustfmt.toml", "docs/book/src/python.md"],
        minutes: 4,
        ..Check::NONE
    },
];
