//! The matrix of foreign code: each place where the library calls code of the program, times each
//! action of such code, on both drivers (**I12**, **I13**). No cell corrupts memory or hangs, and a
//! cell aborts only where docs/book/src/hazards.md says so.
//!
//! Each cell is a process. This program has no test harness, because the harness does not support
//! `panic = "abort"`. It runs under each of these:
//!
//!     cargo test -p cringle --all-features --test foreign
//!     cargo test -p cringle --all-features --test foreign -- iterator::waits # part of a name
//!
//! and, as CONTRIBUTING.md says, with optimisations, under AddressSanitizer, and with `panic =
//! "abort"`.

mod act;
mod kinds;

use act::Act;
use kinds::{End, KINDS, Kind};
use std::io::Read;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The environment variable that names a child's cell.
const CELL: &str = "CRINGLE_FOREIGN_CELL";
/// The time after which a cell hangs. On an idle machine it takes less than a second.
const HANGS_AFTER: Duration = Duration::from_secs(600);

struct Cell {
    kind: &'static Kind,
    act: Act,
    driver: &'static str,
}

impl Cell {
    fn name(&self) -> String {
        format!("{}::{}::{}", self.kind.name, self.act.name(), self.driver)
    }

    /// The expected end of the cell.
    fn expected(&self) -> End {
        let raises = self.act.raises() || (self.kind.is_beside && self.act.needs_fiber());
        let unwinds = cfg!(panic = "unwind");
        if !unwinds && self.kind.panics {
            End::Aborts("")
        } else if !raises {
            End::Succeeds
        } else if !unwinds {
            End::Aborts("panicked at")
        } else if self.act == Act::Cancels && self.kind.precedes_unwinding {
            // The cancel replaces the panic; only a second panic aborts.
            End::Succeeds
        } else {
            self.kind.raised
        }
    }

    fn run(&self) -> Result<(), String> {
        let (status, text) =
            output(self.start()).map_err(|text| format!("the cell hangs\n{text}"))?;
        let as_expected = match self.expected() {
            End::Succeeds => status.success() && text.contains(kinds::DONE),
            End::Aborts(message) => is_abort(status) && text.contains(message),
        };
        if as_expected && !text.contains("AddressSanitizer") {
            Ok(())
        } else {
            Err(format!("{status}, expected {:?}\n{text}", self.expected()))
        }
    }

    fn start(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(CELL, self.name()).env("CRINGLE_DRIVER", self.driver);
        command.env("CRINGLE_WATCHDOG", "off").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

fn is_abort(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(libc::SIGABRT)
}

/// Returns the child's status and output, or its output as the error if it hung and was killed.
fn output(mut child: Child) -> Result<(ExitStatus, String), String> {
    let mut stderr = child.stderr.take().unwrap();
    let reads = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let deadline = Instant::now() + HANGS_AFTER;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let text = reads.join().unwrap();
    status.map(|status| (status, text.clone())).ok_or(text)
}

fn drivers() -> Vec<&'static str> {
    match std::env::var("CRINGLE_DRIVER").as_deref() {
        Ok("epoll") => return vec!["epoll"],
        Ok("uring") => return vec!["uring"],
        _ => {}
    }
    let driver = cringle::run(cringle::runtime::driver);
    match driver {
        cringle::runtime::Driver::Uring(_) => vec!["uring", "epoll"],
        _ => {
            eprintln!("skipped: the cells on rings, which are denied here");
            vec!["epoll"]
        }
    }
}

fn cells() -> Vec<Cell> {
    let drivers = drivers();
    if !cfg!(feature = "tracing") {
        eprintln!("skipped: subscribers, which need the feature `tracing`");
    }
    let mut cells = Vec::new();
    for kind in KINDS.iter().filter(|kind| cfg!(panic = "unwind") || !kind.needs_unwinding) {
        for act in Act::ALL.into_iter().filter(|&act| !(kind.is_alone && act.needs_fiber())) {
            cells.extend(drivers.iter().map(|driver| Cell { kind, act, driver }));
        }
    }
    cells
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CELL) {
        return kinds::run_cell(&name);
    }
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_chosen = |cell: &Cell| {
        let name = cell.name();
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter))
    };
    let chosen: Vec<Cell> = cells().into_iter().filter(is_chosen).collect();
    if std::env::args().any(|arg| arg == "--list") {
        chosen.iter().for_each(|cell| println!("{}: test", cell.name()));
        return ExitCode::SUCCESS;
    }
    let count = chosen.len();
    let left = Mutex::new(chosen.into_iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        // A cell mostly waits, so run more cells than the machine has cores.
        for _ in 0..2 * std::thread::available_parallelism().map_or(1, usize::from) {
            s.spawn(|| {
                loop {
                    let next = left.lock().unwrap().next();
                    let Some(cell) = next else { return };
                    if let Err(text) = cell.run() {
                        failures.lock().unwrap().push(format!("---- {}: {text}", cell.name()));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    failures.iter().for_each(|failure| eprintln!("{failure}"));
    // As the usual harness says it.
    let (passed, failed) = (count - failures.len(), failures.len());
    let all = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {all}. {passed} passed; {failed} failed; 0 ignored");
    assert!(count > 0 || !filters.is_empty(), "the matrix has cells");
    ExitCode::from(u8::from(!failures.is_empty()))
}
