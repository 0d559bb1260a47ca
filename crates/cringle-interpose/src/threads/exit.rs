//! `pthread_exit` of a thread that is a fiber.
//!
//! libc's own `pthread_exit` unwinds the calling thread frame by frame up to the place that the
//! thread has registered last, and jumps there. C code registers a place for each cleanup handler,
//! unless it is compiled with `-fexceptions` (`pthread_cleanup_push`); libc registers one for the
//! start routine of a thread. A fiber has no such routine of libc's below. So it registers a
//! [`Place`] itself, as C code does, before it calls the start routine or destructors. The jump is
//! a second return of `setjmp`, which Rust code cannot call, so [`call_from`] is in assembly.
//!
//! The unwinding ends in the frame of `call_from`. The frames within are the program's, and frames
//! of this library without destructors.

use super::super::call::OnFiber;
use super::super::next;
use super::alive;
use super::cancel::EXITING;
use super::registry::{self, Thread};
use cringle_core::interposition::is_on_own_thread;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

/// The value of a thread that was cancelled: `PTHREAD_CANCELED`.
pub(super) const CANCELED: usize = usize::MAX;

type Function = unsafe extern "C-unwind" fn(*mut c_void);

/// A place at which `pthread_exit` ends: libc's `__pthread_unwind_buf_t`, and more.
#[repr(C, align(16))]
pub(super) struct Place(UnsafeCell<[u8; Place::BYTES]>);

unsafe extern "C" {
    fn __sigsetjmp(place: *const Place, saves_mask: c_int) -> c_int;
    fn __pthread_register_cancel(place: *const Place);
    fn __pthread_unregister_cancel(place: *const Place);
}

impl Place {
    /// libc's has 112 bytes on x86-64, and 224 on aarch64; its `jmp_buf`, whose size `setjmp`
    /// assumes, has 200 and 312.
    const BYTES: usize = 320;

    pub(super) const fn new() -> Place {
        Place(UnsafeCell::new([0; Place::BYTES]))
    }

    /// Calls `f`. Returns false if `pthread_exit` has ended that. If `f` panics, the caller calls
    /// [`forget`](Self::forget).
    pub(super) fn call(&self, mut f: &mut dyn FnMut()) -> bool {
        unsafe extern "C-unwind" fn call(f: *mut c_void) {
            // SAFETY: I14. The caller lends the closure until `call_from` returns.
            let f = unsafe { &mut *f.cast::<&mut dyn FnMut()>() };
            f();
        }
        // SAFETY: I14. The place exists until the function returns, which takes it back, or until
        // the caller does. The frame of `call` has nothing to drop.
        unsafe { call_from(self, call, (&raw mut f).cast()) == 0 }
    }

    /// Takes the place back after a panic, which has left it to libc.
    pub(super) fn forget(&self) {
        // SAFETY: I14. The calling thread has registered it, and none after it.
        unsafe { __pthread_unregister_cancel(self) };
    }
}

/// Registers the place, calls the function, and takes the place back. Returns 0 if the function has
/// returned, 1 if `pthread_exit` has ended it.
///
/// # Safety
///
/// As the function's. The place stays while it is registered.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_from(
    place: *const Place,
    function: Function,
    argument: *mut c_void,
) -> c_int {
    // `setjmp` saves the registers that a call preserves, and the jump restores them.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r13, 0",
        "mov rbx, rdi",
        "mov r12, rsi",
        "mov r13, rdx",
        "xor esi, esi",
        "call {setjmp}@PLT",
        "test eax, eax",
        "jne 2f",
        "mov rdi, rbx",
        "call {register}@PLT",
        "mov rdi, r13",
        "call r12",
        "xor r12d, r12d",
        "jmp 3f",
        "2:",
        "mov r12d, 1",
        "3:",
        "mov rdi, rbx",
        "call {unregister}@PLT",
        "mov eax, r12d",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r13",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
        setjmp = sym __sigsetjmp,
        register = sym __pthread_register_cancel,
        unregister = sym __pthread_unregister_cancel,
    )
}

/// As on x86-64.
///
/// # Safety
///
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_from(
    place: *const Place,
    function: Function,
    argument: *mut c_void,
) -> c_int {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-48]!",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset w29, -48",
        ".cfi_offset w30, -40",
        "mov x29, sp",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset w19, -32",
        ".cfi_offset w20, -24",
        "str x21, [sp, #32]",
        ".cfi_offset w21, -16",
        "mov x19, x0",
        "mov x20, x1",
        "mov x21, x2",
        "mov w1, #0",
        "bl {setjmp}",
        "cbnz w0, 2f",
        "mov x0, x19",
        "bl {register}",
        "mov x0, x21",
        "blr x20",
        "mov w20, #0",
        "b 3f",
        "2:",
        "mov w20, #1",
        "3:",
        "mov x0, x19",
        "bl {unregister}",
        "mov w0, w20",
        "ldr x21, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        ".cfi_restore w21",
        ".cfi_restore w20",
        ".cfi_restore w19",
        ".cfi_restore w30",
        ".cfi_restore w29",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".cfi_endproc",
        setjmp = sym __sigsetjmp,
        register = sym __pthread_register_cancel,
        unregister = sym __pthread_unregister_cancel,
    )
}

/// Ends the calling thread as libc's own does; a fiber, with its place.
///
/// # Safety
///
/// As libc's.
pub unsafe fn pthread_exit(on: Option<OnFiber>, value: *mut c_void) {
    match on {
        None if !is_on_own_thread() => alive::outlive(),
        _ => note_value(on, value.expose_provenance()),
    }
    // SAFETY: by the contract. This frame has nothing to drop.
    unsafe { next::pthread_exit(value) };
}

/// # Safety
///
/// As libc's.
pub unsafe fn thrd_exit(on: Option<OnFiber>, value: c_int) {
    // SAFETY: by the contract.
    unsafe { pthread_exit(on, std::ptr::without_provenance_mut(value as usize)) };
}

/// Notes the value with which the calling thread ends. A fiber that shares the thread-locals of a
/// thread has not its stack, and cannot be unwound to its place.
pub(super) fn note_value(on: Option<OnFiber>, value: usize) {
    let note = |thread: &Thread| {
        let mut state = thread.lock();
        let is_own = on.is_none_or(|on| state.stack == on.current.fiber.stack_area());
        if is_own {
            state.value = value;
            thread.cancellation.fetch_or(EXITING, Ordering::SeqCst);
        }
        is_own
    };
    if registry::with_own(note) == Some(true) {
        return;
    }
    cringle_sys::report(format_args!(
        "pthread_exit was called on a fiber that pthread_create has not started; return from its \
         closure instead; aborting"
    ));
    std::process::abort();
}
