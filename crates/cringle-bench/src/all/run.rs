//! Runs one experiment: a child process of the same program, and the JSON that it writes.

use super::AllArgs;
use super::experiments::Call;
use crate::child::{Stderr, wait};
use cringle_report::interrupt;
use cringle_report::{self, page::Page};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::File;
use std::io::{self, IsTerminal, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The result of an experiment. It may have a report and an error: one of several tools may have
/// failed.
pub(super) struct Outcome {
    pub(super) report: Option<Value>,
    /// The parts of the page, if `--html` is given.
    pub(super) page: Option<Page>,
    pub(super) error: Option<String>,
}

impl Outcome {
    fn failed(error: String) -> Outcome {
        Outcome { report: None, page: None, error: Some(error) }
    }
}

pub(super) fn run(call: &Call, args: &AllArgs) -> Outcome {
    match try_run(call, args) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::failed(format!("it cannot be run: {error}")),
    }
}

fn try_run(call: &Call, args: &AllArgs) -> io::Result<Outcome> {
    // The files have no names, and vanish with this process. The child opens them through `/proc`.
    let (mut results, mut page) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut errors = Stderr::new()?;
    let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let shown = !args.outputs.quiet && io::stderr().is_terminal();
    let color = if cringle_report::colored() { "always" } else { "never" };
    let (json, parts) = (path(&results), path(&page));
    let mut flags = vec!["--json", &json, "--color", color];
    if !shown {
        flags.push("--quiet");
    }
    if args.outputs.html.is_some() {
        flags.extend(["--page", &parts]);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(call.arguments(args, &flags));
    let tables = if args.outputs.quiet || args.outputs.use_stdout() {
        Stdio::null()
    } else {
        Stdio::inherit()
    };
    let stderr = if shown { Stdio::inherit() } else { errors.writer()? };
    // The child is in a group of its own, so that it gets one signal after Ctrl-C: from this
    // process.
    command.stdin(Stdio::null()).stdout(tables).stderr(stderr).process_group(0);
    end_with_this_process(&mut command);
    let child = command.spawn()?;
    interrupt::terminate_on_interrupt(child.id());
    let (status, _) = wait(&child)?;
    let error = (!status.success()).then(|| errors.describe(status));
    Ok(match read(&mut results) {
        Ok(None) => Outcome::failed(error.unwrap_or_else(|| "it left no results".into())),
        // A page that cannot be read is missing from the report; the figures are complete.
        Ok(report) => Outcome { report, page: read(&mut page).ok().flatten(), error },
        Err(invalid) => Outcome::failed(
            error.unwrap_or_else(|| format!("its results cannot be read: {invalid}")),
        ),
    })
}

/// Lets the kernel signal the child when this process is killed, so that the child removes its
/// files.
fn end_with_this_process(command: &mut Command) {
    let parent = std::process::id() as libc::pid_t;
    let signal = interrupt::PARENT_DIED.number();
    // SAFETY: between `fork` and `exec` the closure makes two system calls without pointers. It
    // allocates nothing and takes no lock: the errors are plain numbers.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the call.
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

fn read<T: DeserializeOwned>(results: &mut File) -> io::Result<Option<T>> {
    if results.metadata()?.len() == 0 {
        return Ok(None);
    }
    results.rewind()?;
    Ok(Some(serde_json::from_reader(io::BufReader::new(results))?))
}
