//! `cringle run PROGRAM`: runs a program as it is, with its threads as fibers.
//!
//! [`target`] finds the program, and refuses what the library cannot be preloaded into. [`library`]
//! finds the library. [`environment`] is what the program gets from the options. Then this process
//! [becomes](exec) the program, so that its status, signals, terminal and descriptors are as
//! without the command. With `--explain`, [`trial`] runs the program in a child instead, and
//! reports.

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

pub mod args;
mod environment;
mod exec;
mod library;
mod target;
mod trial;

use args::RunArgs;
use cringle_report as report;
use cringle_report::failure::Failure;
use std::os::unix::ffi::OsStrExt;
use target::Target;

/// The exit status if the library is missing, or cannot start as the environment demands, or the
/// trace has no place, as that of `env` for its own failures.
pub const OWN_FAILURE: u8 = 125;
/// The exit status for a program that was found and cannot be run, as that of `env` and shells.
const CANNOT_RUN: u8 = 126;
/// The exit status for a program that was not found, as that of `env` and shells.
const NOT_FOUND: u8 = 127;

/// Runs `cringle run`. It returns only if the program does not run in place of this process.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    args.validate()?;
    let library = library::find()?;
    let Some((program, arguments)) = args.program.split_first() else {
        return report::print_bytes(&[library.as_os_str().as_bytes(), b"\n"].concat());
    };
    let target = Target::find(program, arguments)?;
    let variables = environment::changes(args, &library);
    if let Some(why) = environment::refusal(&variables) {
        return Err(failure(OWN_FAILURE, why));
    }
    if args.explain {
        trial::explain(&target, variables, args)
    } else {
        exec::exec(&target, variables)
    }
}

fn failure(status: u8, message: String) -> Failure {
    Failure { status, message }
}
