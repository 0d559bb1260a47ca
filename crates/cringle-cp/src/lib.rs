//! `cringle cp`: GNU's `cp`, on all cores.
//!
//! | file | what it says |
//! |---|---|
//! | [`flags`], [`getopt`], [`options`] | the command line, read as GNU reads it |
//! | [`plan`] | where each source goes |
//! | [`workers`], [`tree`] | who copies what; directories as handles, bounded |
//! | [`listing`], [`descriptors`] | a directory piece by piece; how many files may be open |
//! | [`entry`], [`directory`], [`hard_links`] | the copy of one name, by its kind |
//! | [`target`], [`decide`], [`compare`], [`backup`] | what becomes of a target that exists |
//! | [`regular`], [`read_ahead`], [`replace`], [`transfer`], [`verify`], [`attributes`] | the copy of one file |
//! | [`fsync`] | `--fsync` |
//! | [`temporary`], [`file_locks`] | names of what is not whole yet; one writer a file |
//! | [`stop`] | Ctrl-C |
//! | [`messages`], [`progress`], [`summary`], [`dry_run`] | what is told |

mod attributes;
mod backup;
mod compare;
mod decide;
mod descriptors;
mod directory;
mod dry_run;
mod entry;
mod file_locks;
mod flags;
mod fsync;
mod getopt;
mod hard_links;
mod listing;
mod messages;
mod options;
mod plan;
mod progress;
mod read_ahead;
mod regular;
mod replace;
mod stop;
mod summary;
mod sys;
mod target;
mod temporary;
mod transfer;
mod tree;
mod verify;
mod workers;

pub use flags::Arguments;

use crate::messages::{complain, complain_of, note};
use crate::options::{Options, Replace};
use crate::plan::{Copy, Wrong};
use crate::stop::Stop;
use crate::tree::Item;
use crate::workers::{Shared, Worker};
use cringle::signal::{Signal, Signals};
use cringle_command::failure::{FAILED, INTERRUPTED};
use cringle_command::recording::Recording;
use cringle_command::{self as report, startup};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

/// Deep trees are let go of from the bottom up, one frame a level.
const STACK_BYTES: usize = 8 << 20;

/// `program`: what it was called as, and what its messages begin with.
pub fn run(program: &'static str, arguments: Vec<OsString>) -> ExitCode {
    messages::set_program(program);
    // As other programs: one whose output nobody reads any more ends at its next line, unless its caller
    // ignores the signal.
    if !startup::ignores_sigpipe() {
        // SAFETY: no pointers; no other thread has been started.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
    let line = match getopt::read(arguments, posix) {
        Ok(line) => line,
        Err(text) => return wrong(&text),
    };
    // The first of these that is met ends it, whatever else there is.
    for given in &line.options {
        match given.flag.long {
            "help" => return print(&flags::command(program).render_help().to_string()),
            "version" => {
                return print(&format!("{program} (cringle) {}\n", env!("CARGO_PKG_VERSION")));
            }
            _ => {}
        }
    }
    match Options::of(line) {
        Ok(options) => copy(options),
        Err(text) => wrong(&text),
    }
}

fn print(text: &str) -> ExitCode {
    match cringle_command::stdout::write(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain_of("write error", &e);
            ExitCode::from(FAILED)
        }
    }
}

/// Wrong usage: 1, as GNU's. A text that begins with a zero byte has no hint at the help.
fn wrong(text: &str) -> ExitCode {
    match text.strip_prefix('\0') {
        Some(text) => note(text),
        None => {
            note(text);
            report::complain(&format!(
                "Try '{} --help' for more information.",
                messages::program()
            ));
        }
    }
    ExitCode::from(FAILED)
}

