//! Notes of what became of a served program's threads, for `cringle run --explain`.
//!
//! If the environment variable `CRINGLE_NOTES` names a file, each note is a line that is appended
//! to it by one call, so that the notes of a process that crashes are complete, and those of
//! several processes do not mix. A line has a word of [`Reason`], a tab, and the place in the
//! program: `OBJECT+0xOFFSET`, and after a space the name of the function if it has one. The first
//! line of each process is `loaded`, without a place.
//!
//! The file is opened for each note: a program may close all descriptors that it does not know.

use cringle_sys as sys;
use cringle_sys::lock::OnceLock;
use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

const VARIABLE: &str = "CRINGLE_NOTES";

static FILE: OnceLock<PathBuf> = OnceLock::new();

macro_rules! reasons {
    ($($(#[$about:meta])* $name:ident = $word:literal,)*) => {
        /// Why a thread of the program is a fiber or a thread of the system.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason {
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
    /// The fiber became a thread of the system, as with all reasons below: it had blocked its
    /// worker by a system call of its own. The place is that of the call.
    SystemCall = "system-call",
    /// It had computed for long, or spun until another thread acts.
    Computing = "computing",
    /// A lock that lends its holder the priority of those who wait.
    InheritanceLock = "inheritance-lock",
    /// A lock that outlives its holder.
    RobustLock = "robust-lock",
    /// A mask of signals.
    SignalMask = "signal-mask",
    /// A wait for signals.
    SignalWait = "signal-wait",
    /// A stack for handlers of signals.
    SignalStack = "signal-stack",
    /// The cores that it may use.
    Affinity = "affinity",
    /// A scheduling policy or priority.
    Priority = "priority",
}

/// Begins to take notes, if the environment says so. Call it while the process has one thread.
pub fn begin() {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return };
    let _ = FILE.set(path.into());
    append("loaded\n");
}

/// Takes a note, if notes are taken. `place` is an address of code. Do not call it in a handler of
/// signals.
pub fn note(reason: Reason, place: usize) {
    if FILE.get().is_some() {
        append(&format!("{}\t{}\n", reason.word(), named(place)));
    }
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
