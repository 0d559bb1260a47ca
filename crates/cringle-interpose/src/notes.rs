//! Notes of what became of a served program's threads, for `cringle run --explain`.
//!
//! If the environment variable `CRINGLE_NOTES` names a file, each note is a line that is appended
//! to it by one call, so that the notes of a process that crashes are complete, and those of
//! several processes do not mix. A line has a word of [`Reason`], a tab, and the place in the
//! program: `OBJECT+0xOFFSET`, and after a space the name of the function if it has one. The first
//! line of each program is `loaded`, with its path as the place.
//!
//! The file is opened for each note: a program may close all descriptors that it does not know.

use super::serve;
use cringle_sys as sys;
use cringle_sys::lock::OnceLock;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

const VARIABLE: &str = "CRINGLE_NOTES";

static FILE: OnceLock<PathBuf> = OnceLock::new();

macro_rules! reasons {
    ($($(#[$about:meta])* $name:ident = $word:literal,)*) => {
        /// Why a thread of the program is a fiber or a thread of the system.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($(#[$about])* $name,)*
        }

        impl Reason {
            fn word(self) -> &'static str {
                match self {
                    $(Reason::$name => $word,)*
                }
            }
        }
    };
}

reasons! {
    /// The thread is a fiber. The place is its start routine.
    Fiber = "fiber",
    /// The thread is one of the system: a fiber cannot have its attributes.
    Attributes = "attributes",
    /// The thread is one of the system: a constructor of a library has created it, before any other
    /// thread.
    Constructor = "constructor",
    /// The fiber became a thread of the system, as with all reasons below: it had blocked its
    /// worker by a system call of its own. The place is that of the call.
    SystemCall = "system-call",
    /// It had computed for long, or spun until another thread acts.
    Computing = "computing",
    /// A signal that it sends to itself.
    Signal = "signal",
    /// A mask of signals.
    SignalMask = "signal-mask",
    /// A wait for signals.
    SignalWait = "signal-wait",
    /// A child that libc starts.
    Child = "child",
    /// A stack for handlers of signals.
    SignalStack = "signal-stack",
    /// A mutex whose owner is a thread of the kernel, or a condition that processes share.
    Mutex = "mutex",
    /// Other state that the kernel has of a thread: its priority, cores, credentials.
    ThreadState = "thread-state",
}

/// Begins to take notes, if the environment says so. Call it while the process has one thread.
pub fn begin() {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return };
    let _ = FILE.set(path.into());
    let program = sys::plainly(|| std::fs::read_link("/proc/self/exe")).unwrap_or_default();
    append(&format!("loaded\t{}\n", program.display()));
}

/// Takes a note, if notes are taken. `place` is an address of code. In a handler of signals, call
/// [`note_later`] instead.
pub(super) fn note(reason: Reason, place: usize) {
    if FILE.get().is_some() {
        append(&format!("{}\t{}\n", reason.word(), named(place)));
    }
}

/// Takes a note of the program's code that has made the call which makes this one.
pub(super) fn note_caller(reason: Reason) {
    if FILE.get().is_some() {
        note(reason, caller());
    }
}

/// Of a handler of signals: a place, shifted, and whether the fiber computed there. 0: none.
static INTERRUPTED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// Takes a note by [`note_interrupted`]. It is lost if there are many.
pub(super) fn note_later(reason: Reason, place: usize) {
    let value = place << 1 | usize::from(reason == Reason::Computing);
    let order = Ordering::Relaxed;
    let _ = INTERRUPTED.iter().find(|it| it.compare_exchange(0, value, order, order).is_ok());
}

/// Takes the notes of [`note_later`]: the monitor does, and the fiber when it is back. Those of the
/// last moments before `exit` are lost.
pub(super) fn note_interrupted() {
    let taken = INTERRUPTED.iter().map(|it| it.swap(0, Ordering::Relaxed));
    for value in taken.take_while(|&value| value != 0) {
        let is_computing = value & 1 != 0;
        note(if is_computing { Reason::Computing } else { Reason::SystemCall }, value >> 1);
    }
}

/// The innermost return address outside of the library, or 0.
fn caller() -> usize {
    innermost_place(|place| !serve::own_code().is_some_and(|code| code.contains(&place)))
}

/// The innermost return address for which `is_it` is true, or 0.
pub(super) fn innermost_place<F: Fn(usize) -> bool>(is_it: F) -> usize {
    struct Search<F> {
        is_it: F,
        found: usize,
    }
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            search: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }
    extern "C" fn visit<F: Fn(usize) -> bool>(context: *mut c_void, search: *mut c_void) -> c_int {
        /// `_URC_NORMAL_STOP`.
        const STOP: c_int = 4;
        // SAFETY: the contract of the unwinder: it passes its context, and the pointer of the call
        // below.
        let (place, search) = unsafe { (_Unwind_GetIP(context), &mut *search.cast::<Search<F>>()) };
        if !(search.is_it)(place) {
            return 0;
        }
        search.found = place;
        STOP
    }
    let mut search = Search { is_it, found: 0 };
    // SAFETY: the contract of the unwinder: the function does not unwind, and the pointer lives.
    unsafe { _Unwind_Backtrace(visit::<F>, (&raw mut search).cast()) };
    search.found
}

/// A file that cannot be written has no notes: the program must not notice.
fn append(line: &str) {
    let Some(path) = FILE.get() else { return };
    let open = || OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes());
    let _ = sys::plainly(open);
}

fn named(place: usize) -> String {
    // SAFETY: the contract of `zeroed`: all zeros are a value, pointers that are null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the contract of `dladdr`: it reads no memory at the address.
    if unsafe { libc::dladdr(std::ptr::without_provenance(place), &mut info) } == 0 {
        return format!("{place:#x}");
    }
    let text = |name: *const c_char| {
        // SAFETY: the contract of `dladdr`: names are null or C strings of a loaded object.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy())
    };
    let object = text(info.dli_fname).unwrap_or_default();
    let object = object.rsplit('/').next().unwrap_or_default();
    let mut found = format!("{object}+{:#x}", place.wrapping_sub(info.dli_fbase as usize));
    if let Some(name) = text(info.dli_sname) {
        let _ = write!(found, " {name}");
    }
    found
}
