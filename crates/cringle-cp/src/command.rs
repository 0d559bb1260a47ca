//! `cringle cp`, the command line: usage errors, `--json`, `--trace`, signals and the exit status.

use crate::backup;
use crate::choices::Replace;
use crate::dry_run;
use crate::flags;
use crate::getopt;
use crate::messages::Reporter;
use crate::plan::{Copy, Usage};
use crate::progress::Progress;
use crate::request::Request;
use crate::results;
use crate::resume::{self, Resume};
use crate::sources;
use crate::stop::Stop;
use crate::summary::Summary;
use crate::sys;
use crate::workers::Shared;
use cringle::signal::{Signal, Signals};
use cringle_command::failure::{FAILED, INTERRUPTED};
use cringle_command::recording::Recording;
use cringle_command::{interrupt, startup};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Runs the command line `cringle cp`.
///
/// Messages begin with `program`, the name under which the program was called. `arguments` are
/// those after the name. Call it before the process has other threads: it restores the default
/// action of SIGPIPE, waits for SIGINT and SIGTERM, and puts a socket without a peer in the place
/// of each descriptor of 0 to 2 that was closed at the start.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// // A program `cp`, as `cringle cp` is one.
/// fn main() -> ExitCode {
///     cringle_cp::run("cp", std::env::args_os().skip(1).collect())
/// }
/// ```
pub fn run(program: &'static str, arguments: Vec<OsString>) -> ExitCode {
    startup::replace_closed();
    let reporter = Arc::new(Reporter::printing(program));
    // As in other programs, the first line written to a closed pipe ends the process, unless the
    // parent ignores the signal.
    if !startup::ignores_sigpipe() {
        // SAFETY: the call takes no pointers, and this process has no other thread yet that could
        // rely on the action that it replaces.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
    let line = match getopt::read(arguments, posix) {
        Ok(line) => line,
        Err(text) => return usage_error(&reporter, &Usage::hinted(text)),
    };
    // The first of these flags wins over all other flags, even invalid ones.
    for given in &line.options {
        match given.flag.long {
            "help" => return print(&reporter, &flags::command(program).render_help().to_string()),
            "version" => {
                let version = env!("CARGO_PKG_VERSION");
                return print(&reporter, &format!("{program} (cringle) {version}\n"));
            }
            _ => {}
        }
    }
    match Request::parse(line, Arc::clone(&reporter)) {
        Ok(request) => copy(request),
        Err(usage) => usage_error(&reporter, &usage),
    }
}

fn print(reporter: &Reporter, text: &str) -> ExitCode {
    match cringle_command::stdout::write(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            reporter.fail_with("write error", &e);
            ExitCode::from(FAILED)
        }
    }
}

fn usage_error(reporter: &Reporter, usage: &Usage) -> ExitCode {
    reporter.note(&usage.text);
    if usage.hint {
        let program = reporter.program();
        cringle_command::complain(&format!("Try '{program} --help' for more information."));
    }
    ExitCode::from(FAILED)
}

/// Runs a valid request; returns the exit status.
fn copy(mut request: Request) -> ExitCode {
    let reporter = Arc::clone(&request.options.reporter);
    let (resume, mut copies) = match resume::open(&request) {
        Ok(opened) => opened,
        Err(usage) => return usage_error(&reporter, &usage),
    };
    copy_to_own_backup(&mut request, &mut copies);
    if let Err(usage) = results::check(&request, &copies) {
        return usage_error(&reporter, &usage);
    }
    let recording = match request.trace.as_deref().map(|file| Recording::start(Path::new(file))) {
        None => None,
        Some(Ok(recording)) => Some(recording),
        Some(Err(failure)) => return usage_error(&reporter, &Usage::plain(failure.to_string())),
    };
    let start = Instant::now();
    let results = results::existing(&request);
    let json = request.json.take();
    if json.as_deref() == Some(OsStr::new("-")) {
        reporter.reserve_stdout();
    }
    let (summary, interrupted) = if request.dry_run {
        dry_run::run(&request.options, &copies);
        (Summary::default(), false)
    } else {
        perform(request, resume, results, &copies)
    };
    if recording.is_some_and(|recording| !recording.finish()) {
        reporter.fail_silently();
    }
    if interrupted {
        reporter.note(&format!("interrupted; {}", summary.so_far()));
    }
    let failed = if reporter.has_failed() { FAILED } else { 0 };
    let status = if interrupted { INTERRUPTED } else { failed };
    if let Some(path) = json
        && let Err(e) =
            cringle_command::save(Path::new(&path), &summary.json(start.elapsed(), status))
    {
        reporter.fail(&e.to_string());
        return ExitCode::from(status.max(FAILED));
    }
    ExitCode::from(status)
}

/// Implements `cp --force --backup f f`: the file is copied to the name of its backup.
fn copy_to_own_backup(request: &mut Request, copies: &mut [Copy]) {
    let options = &mut request.options;
    let ([copy], Some(kind), true) = (&mut *copies, options.backup, options.force) else { return };
    let path = sys::c_string(copy.target.as_bytes());
    let regular =
        sys::stat_at(sys::CWD, &path, true).is_ok_and(|stat| sys::kind(&stat) == libc::S_IFREG);
    if copy.source == copy.target
        && request.names.last() == Some(&copy.target)
        && regular
        && let Ok(name) = backup::name_for(kind, &options.suffix, (sys::CWD, &path))
    {
        copy.target = OsStr::from_bytes(name.to_bytes()).to_owned();
        options.backup = None;
    }
}

/// Copies; returns the summary and whether a signal stopped the copy.
fn perform(
    request: Request,
    resume: Option<Resume>,
    results: Vec<(&'static str, (u64, u64))>,
    copies: &[Copy],
) -> (Summary, bool) {
    let mut shared = Shared::resuming(request.options, resume);
    shared.results = results;
    let shows_progress = shared.options.replace != Replace::Ask;
    if let Err(e) = stop_on_signals(&shared.stop) {
        shared.options.reporter.fail_with("cannot start", &e);
        return (shared.counters.summary(), false);
    }
    let counters = &shared.counters;
    let sources = || copies.iter().map(|copy| copy.source.clone()).collect();
    let progress = shows_progress
        .then(|| Progress::start(request.progress, &shared.options, counters, sources()))
        .flatten();
    sources::copy_all(&shared, copies);
    if let Some(progress) = progress {
        progress.finish(shared.stopped());
    }
    // From now on each signal ends the process: a FIFO of `--json` may have no reader.
    let interrupted = shared.stop.request() && !shared.stop.has_failed();
    (shared.counters.summary(), interrupted)
}

/// Requests a stop on the first SIGINT or SIGTERM and exits on the second. A signal that the parent
/// ignores (a shell for its background jobs, `nohup`) stays ignored. Where no thread can be
/// started, each signal keeps its default action.
fn stop_on_signals(stop: &Arc<Stop>) -> io::Result<()> {
    let ends = [(libc::SIGINT, Signal::Interrupt), (libc::SIGTERM, Signal::Terminate)];
    let caught = ends.iter().filter(|(number, _)| !startup::is_ignored(*number));
    let caught: Vec<_> = caught.map(|(_, signal)| *signal).collect();
    if !caught.is_empty() {
        let signals = Signals::new(&caught)?;
        let stop = Arc::clone(stop);
        let wait = move || {
            while signals.wait().is_ok() {
                if stop.request() {
                    interrupt::exit();
                }
            }
        };
        // If this fails, it drops the signals, which have their default action again.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(wait);
    }
    let _ = interrupt::dump_on_sigusr1();
    Ok(())
}