fn copy(mut options: Options) -> ExitCode {
    let mut copies = match plan::plan(&options) {
        Ok(copies) => copies,
        Err(Wrong::Usage(text)) => return wrong(&text),
        Err(Wrong::Other(text)) => return wrong(&format!("\0{text}")),
    };
    back_up_itself(&mut options, &mut copies);
    let traced = match options.trace.as_deref().map(|file| Recording::start(Path::new(file))) {
        None => None,
        Some(Ok(traced)) => Some(traced),
        Some(Err(failure)) => return wrong(&format!("\0{failure}")),
    };
    let start = Instant::now();
    let json = options.json.clone();
    let interrupted;
    let counters;
    if options.dry_run {
        counters = Arc::default();
        interrupted = false;
        dry_run::run(&options, &copies);
    } else {
        let shared = Shared::new(options);
        counters = Arc::clone(&shared.counters);
        interrupted = match perform(&shared, &copies) {
            Ok(()) => shared.stopped(),
            Err(e) => {
                complain_of("cannot start", &e);
                false
            }
        };
    }
    if let Some(traced) = traced {
        traced.finish();
    }
    if interrupted {
        note(&format!("interrupted; {}", summary::so_far(&counters)));
    }
    let failed = if messages::has_failed() { FAILED } else { 0 };
    let status = if interrupted { INTERRUPTED } else { failed };
    if let Some(path) = json
        && let Err(e) = summary::save(&path, &summary::json(&counters, start.elapsed(), status))
    {
        complain(&e.to_string());
        return ExitCode::from(status.max(FAILED));
    }
    ExitCode::from(status)
}

/// `cp --force --backup f f`: the backup is the copy.
fn back_up_itself(options: &mut Options, copies: &mut [Copy]) {
    let ([copy], Some(kind), true) = (&mut *copies, options.backup, options.force) else { return };
    let path = sys::c_string(copy.target.as_bytes());
    let regular =
        sys::stat_at(sys::CWD, &path, true).is_ok_and(|stat| sys::kind(&stat) == libc::S_IFREG);
    if copy.source == copy.target
        && options.names.last() == Some(&copy.target)
        && regular
        && let Ok(name) = backup::name_for(kind, &options.suffix, (sys::CWD, &path))
    {
        copy.target = OsStr::from_bytes(name.to_bytes()).to_owned();
        options.backup = None;
    }
}

fn perform(shared: &Shared, copies: &[Copy]) -> io::Result<()> {
    watch(&shared.stop)?;
    let sources = copies.iter().map(|copy| copy.source.clone()).collect();
    let progress = if shared.options.replace == Replace::Ask {
        None
    } else {
        progress::Progress::start(shared.options.progress, Arc::clone(&shared.counters), sources)
    };
    let done = with_workers(shared, copies);
    if let Some(progress) = progress {
        progress.finish();
    }
    done
}

/// Ctrl-C ends it in order; a second one at once. A signal that the caller ignores (a shell for its background,
/// `nohup`) stays ignored.
fn watch(stop: &Arc<Stop>) -> io::Result<()> {
    cringle_command::interrupt::dump_on_sigusr1()?;
    let ends = [(libc::SIGINT, Signal::Interrupt), (libc::SIGTERM, Signal::Terminate)];
    let heard = ends.iter().filter(|(number, _)| !startup::is_ignored(*number));
    let heard: Vec<_> = heard.map(|(_, signal)| *signal).collect();
    if heard.is_empty() {
        return Ok(());
    }
    let signals = Signals::new(&heard)?;
    let stop = Arc::clone(stop);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        while signals.wait().is_ok() {
            if stop.ask() {
                cringle_command::interrupt::exit();
            }
        }
    })?;
    Ok(())
}

fn with_workers(shared: &Shared, copies: &[Copy]) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let first = if plan::in_any_order(&shared.options, copies) {
            let next = &next;
            for index in 1..shared.options.jobs {
                // One fewer is slower, not wrong.
                let _ = spawn(scope, shared, move || several(shared, index, copies, next));
            }
            spawn(scope, shared, move || several(shared, 0, copies, next))?
        } else {
            spawn(scope, shared, move || in_turn(shared, copies, scope))?
        };
        // (Its panic ends the process.)
        let _ = first.join();
        Ok(())
    })
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
    builder.spawn_scoped(scope, move || in_runtime(shared, work))
}

