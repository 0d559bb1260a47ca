//! Copies the sources of one request: in order, or in parallel where the order makes no difference.
//!
//! In order, one worker takes the sources one after the other and the other workers help with the
//! directories. In parallel, each worker takes the next source until none is left.
//!
//! Where no thread can be started (`ulimit -u`, `pids.max`, a filter), the calling thread copies.

use crate::messages::{Reporter, quote};
use crate::parents;
use crate::plan::{self, Copy};
use crate::replace;
use crate::sys;
use crate::tree::{self, Item};
use crate::workers::{Shared, Worker};
use cringle::runtime::ThreadLocals;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

/// Copies all sources.
pub(crate) fn copy_all(shared: &Shared, copies: &[Copy]) {
    match &shared.resume {
        Some(resume) => resume.while_recording(shared, || {
            resume.announce_named(shared, copies);
            copy_each(shared, copies);
        }),
        None => copy_each(shared, copies),
    }
}

fn copy_each(shared: &Shared, copies: &[Copy]) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        if !plan::in_any_order(&shared.options, copies) {
            return in_thread_or_here(scope, shared, move || copy_in_order(shared, copies, scope));
        }
        let next = &next;
        for index in 1..shared.options.jobs {
            // Without this worker the copy is slower, but complete.
            let _ = spawn(scope, shared, move || copy_next(shared, index, copies, next));
        }
        in_thread_or_here(scope, shared, move || copy_next(shared, 0, copies, next));
    });
}

/// Runs the first worker: in a thread, whose stack has a known size, or else here.
fn in_thread_or_here<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    work: impl FnOnce() + std::marker::Copy + Send + 'scope,
) {
    match spawn(scope, shared, work) {
        // A panic of the worker has ended the process.
        Ok(worker) => _ = worker.join(),
        Err(_) => in_runtime(shared, work),
    }
}

/// Starts a worker.
fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    thread::Builder::new().spawn_scoped(scope, move || in_runtime(shared, work))
}

/// Takes the next source that no worker has taken, until none is left.
fn copy_next(shared: &Shared, index: usize, copies: &[Copy], next: &AtomicUsize) {
    let mut worker = Worker::new(shared, index);
    while let Some(copy) = copies.get(next.fetch_add(1, Ordering::Relaxed))
        && !shared.stopped()
    {
        copy_source(&mut worker, copy, &mut || {});
    }
    worker.finish_roots();
    worker.settle();
}

/// Copies one source after the other. The helpers start with the first directory.
fn copy_in_order<'scope>(
    shared: &'scope Shared,
    copies: &[Copy],
    scope: &'scope Scope<'scope, '_>,
) {
    let mut worker = Worker::new(shared, 0);
    let mut has_helpers = false;
    for copy in copies {
        if shared.stopped() {
            break;
        }
        copy_source(&mut worker, copy, &mut || {
            if std::mem::replace(&mut has_helpers, true) {
                return;
            }
            for index in 1..shared.options.jobs {
                // Without this worker the copy is slower, but complete.
                let _ = spawn(scope, shared, move || Worker::new(shared, index).help());
            }
        });
    }
    worker.settle();
    shared.finish();
}

/// Ends the process if a worker panics: the other workers would wait for its tasks.
struct ExitOnPanic<'a>(&'a Reporter);

impl Drop for ExitOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.note("ended by the panic above; the copy is incomplete");
            process::exit(1);
        }
    }
}

/// Runs a worker: with `--fsync` as a fiber, so that it can sync many files at once, else as a
/// plain thread.
///
/// On the fiber, too, every call but the syncs is a plain one: the runtime has no other fiber that
/// would have to wait for it.
fn in_runtime(shared: &Shared, work: impl FnOnce()) {
    let _exit = ExitOnPanic(&shared.options.reporter);
    if !shared.options.fsync {
        return work();
    }
    // The only fiber needs no thread-locals of its own, nor the threads that their check starts.
    let builder = cringle::Builder::new().thread_locals(ThreadLocals::Shared);
    if let Err(e) = builder.workers(1).watchdog(None).run(work) {
        shared.options.reporter.fail_with("cannot start", &e);
    }
}

/// Copies one source of the command line with everything below it. Calls `help` once it has
/// directories.
fn copy_source(worker: &mut Worker<'_>, copy: &Copy, help: &mut dyn FnMut()) {
    let options = &worker.shared.options;
    let Some(parents) = parents::make_parents(options, copy) else { return };
    let (source, target) =
        (sys::c_string(copy.source.as_bytes()), sys::c_string(copy.target.as_bytes()));
    let item = Item::of_command_line(&source, &target);
    worker.made_top = false;
    let existed = options.fsync && exists(&copy.target);
    // A copy that failed may have made a part of the target.
    let has_begun = !parents::ends_in_made(options, copy, &parents)
        && (worker.copy(&item, libc::DT_UNKNOWN) || !existed && exists(&copy.target));
    if worker.shared.has_roots() {
        help();
        worker.finish_roots();
    }
    if options.fsync {
        worker.settle();
        if has_begun {
            sync_parent(&copy.target, &options.reporter);
        }
        if worker.made_top {
            worker.remember_target(&item);
        }
    }
    if !parents::finish_parents(options, &parents) {
        options.reporter.fail_silently();
    }
    if options.fsync
        && let Some(first) = parents::first_made(&parents)
    {
        sync_parent(first, &options.reporter);
    }
}

fn exists(target: &OsStr) -> bool {
    sys::stat_at(sys::CWD, &sys::c_string(target.as_bytes()), false).is_ok()
}

/// Syncs the directory that holds a new name.
fn sync_parent(target: &OsStr, reporter: &Reporter) {
    let parent = replace::directory_of(target.as_bytes());
    let synced = tree::open_dir(sys::CWD, &sys::c_string(parent), true)
        .and_then(|dir| sys::sync_fd(dir.as_fd()));
    if let Err(e) = synced {
        reporter.fail_on("error syncing", quote(OsStr::from_bytes(parent)), &e);
    }
}
