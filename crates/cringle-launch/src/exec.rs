//! Becoming the program.

use crate::target::Target;
use crate::{CANNOT_RUN, failure};
use cringle_command::startup;
use cringle_report::failure::Failure;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Runs the program in place of this process, which has what the process was started with: its
/// mask and dispositions of signals, and the standard descriptors that were open. Returns why it
/// could not.
pub(crate) fn exec(target: &Target, changes: Vec<(&'static str, OsString)>) -> Result<(), Failure> {
    let mut variables: BTreeMap<OsString, OsString> = env::vars_os().collect();
    variables.extend(changes.into_iter().map(|(name, value)| (name.into(), value)));
    let variables: Vec<_> = variables.into_iter().map(|(name, value)| pair(name, &value)).collect();
    let (file, arguments) = (c_string(target.file.as_os_str()), &target.arguments);
    let arguments: Vec<_> = arguments.iter().map(|argument| c_string(argument)).collect();
    if !startup::ignores_sigpipe() {
        // SAFETY: the contract of `signal`: no pointer is passed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    for fd in startup::closed() {
        // SAFETY: a system call with no pointers. What was put in the place of the closed
        // descriptor has no owner.
        unsafe { libc::close(fd) };
    }
    let (arguments, variables) = (pointers(&arguments), pointers(&variables));
    // SAFETY: the contract of `execvpe`: C strings, and arrays of them that end with null.
    unsafe { libc::execvpe(file.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    let error = io::Error::last_os_error();
    Err(failure(CANNOT_RUN, format!("{}: {error}", target.file.display())))
}

/// `NAME=VALUE`.
fn pair(mut name: OsString, value: &OsStr) -> CString {
    name.push("=");
    name.push(value);
    c_string(&name)
}

fn c_string(text: &OsStr) -> CString {
    CString::new(text.as_bytes()).expect("from arguments and the environment, which have no nulls")
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}
