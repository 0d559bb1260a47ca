//! Dumping the runtimes at a signal.
//!
//! A thread waits for the signal, not a fiber: the dump is needed most when fibers do not run.

use crate::diagnostics::{Dump, dump_all};
use cringle_std::internal::{Listener, Purpose, Watcher, signal_name};
use cringle_std::signal::Signal;
use cringle_sys as sys;
use cringle_sys::fork::ForkLock;
use std::ffi::{CString, OsStr};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const VARIABLE: &str = "CRINGLE_DUMP";

/// Makes each of these signals write a [dump](dump_all) of every runtime of the process to standard
/// error: what each fiber waits for, and which worker is stuck. By convention the signal is
/// [`Signal::User1`], whose default action ends the process.
///
/// A program without this call does the same if the environment variable `CRINGLE_DUMP` is `usr1`
/// (or `usr2`, `hup`, `quit`) at its first `run`. If the variable is a path, with a slash, the
/// dumps of `SIGUSR1` are appended to that file; `%p` in it stands for the process number. A signal
/// makes one dump on standard error, also if several guards and the environment request it.
///
/// This lasts while the guard lives. Dropping the guard restores the previous state. The call can
/// also be made outside of [`run`](crate::run::run), at the beginning of `main`.
///
/// ```
/// use cringle::signal::{self, Signal};
///
/// let _guard = signal::dump_on(&[Signal::User1])?;
/// cringle::run(|| {
///     // … the program; `kill -USR1` prints what it is doing.
/// });
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's error if no file descriptor or no thread is available; the call needs one of each.
pub fn dump_on(signals: &[Signal]) -> io::Result<DumpGuard> {
    dump_into(signals, None)
}

/// Dumps to standard error, or into a file.
fn dump_into(signals: &[Signal], path: Option<PathBuf>) -> io::Result<DumpGuard> {
    let listener = Listener::new(signals, Purpose::Notify)?;
    let printer = path.is_none().then(|| Printer::new(signals));
    let number = printer.as_ref().map(|printer| printer.number);
    let watcher = Watcher::start("cringle-dump", listener, move |watch| {
        let _thread = sys::LibraryThread::begin();
        while let Ok(Some(signal)) = watch.wait(Listener::take) {
            match (&path, number) {
                (Some(path), _) => append(path, &text_of(signal, &dump_all())),
                // Without std's lock of standard error, which a suspended fiber may hold.
                (None, Some(number)) if Printer::prints(number, signal) => {
                    sys::write_to_stderr(text_of(signal, &dump_all()).as_bytes());
                }
                (None, _) => {}
            }
        }
    })?;
    Ok(DumpGuard { _printer: printer, _watcher: watcher })
}

/// A guard whose dumps go to standard error. Of several, the oldest one prints.
#[derive(Debug)]
struct Printer {
    number: u64,
}

#[derive(Debug)]
struct Printers {
    /// The number, the process and the signals of each. A child of `fork` has none of its parent's
    /// threads.
    all: Vec<(u64, u32, Vec<i32>)>,
    last: u64,
}

static PRINTERS: ForkLock<Printers> = ForkLock::new(Printers { all: Vec::new(), last: 0 });

impl Printer {
    fn new(signals: &[Signal]) -> Printer {
        let signals = signals.iter().map(|signal| signal.number()).collect();
        let mut printers = PRINTERS.lock();
        printers.last += 1;
        let number = printers.last;
        printers.all.push((number, std::process::id(), signals));
        Printer { number }
    }

    /// Whether this one prints the dump of a signal.
    fn prints(number: u64, signal: i32) -> bool {
        let process = std::process::id();
        let printers = PRINTERS.lock();
        let mut all = printers.all.iter();
        let first = all.find(|(_, of, signals)| *of == process && signals.contains(&signal));
        first.is_some_and(|(first, ..)| *first == number)
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        PRINTERS.lock().all.retain(|(number, ..)| *number != self.number);
    }
}

/// Opens the file for each dump, so that it may be moved away in between.
fn append(path: &Path, text: &str) {
    let write = || write_patiently(&mut open(path, true)?, text.as_bytes());
    if let Err(e) = sys::plainly(write) {
        sys::report(format_args!("no dump: cannot write {}: {e}", path.display()));
    }
}