/// Takes the next source that nobody has, until there is none.
fn several(shared: &Shared, index: usize, copies: &[Copy], next: &AtomicUsize) {
    let mut worker = Worker::new(shared, index);
    while let Some(copy) = copies.get(next.fetch_add(1, Ordering::Relaxed))
        && !shared.stopped()
    {
        top(&mut worker, copy, &mut || {});
    }
    worker.finish_roots();
    worker.settle();
}

/// One source after the other; the others help with the directories.
fn in_turn<'scope>(shared: &'scope Shared, copies: &[Copy], scope: &'scope Scope<'scope, '_>) {
    let mut worker = Worker::new(shared, 0);
    let mut helped = false;
    for copy in copies {
        if shared.stopped() {
            break;
        }
        top(&mut worker, copy, &mut || {
            if std::mem::replace(&mut helped, true) {
                return;
            }
            for index in 1..shared.options.jobs {
                // One fewer is slower, not wrong.
                let _ = spawn(scope, shared, move || Worker::new(shared, index).help());
            }
        });
    }
    worker.settle();
    shared.finish();
}

/// A worker that panics, a defect of ours, ends the process: the others would wait for what it had in hand.
struct EndsByPanic;

impl Drop for EndsByPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            complain("ends by the panic above: what was not copied yet is missing");
            std::process::exit(i32::from(FAILED));
        }
    }
}

/// With `--fsync` the worker is a fiber, so that its syncs can be. All else are plain calls, which may take
/// long, and nobody else waits for the worker.
fn in_runtime(shared: &Shared, work: impl FnOnce()) {
    let _ends = EndsByPanic;
    if !shared.options.fsync {
        return work();
    }
    if let Err(e) = cringle::Builder::new().workers(1).watchdog(None).run(work) {
        complain_of("cannot start", &e);
    }
}

/// One source of the command line, to its end.
fn top(worker: &mut Worker<'_>, copy: &Copy, help: &mut dyn FnMut()) {
    let options = &worker.shared.options;
    let Some(parents) = plan::make_parents(options, copy) else { return };
    let (source, target) =
        (sys::c_string(copy.source.as_bytes()), sys::c_string(copy.target.as_bytes()));
    let item = Item::of_command_line(&source, &target);
    worker.made_top = false;
    let was_there = options.fsync && is_there(&copy.target);
    let begun = !plan::ends_in_made(options, copy, &parents)
        && (worker.copy(&item, libc::DT_UNKNOWN) || !was_there && is_there(&copy.target));
    if worker.shared.has_roots() {
        help();
        worker.finish_roots();
    }
    if worker.shared.options.fsync {
        worker.settle();
        if begun {
            sync_above(&copy.target);
        }
        if worker.made_top {
            worker.remember_target(&item);
        }
    }
    if !plan::finish_parents(&worker.shared.options, &parents) {
        messages::fail_quietly();
    }
    if worker.shared.options.fsync
        && let Some(first) = plan::first_made(&parents)
    {
        sync_above(first);
    }
}

/// A copy that failed may have made a part of it.
fn is_there(target: &OsStr) -> bool {
    sys::stat_at(sys::CWD, &sys::c_string(target.as_bytes()), false).is_ok()
}

/// The directory that holds the new name.
fn sync_above(target: &OsStr) {
    let above = replace::directory_of(target.as_bytes());
    let synced = tree::open_dir(sys::CWD, &sys::c_string(above), true)
        .and_then(|dir| sys::sync_fd(std::os::fd::AsRawFd::as_raw_fd(&dir)));
    if let Err(e) = synced {
        let name = messages::quote(OsStr::from_bytes(above));
        complain_of(&format!("error syncing {name}"), &e);
    }
}
