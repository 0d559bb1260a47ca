//! Runs the generators of the test suite with their full counts, which takes hours.
//!
//! `.ci/run` draws a small sample from each generator. This command runs all of them, one after the
//! other, and keeps the output of each. A job that fails does not stop the others.

use crate::Result;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask long                    every job
  cargo xtask long --list             the jobs, and the command of each
  cargo xtask long --only sim,soak

The output of each job is kept in target/long. Status: 0 if all jobs passed, 1 if one failed.")]
pub(crate) struct Args {
    /// Run only these jobs, in this order
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    only: Vec<String>,

    /// Print each job with its command, and run none
    #[arg(long)]
    list: bool,
}

/// One command that takes minutes or hours.
struct Job {
    name: &'static str,
    about: &'static str,
    environment: &'static [(&'static str, &'static str)],
    command: &'static str,
}

static JOBS: &[Job] = &[
    Job {
        name: "sim",
        about: "a million random programs in the simulation",
        environment: &[],
        command: "cargo run --release -p cringle-cli -- sim --quiet --seeds 1000000",
    },
    Job {
        name: "bindings",
        about: "the bindings for Haskell and OCaml, and OCaml 5 in a chroot (installs compilers, as root)",
        environment: &[("CRINGLE_BINDINGS", "install")],
        command: ".ci/bindings haskell ocaml ocaml5",
    },
    Job {
        name: "python-free-threaded",
        about: "the Python package in CPython without a GIL; skipped by name without python3.14t",
        environment: &[],
        command: ".ci/bindings python-free-threaded",
    },
    Job {
        name: "soak",
        about: "a million cancels of operations in flight",
        environment: &[("CRINGLE_SOAK_CANCELS", "1000000")],
        command: "cargo test --release -p cringle --test memory soak -- --nocapture",
    },
    Job {
        name: "c",
        about: "a million random calls of the C interface",
        environment: &[("CRINGLE_CALLS", "1000000")],
        command: "cargo test --release -p cringle-c --test programs -- --nocapture random_calls",
    },
    Job {
        name: "drivers",
        about: "10,000 random programs with the same results on io_uring and on epoll",
        environment: &[("CRINGLE_PROGRAMS", "10000")],
        command: "cargo test --release -p cringle --test drivers drivers_agree",
    },
    Job {
        name: "sim-tests",
        about: "10,000 random programs in the simulation and on the ring",
        environment: &[("CRINGLE_PROGRAMS", "10000")],
        command: "cargo test --release -p cringle-fuzz --test programs",
    },
    Job {
        name: "trees",
        about: "10,000 random trees onto occupied targets, by GNU's cp and by ours",
        environment: &[("CRINGLE_TREES", "10000")],
        command: "cargo test --release -p cringle-cli --test cp generated -- --nocapture",
    },
    Job {
        name: "switches",
        about: "the machine code of the switch to a fiber's stack, with each link-time optimisation",
        environment: &[],
        command: "cargo xtask switches",
    },
    Job {
        name: "private",
        about: "the tests of the library with private thread-locals",
        environment: &[("CRINGLE_THREAD_LOCALS", "private")],
        command: "cargo test -p cringle --all-features",
    },
    Job {
        name: "private-epoll",
        about: "the same on epoll, but the documentation's examples of rings",
        environment: &[("CRINGLE_THREAD_LOCALS", "private"), ("CRINGLE_DRIVER", "epoll")],
        command: "cargo test -p cringle --all-features --tests",
    },
    Job {
        name: "private-sim",
        about: "100,000 random programs in the simulation with private thread-locals",
        environment: &[("CRINGLE_THREAD_LOCALS", "private")],
        command: "cargo run --release -p cringle-cli -- sim --quiet --seeds 100000",
    },
    Job {
        name: "moving-sim",
        about: "200,000 random programs in the simulation on four workers, between which fibers move",
        environment: &[("CRINGLE_BALANCE", "moving")],
        command: "cargo run --release -p cringle-cli -- sim --quiet --seeds 200000 --workers 4",
    },
    Job {
        name: "private-foreign",
        about: "destructors, hooks and callbacks that misbehave, and cancels, optimised, with private \
                thread-locals",
        environment: &[("CRINGLE_THREAD_LOCALS", "private"), ("CRINGLE_SOAK_CANCELS", "1000000")],
        command: "cargo test --release -p cringle --all-features \
                  --test foreign --test foreign_code; \
                  cargo test --release -p cringle --all-features --test memory soak",
    },
    Job {
        name: "moving",
        about: "the tests of the library with fibers that move between workers at every chance",
        environment: &[("CRINGLE_BALANCE", "restless")],
        command: "cargo test -p cringle --all-features --tests",
    },
    Job {
        name: "moving-epoll",
        about: "the same on epoll",
        environment: &[("CRINGLE_BALANCE", "restless"), ("CRINGLE_DRIVER", "epoll")],
        command: "cargo test -p cringle --all-features --tests",
    },
    Job {
        name: "moving-foreign",
        about: "destructors, hooks and callbacks that misbehave, and cancels, optimised, with fibers \
                that move",
        environment: &[("CRINGLE_BALANCE", "restless"), ("CRINGLE_SOAK_CANCELS", "1000000")],
        command: "cargo test --release -p cringle --all-features \
                  --test foreign --test foreign_code; \
                  cargo test --release -p cringle --all-features --test memory soak",
    },
    Job {
        name: "scale",
        about: "a million fibers, directories of 100,000 entries, trees of 10,000 levels",
        environment: &[("CRINGLE_FULL", "1")],
        command: "cargo test --release -p cringle --all-features \
                  --test memory --test fs --test children --test thread_locals",
    },
    Job {
        name: "debugger",
        about: "gdb lists 10,000 fibers; the log has the seconds",
        environment: &[("CRINGLE_FULL", "1")],
        command: "cargo build -p cringle --all-features --examples; \
                  cargo test -p cringle --all-features --test examples debugger -- --nocapture",
    },
    Job {
        name: "foreign",
        about: "destructors, hooks, subscribers and callbacks that misbehave, optimised",
        environment: &[],
        command: "cargo test --release -p cringle --all-features --test foreign --test foreign_code",
    },
    Job {
        name: "foreign-asan",
        about: "the same under AddressSanitizer",
        environment: &[
            ("RUSTC_BOOTSTRAP", "1"),
            (
                "RUSTFLAGS",
                // Without the sanitizer's constructors: with them, a codegen unit that has only
                // assembly (as corosensei's) would have no unwind tables, and no backtrace could
                // pass it.
                "-Zsanitizer=address -Cllvm-args=-asan-constructor-kind=none --cfg cringle_sanitizer",
            ),
            ("ASAN_OPTIONS", "detect_leaks=0"),
        ],
        command: "cargo test --target x86_64-unknown-linux-gnu --target-dir target/asan -p cringle \
                  --all-features --test foreign --test foreign_code",
    },
    Job {
        name: "foreign-abort",
        about: "the same with panics that abort",
        environment: &[("RUSTFLAGS", "-Cpanic=abort")],
        command: "cargo test --target x86_64-unknown-linux-gnu --target-dir target/abort -p cringle \
                  --all-features --test foreign",
    },
    Job {
        name: "kills",
        about: "1,000 copies that are killed and repeated",
        environment: &[("CRINGLE_KILLS", "1000")],
        command: "cargo test --release -p cringle-cli --test cp killed -- --nocapture",
    },
    Job {
        name: "resumes",
        about: "2,000 copies that are interrupted several times and continued",
        environment: &[("CRINGLE_RESUMES", "2000")],
        command: "cargo test --release -p cringle-cli --test cp interrupted_copies -- --nocapture",
    },
    Job {
        name: "faults",
        about: "every fault of a file system under every way of copying",
        environment: &[("CRINGLE_FAULTS", "all")],
        command: "cargo test --release -p cringle-cli --test cp no_fault -- --nocapture",
    },
    Job {
        name: "threads",
        about: "a million threads that are fibers, joined or detached",
        environment: &[("CRINGLE_SPAWNED", "250000")],
        command: "cargo test -p cringle-interpose --test installed threads::spawned::handles",
    },
    Job {
        name: "crates",
        about: "1,000 fibers with unmodified crates against real servers",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "1"),
            ("CRINGLE_DRIVER", "uring"),
            // See ecosystem/.cargo/config.toml.
            ("SSL_CERT_FILE", "/dev/null"),
            ("SSL_CERT_DIR", "/var/empty"),
        ],
        command: CRATES,
    },
    Job {
        name: "crates-2",
        about: "the same on two workers",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "2"),
            ("CRINGLE_DRIVER", "uring"),
            // See ecosystem/.cargo/config.toml.
            ("SSL_CERT_FILE", "/dev/null"),
            ("SSL_CERT_DIR", "/var/empty"),
        ],
        command: CRATES,
    },
    Job {
        name: "crates-epoll",
        about: "the same on epoll",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "1"),
            ("CRINGLE_DRIVER", "epoll"),
            // See ecosystem/.cargo/config.toml.
            ("SSL_CERT_FILE", "/dev/null"),
            ("SSL_CERT_DIR", "/var/empty"),
        ],
        command: CRATES,
    },
    Job {
        name: "crates-epoll-2",
        about: "the same on epoll and two workers",
        environment: &[
            ("CRINGLE_CROWD", "1000"),
            ("CRINGLE_CROWD_WORKERS", "2"),
            ("CRINGLE_DRIVER", "epoll"),
            // See ecosystem/.cargo/config.toml.
            ("SSL_CERT_FILE", "/dev/null"),
            ("SSL_CERT_DIR", "/var/empty"),
        ],
        command: CRATES,
    },
];

