//! The command line of `cringle run`.

use clap::Args;
use cringle_report::failure::Failure;
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  cringle run ./server --port 8080
      Run a server that has a thread for each connection; its threads are fibers
  cringle run --explain ./server --port 8080
      Report what of it waits on fibers and what does not; runs it for 10 seconds
  cringle run --children sh -c './build && ./server'
      Serve everything that the shell starts, too
  cringle run --workers 2 --driver epoll python3 server.py
      Use two workers, and no ring
  cringle --trace t run ./server; cringle trace t
      Trace the fibers of the program
  LD_PRELOAD=$(cringle run --library) ./server
      Preload the library by hand, as in the file of a service

PROGRAM is found in PATH. It must be linked dynamically with GNU's C library. This process becomes \
the program, so its exit status, signals, terminal and open files are those of the program. The \
first thread that the program creates starts a worker for each core; main stays a thread of the \
system. Options after PROGRAM belong to the program. A script is run by its interpreter, which is \
the program; what a script or a program starts is served with --children only.

docs/book/src/command/run.md explains what changes for a program, and what cannot be.

Exit status: that of PROGRAM; 125 the library is missing, or cannot start as the options and \
variables demand (rings are refused, a value is invalid, or the trace has no place), 126 PROGRAM \
cannot be run or served, 127 it is not found, 2 wrong usage. With --explain: 0 if a report was \
made.";

/// The most workers of a runtime.
const MAX_WORKERS: usize = 1024;
const LONGEST_SECONDS: f64 = 86_400.0;

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct RunArgs {
    /// Program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required_unless_present = "library")]
    pub program: Vec<OsString>,

    /// Serve also the programs that PROGRAM starts
    #[arg(long)]
    pub children: bool,

    /// Report what of PROGRAM waits on fibers and what does not: by what it imports, and by a trial
    /// run
    #[arg(long)]
    pub explain: bool,

    /// End the trial run after this time by SIGTERM
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub seconds: f64,

    /// Print the path of the library to preload
    #[arg(long, conflicts_with = "program")]
    pub library: bool,

    /// Number of workers [default: one for each core]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,

    /// How the fibers wait; with uring, PROGRAM is not started where rings are denied [default:
    /// uring, or epoll where rings are denied]
    #[arg(long, value_parser = ["uring", "epoll"])]
    pub driver: Option<String>,

    /// Print at this signal, or append to this file at SIGUSR1, which fiber waits for what: usr1,
    /// usr2, hup, quit, or a path with a slash
    #[arg(long, value_name = "SIGNAL|FILE")]
    pub dump: Option<OsString>,

    /// Report fibers that run for longer than this without waiting: milliseconds, locks or off
    #[arg(long, value_name = "MS")]
    pub watchdog: Option<String>,
}

impl RunArgs {
    /// Checks what clap cannot express.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        if self.workers.is_some_and(|workers| !(1..=MAX_WORKERS).contains(&workers)) {
            return Err(Failure::usage(format!("--workers must be 1 to {MAX_WORKERS}")));
        }
        if !(self.seconds > 0.0 && self.seconds <= LONGEST_SECONDS) {
            return Err(Failure::usage("--seconds must be more than 0 and at most 86400"));
        }
        Ok(())
    }
}
