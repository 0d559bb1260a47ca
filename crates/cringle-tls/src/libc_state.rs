//! libc's own state of a thread, which a block keeps for its next family.
//!
//! The state that a program sees begins as on a new thread. Only libc's functions know where that
//! state lies, except the resolver's, whose layout is public.

use super::glibc::symbol;
use std::ffi::{c_char, c_int, c_ulong};
use std::ptr::NonNull;

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
    fn dlerror() -> *mut c_char;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// `LC_GLOBAL_LOCALE`.
const GLOBAL_LOCALE: libc::locale_t = std::ptr::without_provenance_mut(usize::MAX);
/// `PTHREAD_CANCEL_ENABLE` and `PTHREAD_CANCEL_DEFERRED`.
const ENABLED: c_int = 0;
const DEFERRED: c_int = 0;

/// The first fields of the resolver's state (`struct __res_state`), and its size.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Resolver {
    wait_seconds: c_int,
    tries: c_int,
    options: c_ulong,
    servers: c_int,
}
const RESOLVER_BYTES: usize = 568;

/// Frees the resolver's state of a thread, and closes its sockets.
pub(super) type CloseResolver = unsafe extern "C" fn(*mut u8);

pub(super) fn find_close_resolver() -> Result<CloseResolver, String> {
    let found = symbol(c"__res_nclose")?;
    // SAFETY: I15. The function has had this type since glibc 2.2.
    Ok(unsafe { std::mem::transmute::<NonNull<u8>, CloseResolver>(found) })
}

/// Initialises what a program sees, as for a new thread.
///
/// # Safety
///
/// I14: the caller runs on a block, and no other code on it continues.
pub(super) unsafe fn begin() {
    // SAFETY: I14. These set thread-locals. The first also sets the tables of the character
    // classes, to the tables of the locale that the program uses now.
    unsafe {
        libc::uselocale(GLOBAL_LOCALE);
        *libc::__errno_location() = 0;
        *__h_errno_location() = 0;
    }
}

/// Releases what libc keeps for the code that ran on the block.
///
/// # Safety
///
/// I14: the caller runs on the block, `resolver` is its state of the resolver.
pub(super) unsafe fn end(
    resolver: Option<NonNull<u8>>,
    close: CloseResolver,
    cancel_state_was_changed: bool,
) {
    // SAFETY: I14. The calls change the state of the calling thread. The second one of `dlerror`
    // frees the text that the first one returns.
    unsafe {
        if !dlerror().is_null() {
            dlerror();
        }
        if cancel_state_was_changed {
            pthread_setcancelstate(ENABLED, std::ptr::null_mut());
            pthread_setcanceltype(DEFERRED, std::ptr::null_mut());
        }
        let Some(state) = resolver else { return };
        let first = state.cast::<Resolver>().read();
        if first == Resolver::default() {
            return;
        }
        // Without servers it was not initialised, and has no socket.
        if first.servers > 0 {
            close(state.as_ptr());
        }
        state.write_bytes(0, RESOLVER_BYTES);
    }
}