const CRATES: &str = "cd ecosystem; cargo test -p cringle-ecosystem-interposed -- \
                      --nocapture --test-threads 1";

/// Runs the chosen jobs. Returns whether all passed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let chosen = choose(&args.only)?;
    if args.list {
        for job in chosen {
            println!("{:<12} {}\n{:<12} {}", job.name, job.about, "", job.line());
        }
        return Ok(true);
    }
    let logs = Path::new("target/long");
    fs::create_dir_all(logs)?;
    let mut failed = Vec::new();
    for job in chosen {
        println!("{}: {}\n    {}", job.name, job.about, job.line());
        let log = logs.join(format!("{}.log", job.name));
        let (status, took) = job.run(&log)?;
        let seconds = took.as_secs();
        if status.success() {
            println!("{}: passed in {seconds} s", job.name);
        } else {
            println!("{}: FAILED ({status}) after {seconds} s; see {}", job.name, log.display());
            failed.push(job.name);
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn choose(only: &[String]) -> Result<Vec<&'static Job>> {
    if only.is_empty() {
        return Ok(JOBS.iter().collect());
    }
    let find = |name: &String| {
        let found = JOBS.iter().find(|job| job.name == name);
        found.ok_or_else(|| format!("no job is named '{name}'; --list prints the names").into())
    };
    only.iter().map(find).collect()
}

impl Job {
    /// The command with its environment, to copy into a shell.
    fn line(&self) -> String {
        let set = self.environment.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}{}", set.collect::<String>(), self.command)
    }

    fn run(&self, log: &PathBuf) -> Result<(ExitStatus, Duration)> {
        let output = File::create(log)?;
        let started = Instant::now();
        // A shell: the commands are constants of this file, and some have several steps.
        let status = Command::new("sh")
            .args(["-ec", self.command])
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()?;
        Ok((status, started.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_names_tests_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for job in JOBS {
            for (name, _) in job.command.match_indices("--test ") {
                let name = job.command[name + "--test ".len()..].split(' ').next().unwrap();
                let exists = root.read_dir().unwrap().any(|krate| {
                    let tests = krate.unwrap().path().join("tests");
                    tests.join(format!("{name}.rs")).exists() || tests.join(name).is_dir()
                });
                assert!(exists, "job {}: no test file is named {name}", job.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_can_be_chosen() {
        for job in JOBS {
            let chosen = choose(&[job.name.to_owned()]).unwrap();
            assert!(std::ptr::eq(chosen[0], job), "two jobs are named {}", job.name);
        }
        assert!(choose(&["no-such-job".to_owned()]).is_err());
    }
}
