//! The program: found as `execvp` finds it, and followed from a script to its interpreter.

use crate::{CANNOT_RUN, NOT_FOUND, failure};
use cringle_doctor::program;
use cringle_report::failure::Failure;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is executed.
pub(crate) struct Target {
    pub(crate) file: PathBuf,
    /// The first is the name by which the program is called.
    pub(crate) arguments: Vec<OsString>,
    /// The ELF file: the program, or the interpreter of a script.
    pub(crate) served: PathBuf,
}

/// The most scripts that are the interpreter of another, as in the kernel.
const MOST_SCRIPTS: usize = 5;
/// What the kernel reads of a file to find its interpreter.
const START_BYTES: u64 = 256;
/// What runs a file without `#!`, as `execvp` has it.
const SHELL: &str = "/bin/sh";

impl Target {
    /// Finds the program, and refuses it with a sentence if it cannot be served.
    pub(crate) fn find(program: &OsStr, arguments: &[OsString]) -> Result<Target, Failure> {
        let file = search(program)?;
        let arguments = [&[program.to_owned()], arguments].concat();
        let mut target = Target { served: file.clone(), file, arguments };
        for _ in 0..MOST_SCRIPTS {
            match Content::of(&target.served) {
                Content::Program => return target.checked(),
                Content::Script(interpreter) => target.served = interpreter,
                Content::Other => target.served = SHELL.into(),
            }
        }
        let text = "its interpreters are scripts themselves; run a program";
        Err(target.refused(text))
    }

    fn checked(self) -> Result<Target, Failure> {
        match program::refusal(&self.served) {
            None => Ok(self),
            Some(why) => Err(self.refused(&why)),
        }
    }

    fn refused(&self, why: &str) -> Failure {
        let of = match self.served == self.file {
            true => String::new(),
            false => format!(": its interpreter {}", self.served.display()),
        };
        failure(CANNOT_RUN, format!("{}{of}: {why}", self.file.display()))
    }
}

/// What the kernel makes of a file.
enum Content {
    /// Also one that may be executed, and not read.
    Program,
    /// The interpreter.
    Script(PathBuf),
    Other,
}

impl Content {
    fn of(path: &Path) -> Content {
        let mut start = Vec::new();
        let read = |file: File| file.take(START_BYTES).read_to_end(&mut start);
        let is_read = path.is_file() && File::open(path).and_then(read).is_ok();
        if !is_read || start.starts_with(b"\x7fELF") {
            return Content::Program;
        }
        let line =
            start.strip_prefix(b"#!").and_then(|rest| rest.split(|&byte| byte == b'\n').next());
        let Some(line) = line.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) else {
            return Content::Other;
        };
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let end = line.iter().position(is_blank).unwrap_or(line.len());
        Content::Script(OsStr::from_bytes(&line[..end]).into())
    }
}

/// Finds a program in `PATH`.
fn search(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let has_slash = name.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = match has_slash {
        true => vec![name.into()],
        false => env::split_paths(&path).map(|place| place.join(name)).collect(),
    };
    let mut refused = None;
    for candidate in candidates.into_iter().filter(|_| !name.is_empty()) {
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A directory of PATH is none.
            Err(error) if !has_slash && error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => refused = refused.or(Some((candidate, error))),
        }
    }
    Err(match refused {
        Some((path, error)) => failure(CANNOT_RUN, format!("{}: {error}", path.display())),
        None => {
            let error = io::Error::from_raw_os_error(libc::ENOENT);
            failure(NOT_FOUND, format!("{}: {error}", name.display()))
        }
    })
}

/// Fails as `execve` would.
fn executable(path: &Path) -> io::Result<()> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    let text = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the contract of `faccessat`: the path is a C string.
    match unsafe { libc::faccessat(libc::AT_FDCWD, text.as_ptr(), libc::X_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
