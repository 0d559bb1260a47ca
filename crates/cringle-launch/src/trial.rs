//! `--explain`: what the program imports, and what became of its threads in a trial run.

use crate::args::RunArgs;
use crate::target::Target;
use crate::{CANNOT_RUN, failure};
use cringle_doctor::{Page, program};
use cringle_report as report;
use cringle_report::failure::Failure;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Names the file of the notes, which the library appends to: a word, and after a tab the place.
const NOTES: &str = "CRINGLE_NOTES";
/// The word of the first line of each program, whose place is its path.
const LOADED: &str = "loaded";
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// The most places in a row of the report.
const MOST_PLACES: usize = 4;

/// Reports by the files, runs the program in a child, and reports by its notes.
pub(crate) fn explain(
    target: &Target,
    changes: Vec<(&'static str, OsString)>,
    args: &RunArgs,
) -> Result<(), Failure> {
    report::print(&program::explanation(&target.served)?)?;
    let notes = tempfile::NamedTempFile::new().map_err(|error| {
        Failure::failed(format!("no file for the notes: {error}; name a directory by TMPDIR"))
    })?;
    let (name, arguments) = target.arguments.split_first().expect("the name of the program");
    let mut command = Command::new(&target.file);
    command.arg0(name).args(arguments).envs(changes).env(NOTES, notes.path());
    let signals = Signals::block();
    let unblock = signals.unblock();
    // SAFETY: the contract of `pre_exec`: the closure makes one system call.
    unsafe { command.pre_exec(unblock) };
    let started = Instant::now();
    let child = command
        .spawn()
        .map_err(|error| failure(CANNOT_RUN, format!("{}: {error}", target.file.display())))?;
    let ended = signals.wait(child, Duration::from_secs_f64(args.seconds))?;
    let took = started.elapsed();
    let notes = std::fs::read(notes.path())?;
    let notes = String::from_utf8_lossy(&notes);
    report::print(&text(&notes, ended, took))?;
    match program_with_fibers(&notes) {
        Some(program) if !is_same_file(program, &target.served) => {
            report::print(&format!("\n{}", program::explanation(program)?))
        }
        _ => Ok(()),
    }
}

/// Returns the program that created the first fiber: it may have replaced the one that was named.
fn program_with_fibers(notes: &str) -> Option<&Path> {
    let mut notes = notes.lines().filter_map(|line| line.split_once('\t'));
    let mut program = None;
    let _ = notes.find(|(word, place)| {
        if *word == LOADED {
            program = Some(Path::new(*place));
        }
        *word == "fiber"
    })?;
    program
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok() == other.canonicalize().ok()
}

/// How the trial ended.
struct Ended {
    status: ExitStatus,
    is_stopped: bool,
}

/// The signals that are blocked while the program runs, and waited for.
struct Signals {
    set: libc::sigset_t,
    /// The mask of the caller.
    before: libc::sigset_t,
}

impl Signals {
    fn block() -> Signals {
        // SAFETY: the contract of these calls: all zeros are a set, and they get sets.
        unsafe {
            let [mut set, mut before]: [libc::sigset_t; 2] = std::mem::zeroed();
            for signal in [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Signals { set, before }
        }
    }

    /// Gives the program the caller's mask.
    fn unblock(&self) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
        let before = self.before;
        move || {
            // SAFETY: the contract of `pthread_sigmask`: a set.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
            Ok(())
        }
    }

    /// Waits for the end of the program. After the time, and at the first signal, it gets SIGTERM;
    /// after the grace, SIGKILL. (A terminal sends SIGINT to the program, too.)
    fn wait(&self, mut child: Child, limit: Duration) -> Result<Ended, Failure> {
        let mut deadline = Instant::now() + limit;
        let mut to_send = [libc::SIGTERM, libc::SIGKILL].into_iter();
        let mut is_stopped = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Ended { status, is_stopped });
            }
            let signal = self.next(deadline.saturating_duration_since(Instant::now()));
            if signal == Some(libc::SIGCHLD) || signal.is_none() && Instant::now() < deadline {
                continue;
            }
            if let Some(signal) = to_send.next() {
                // SAFETY: a system call with no pointers. The child has not been waited for.
                unsafe { libc::kill(child.id().cast_signed(), signal) };
            }
            is_stopped = true;
            deadline = Instant::now() + GRACE;
        }
    }

    fn next(&self, time: Duration) -> Option<i32> {
        let time = libc::timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: the contract of `sigtimedwait`: a set, no information, and a time.
        let signal = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &time) };
        (signal > 0).then_some(signal)
    }
}

fn text(notes: &str, ended: Ended, took: Duration) -> String {
    let mut page = Page::default();
    let end = match (ended.is_stopped, ended.status.code(), ended.status.signal()) {
        (true, _, Some(libc::SIGKILL)) => "did not end after SIGTERM, and was killed".to_owned(),
        (true, ..) => "was stopped".to_owned(),
        (_, Some(code), _) => format!("ended with status {code}"),
        (_, _, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
    };
    page.heading(&format!("Trial run: it {end} after {:.1} s", took.as_secs_f64()));
    let mut places: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let lines = notes.lines().filter_map(|line| line.split_once('\t'));
    for (word, place) in lines.clone().filter(|(word, _)| *word != LOADED) {
        *places.entry(word).or_default().entry(place).or_default() += 1;
    }
    if !lines.clone().any(|(word, _)| word == LOADED) {
        page.paragraph("The library was not loaded: the dynamic linker has said why.");
    } else if places.is_empty() {
        page.paragraph(
            "The program created no thread, so it ran as without the library. If another program \
             that it started does the work, name that one, or give --children.",
        );
    }
    for (word, places) in &places {
        let total: usize = places.values().sum();
        let mut places: Vec<_> = places.iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown =
            places.iter().take(MOST_PLACES).map(|(place, count)| format!("{count} {place}"));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = if places.len() > MOST_PLACES { ", …" } else { "" };
        page.row(&word.replace('-', " "), &format!("{total}: {shown}{more}"));
    }
    format!("\n{}", page.finished())
}
