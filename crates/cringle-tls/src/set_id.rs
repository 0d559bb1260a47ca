//! `setuid` and its kin, while a thread runs on a block.
//!
//! The kernel keeps credentials by thread. So glibc sends a signal to each thread of the process,
//! whose handler changes the credentials and marks the thread's descriptor, until all are marked.
//! On a block the handler would mark the descriptor of that block, and the caller would wait for
//! the worker's thread for ever. Our handler calls glibc's on the block of the thread itself, which
//! the kernel knows: it has the address of the thread's list of robust locks. A note in the block
//! would name another worker while a block is on its way from there. A fiber on a thread of its own
//! may give the kernel another list, its [block's](with_kernels_number) or the program's; it goes
//! nowhere else before that thread ends, so the note is right.

use super::{checked_glibc, thread_pointer};
use cringle_sys::{self as sys, raw, syscall};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// The signal that glibc uses for this (`SIGSETXID`).
const SIGNAL: c_int = 33;
/// What the kernel knows of a handler, and the size of its set of signals.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}
const MASK_BYTES: usize = 8;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// glibc's handler.
static GLIBCS: AtomicUsize = AtomicUsize::new(0);

/// How far a thread's list of robust locks lies from its thread pointer. 0 if the kernel does not
/// say where such lists are.
static ROBUST_LIST: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// The thread pointer of the thread itself, on a block. 0 on the thread's own.
    static THREADS_OWN: Cell<usize> = const { Cell::new(0) };
    /// Whether the kernel has another list of robust locks for that thread than the thread's own.
    static HAS_OTHER_LIST: Cell<bool> = const { Cell::new(false) };
}

/// Notes on a block to which thread it belongs.
pub fn note_thread(own: usize) {
    THREADS_OWN.set(own);
    HAS_OTHER_LIST.set(false);
}

/// Notes on a block that its thread gives the kernel another list of robust locks. The thread runs
/// no other block before it ends. Returns whether that was noted before.
pub fn note_other_list() -> bool {
    HAS_OTHER_LIST.replace(true)
}

/// Calls a function of libc's as a thread that the kernel knows: it writes the thread's number into
/// locks, by which the kernel and other processes know the owner. The block's own number is a
/// number of this process only.
///
/// # Safety
///
/// I14: the caller runs on a block, on a thread that runs no other block before it ends.
pub unsafe fn with_kernels_number<R>(call: impl FnOnce() -> R) -> R {
    const HEAD_BYTES: usize = 3 * size_of::<usize>();
    let Some(glibc) = checked_glibc() else { return call() };
    let at = &glibc.descriptor;
    let descriptor = thread_pointer::get().wrapping_add_signed(at.from_thread_pointer);
    let number = (descriptor + at.thread_id) as *mut c_int;
    if !note_other_list() {
        // SAFETY: I15. The list is in the block, which outlives the thread, by the contract.
        unsafe { syscall!(SYS_set_robust_list, descriptor + at.robust_list, HEAD_BYTES) };
    }
    // SAFETY: I15. The number is in the block on which the caller runs.
    unsafe {
        let own = number.replace(sys::thread_number());
        let result = call();
        number.write(own);
        result
    }
}

/// The thread pointer of the calling thread itself, also if it runs on a block.
pub fn threads_own() -> usize {
    match THREADS_OWN.get() {
        0 => thread_pointer::get(),
        own => own,
    }
}

/// In a child of `fork`: forgets the thread, which the child does not have. Returns its thread
/// pointer if the caller runs on a block. That is its thread's descriptor now.
pub(super) fn forget_thread() -> Option<usize> {
    let own = THREADS_OWN.replace(0);
    (own != 0 && own != thread_pointer::get()).then_some(own)
}

/// Where the list of robust locks is of the calling thread: in its own descriptor, also if it runs
/// on a block.
fn robust_list() -> Option<usize> {
    let (mut list, mut bytes) = (0usize, 0usize);
    // SAFETY: I15. The kernel writes two words.
    let result = unsafe { syscall!(SYS_get_robust_list, 0, &raw mut list, &raw mut bytes) };
    (result == 0 && list != 0).then_some(list)
}

/// Installs our handler, after a thread was started, for which glibc installs its own. Is called on
/// a thread that runs on no block.
pub(super) fn wrap_handler() -> Result<(), String> {
    let offset = robust_list().map_or(0, |list| list.wrapping_sub(thread_pointer::get()));
    ROBUST_LIST.store(offset.cast_signed(), Ordering::Relaxed);
    let failed = |e| format!("the handler of signal {SIGNAL} cannot be set: {e}");
    let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    sigaction(None, Some(&mut action)).map_err(failed)?;
    if action.handler == on_signal as *const () as usize {
        return Ok(());
    }
    if action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN {
        return Err("glibc has no handler for changes of credentials".into());
    }
    keep_loaded();
    GLIBCS.store(action.handler, Ordering::Release);
    action.handler = on_signal as *const () as usize;
    sigaction(Some(&action), None).map_err(failed)
}

/// Keeps the library that this code is in, such as a plugin, from being unloaded: the handler
/// stays.
fn keep_loaded() {
    let code = (on_signal as *const ()).cast();
    // SAFETY: I15. All-zero is valid; the name is the loader's, of a loaded object. The program
    // itself has a name that the loader does not find, and is never unloaded.
    unsafe {
        let mut object: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(code, &mut object) != 0 && !object.dli_fname.is_null() {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(object.dli_fname, flags);
        }
    }
}

/// The raw call: libc's refuses the signals that it uses itself.
fn sigaction(new: Option<&Action>, old: Option<&mut Action>) -> std::io::Result<()> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    let old = old.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: I15. Both are null, or actions in the kernel's layout.
    let result = unsafe { syscall!(SYS_rt_sigaction, SIGNAL, new, old, MASK_BYTES) };
    raw::result_of(result).map(drop)
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let own = match (THREADS_OWN.get(), ROBUST_LIST.load(Ordering::Relaxed)) {
        (0, _) => 0,
        (noted, 0) => noted,
        (noted, _) if HAS_OTHER_LIST.get() => noted,
        (noted, offset) => robust_list().map_or(noted, |list| list.wrapping_add_signed(-offset)),
    };
    // SAFETY: I15. `wrap_handler` has stored glibc's handler.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(GLIBCS.load(Ordering::Acquire)) };
    // SAFETY: I15. As the kernel calls it.
    let mut call = || unsafe { handler(signal, info, context) };
    if own == 0 {
        call();
    } else {
        // SAFETY: I14. This is that thread, and the code that runs on its own block stands still
        // meanwhile, as under any signal.
        unsafe { thread_pointer::call_on_block(own, &mut call) };
    }
}
