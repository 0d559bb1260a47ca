//! One experiment: a child process that is this program again, and the JSON that it leaves.

use super::AllArgs;
use super::experiments::Experiment;
use crate::child::{wait, why};
use cringle_report::interrupt;
use cringle_report::{self, page::Page};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::File;
use std::io::{self, IsTerminal, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What came of it. Both may be there: a tool of several failed.
pub(super) struct Outcome {
    pub(super) report: Option<Value>,
    /// For a page; `None` where none is spec.
    pub(super) page: Option<Page>,
    pub(super) error: Option<String>,
}

pub(super) fn run(experiment: &Experiment, args: &AllArgs) -> Outcome {
    match try_run(experiment, args) {
        Ok(outcome) => outcome,
        Err(error) => {
            Outcome { report: None, page: None, error: Some(format!("it cannot be run: {error}")) }
        }
    }
}

fn try_run(experiment: &Experiment, args: &AllArgs) -> io::Result<Outcome> {
    // Without names: gone when this process is. The child opens ours.
    let (mut results, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut page = tempfile::tempfile()?;
    let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let shown = !args.quiet && io::stderr().is_terminal();
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
    command.args(experiment.arguments(args, &flags));
    let tables =
        if args.quiet || args.outputs.take_stdout() { Stdio::null() } else { Stdio::inherit() };
    let told = if shown { Stdio::inherit() } else { errors.try_clone()?.into() };
    // In a group of its own, so that Ctrl-C comes to it once: from us.
    command.stdin(Stdio::null()).stdout(tables).stderr(told).process_group(0);
    end_with_us(&mut command);
    let child = command.spawn()?;
    interrupt::terminate_on_interrupt(child.id());
    let (status, _) = wait(child.id() as libc::pid_t)?;
    let error = (!status.success()).then(|| why(status, &mut errors));
    Ok(match read(&mut results) {
        Ok(None) => {
            let none = || "it left no results".into();
            Outcome { report: None, page: None, error: error.or_else(|| Some(none())) }
        }
        // The figures are told without it, too.
        Ok(report) => Outcome { report, page: read(&mut page).ok().flatten(), error },
        Err(bad) => {
            let text = || format!("its results cannot be read: {bad}");
            Outcome { report: None, page: None, error: error.or_else(|| Some(text())) }
        }
    })
}

/// It is told to end, in order, when this process does by what it cannot answer: it has data to remove.
fn end_with_us(command: &mut Command) {
    let us = std::process::id() as libc::pid_t;
    let signal = interrupt::PARENT_DIED.number();
    // SAFETY: between `fork` and `exec` it makes system calls without pointers, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                return Err(io::Error::last_os_error());
            }
            // We may have ended before that.
            match libc::getppid() == us {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
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