/// Opens the file without a wait for the reader of a FIFO.
fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(create).append(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Writes to a file, or to a pipe as long as it has a reader that reads.
fn write_patiently(file: &mut File, mut text: &[u8]) -> io::Result<()> {
    /// The time that a reader may take for the next bytes.
    const PATIENCE: libc::timespec = libc::timespec { tv_sec: 2, tv_nsec: 0 };
    while !text.is_empty() {
        match file.write(text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => text = &text[count..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let events = libc::POLLOUT;
                let mut poll = libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 };
                if sys::poll_once(&mut poll, Some(&PATIENCE)) == 0 {
                    return Err(e);
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Fails if the file cannot be written. Creates nothing: most processes never dump.
fn check_writable(path: &Path) -> io::Result<()> {
    match sys::plainly(|| open(path, false)) {
        Ok(_) => Ok(()),
        // A FIFO may have a reader when the dump is made.
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            may_create_in(parent.unwrap_or(Path::new(".")))
        }
        Err(e) => Err(e),
    }
}

fn may_create_in(directory: &Path) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: by the contract of `access`: the path is a C string.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts the dumps that the environment requests, at the first `run`. They last until the process
/// exits.
///
/// # Errors
///
/// `InvalidInput` for a value with another meaning; the error of a file that cannot be written; and
/// the errors of [`dump_on`].
pub(crate) fn dump_from_environment() -> io::Result<()> {
    /// The process whose dumps are started. A child has none of its parent's threads.
    static STARTED_IN: AtomicU32 = AtomicU32::new(0);
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let (signal, path) = request_of(&value)?;
    let own = std::process::id();
    if STARTED_IN.load(Ordering::Relaxed) == own {
        return Ok(());
    }
    if let Some(path) = &path {
        check_writable(path).map_err(|e| {
            let text = format!("{VARIABLE}: cannot write {}: {e}", path.display());
            io::Error::new(e.kind(), text)
        })?;
    }
    if STARTED_IN.swap(own, Ordering::Relaxed) != own {
        let guard = dump_into(&[signal], path)
            .map_err(|e| io::Error::new(e.kind(), format!("{VARIABLE}: {e}")))?;
        std::mem::forget(guard);
    }
    Ok(())
}

/// Returns the signal and the file that a value of the variable means.
fn request_of(value: &OsStr) -> io::Result<(Signal, Option<PathBuf>)> {
    if value.as_bytes().contains(&b'/') {
        return Ok((Signal::User1, Some(sys::with_process_number(value.as_ref()))));
    }
    let names = [
        ("usr1", Signal::User1),
        ("usr2", Signal::User2),
        ("hup", Signal::Hangup),
        ("quit", Signal::Quit),
    ];
    let text = value.to_string_lossy().to_lowercase();
    let name = text.strip_prefix("sig").unwrap_or(&text);
    let found = names.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, signal)| (signal, None)).ok_or_else(|| {
        let text = format!(
            "{VARIABLE} is {value:?}, must be `usr1` (or `usr2`, `hup`, `quit`), or a path with a slash, as \
             in {VARIABLE}=./dumps"
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// The guard of [`dump_on`]: while it lives, the signals dump.
///
/// ```
/// use cringle::signal::{self, DumpGuard, Signal};
///
/// struct Program {
///     _dumps: DumpGuard,
/// }
///
/// let program = Program { _dumps: signal::dump_on(&[Signal::User1])? };
/// # drop(program);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "the signals dump while this lives"]
pub struct DumpGuard {
    /// Dropped first: another guard prints from then on.
    _printer: Option<Printer>,
    _watcher: Watcher,
}

/// Returns the dumps as one text, which is written in one call: no other thread's lines are in
/// between.
fn text_of(number: i32, dumps: &[Dump]) -> String {
    let name = signal_name(number).unwrap_or("a signal");
    let mut text = format!("cringle: {name}: ");
    match dumps.len() {
        0 => text += "no runtime is running\n",
        1 => text += "dump of the runtime\n",
        count => _ = writeln!(text, "dump of {count} runtimes"),
    }
    dumps.iter().for_each(|dump| _ = write!(text, "{dump}"));
    text
}
