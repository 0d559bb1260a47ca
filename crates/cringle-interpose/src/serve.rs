//! The runtime of a program that knows nothing of it.
//!
//! In a program that is *served*, each thread that the program creates is a fiber of a runtime that
//! starts with the first of them. `main` stays a thread of the system. So do the threads of the
//! library itself, which are known by where their start routines lie.
//!
//! A child of `fork` has no runtime until it creates a thread: what the parent has made belongs to
//! another [generation](fork::generation).

use super::monitor;
use super::notes::{self, Reason};
use cringle_core::choices::Threads;
use cringle_core::shared::Shared;
use cringle_core::worker::Worker;
use cringle_run::run::{Builder, InternalOptions};
use cringle_sys::lock::OnceLock;
use cringle_sys::{LibraryThread, fork};
use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, mpsc};

/// Where the code of the library lies. It is set in a program that is served.
static OWN_CODE: OnceLock<Range<usize>> = OnceLock::new();

/// The runtime of one process; none if it could not start.
struct Served {
    generation: u32,
    runtime: OnceLock<Option<Arc<Shared>>>,
}

static RIGHTS_DIFFER: AtomicBool = AtomicBool::new(false);

/// What this process serves, or an ancestor of it. Never freed.
static SERVED: AtomicPtr<Served> = AtomicPtr::new(std::ptr::null_mut());

/// Makes each thread that this program creates from now on a fiber, unless the environment says
/// otherwise.
pub extern "C" fn serve_program() {
    if std::env::var_os("CRINGLE_THREADS").is_some_and(|threads| threads == "system") {
        return;
    }
    if let Some(code) = object_of(serve_program as *const () as usize) {
        cringle_tls::keep_own_caches();
        let _ = OWN_CODE.set(code);
    }
}

/// Where the code of the library lies, in a program that is served.
pub(crate) fn own_code() -> Option<&'static Range<usize>> {
    OWN_CODE.get()
}

/// Whether the threads of this program are fibers.
pub(crate) fn is_served() -> bool {
    OWN_CODE.get().is_some()
}

/// The runtime for a thread that a thread of the system creates with this start routine. `None` if
/// it is to be a thread of the system, too.
pub(crate) fn runtime_for(start: usize) -> Option<&'static Shared> {
    let own_code = OWN_CODE.get()?;
    if own_code.contains(&start) || Worker::here().is_some() {
        return None;
    }
    let served = current();
    if served.runtime.get().is_none() && is_in_constructor() {
        notes::note(Reason::Constructor, start);
        return None;
    }
    served.runtime.get_or_init(start_or_report).as_deref()
}

/// Whether the loader has called the caller. Within `dlopen` it holds its lock, and no other thread
/// of Rust can start.
fn is_in_constructor() -> bool {
    let loader = object_of(monitor::loaders_function());
    loader.is_some_and(|loader| notes::innermost_place(|place| loader.contains(&place)) != 0)
}

/// Whether threads of this process are fibers.
pub(crate) fn is_serving() -> bool {
    OWN_CODE.get().is_some() && current().runtime.get().is_some_and(Option::is_some)
}

/// Notes that a thread of the program has changed its own rights, such as its capabilities or its
/// filter of system calls. Threads that are created from now on stay threads of the system, because
/// a fiber would have the rights of its worker.
pub(crate) fn note_rights() {
    if is_serving() {
        RIGHTS_DIFFER.store(true, Ordering::Relaxed);
    }
}

/// Whether the rights of the program's threads may differ.
pub(crate) fn do_rights_differ() -> bool {
    RIGHTS_DIFFER.load(Ordering::Relaxed)
}

/// Returns what this process serves.
fn current() -> &'static Served {
    loop {
        let found = SERVED.load(Ordering::Acquire);
        // SAFETY: I2. It is null, or lives for ever.
        if let Some(served) = unsafe { found.as_ref() }
            && served.generation == fork::generation()
        {
            return served;
        }
        let new = Served { generation: fork::generation(), runtime: OnceLock::new() };
        let new = Box::into_raw(Box::new(new));
        let order = Ordering::AcqRel;
        if SERVED.compare_exchange(found, new, order, Ordering::Relaxed).is_err() {
            // SAFETY: I2. It was made above, and no other thread knows it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

fn start_or_report() -> Option<Arc<Shared>> {
    match start() {
        Ok(shared) => Some(shared),
        Err(e) => {
            cringle_sys::report(format_args!(
                "the threads of this program stay threads of the system: {e}"
            ));
            None
        }
    }
}

/// Starts the runtime on a thread of its own, for as long as the process lives.
fn start() -> io::Result<Arc<Shared>> {
    let (sender, receiver) = mpsc::channel();
    let failed = sender.clone();
    let serve = move || {
        let _thread = LibraryThread::begin();
        let mut builder = Builder::new().threads(Threads::Fibers).open_to_outside();
        // The monitor does more than reports.
        if std::env::var_os("CRINGLE_WATCHDOG").is_none() {
            builder = builder.watchdog(None);
        }
        let serve = move || -> () {
            let worker = Worker::here().expect("inside of run");
            cringle_sys::plainly(|| drop(sender.send(Ok(Arc::clone(worker.shared())))));
            loop {
                cringle_std::fiber::park();
            }
        };
        if let Err(e) = builder.stubborn_reports(false).overflow_handler(false).run(serve) {
            drop(failed.send(Err(e)));
        }
    };
    let thread = std::thread::Builder::new().name("cringle-0".into());
    let signal = monitor::take_signal()?;
    without_signals_but(signal, || {
        let started = thread.spawn(serve);
        started.map_err(|e| cringle_sys::cannot_start("the thread of a worker", &e))?;
        let shared: Arc<Shared> =
            receiver.recv().map_err(|_| io::Error::other("the first worker has ended"))??;
        let started = monitor::start(Arc::clone(&shared), signal);
        started.map_err(|e| cringle_sys::cannot_start("the thread of the monitor", &e))?;
        Ok(shared)
    })
}

/// Calls `f` with all signals blocked but one, which a thread that it starts inherits: the kernel
/// gives signals of the process to the program's own threads.
fn without_signals_but<R>(signal: c_int, f: impl FnOnce() -> R) -> R {
    // SAFETY: I14. All zeros are a set, and the calls get sets.
    unsafe {
        let [mut all, mut before]: [libc::sigset_t; 2] = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let of_code = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
        for signal in of_code.into_iter().chain([libc::SIGSYS, signal]) {
            libc::sigdelset(&mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Where the program or library lies that has this code.
pub(crate) fn object_of(code: usize) -> Option<Range<usize>> {
    struct Search {
        code: usize,
        found: Option<Range<usize>>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut std::ffi::c_void,
    ) -> c_int {
        // SAFETY: the contract of `dl_iterate_phdr`, and what is passed to it below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: as above.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let extents = loaded.map(|header| {
            let begin = (info.dlpi_addr + header.p_vaddr) as usize;
            begin..begin + header.p_memsz as usize
        });
        let all = extents.reduce(|all, next| all.start.min(next.start)..all.end.max(next.end));
        search.found = all.filter(|all| all.contains(&search.code));
        search.found.is_some().into()
    }
    let mut search = Search { code, found: None };
    // SAFETY: the contract of `dl_iterate_phdr`: the function does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}
