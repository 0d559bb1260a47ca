//! The attributes that a caller passes to `pthread_create`.

use super::super::serve;
use libc::{c_int, pthread_attr_t, size_t};
use std::ffi::c_void;
use std::mem::MaybeUninit;

unsafe extern "C" {
    fn pthread_attr_getdetachstate(attributes: *const pthread_attr_t, state: *mut c_int) -> c_int;
    fn pthread_attr_getstack(
        attributes: *const pthread_attr_t,
        address: *mut *mut c_void,
        bytes: *mut size_t,
    ) -> c_int;
    fn pthread_attr_getsigmask_np(
        attributes: *const pthread_attr_t,
        mask: *mut libc::sigset_t,
    ) -> c_int;
    fn pthread_getattr_default_np(attributes: *mut pthread_attr_t) -> c_int;
}

/// `PTHREAD_CREATE_DETACHED`, `PTHREAD_EXPLICIT_SCHED` and `PTHREAD_ATTR_NO_SIGMASK_NP`.
const DETACHED: c_int = 1;
const EXPLICIT: c_int = 1;
const NO_MASK: c_int = -1;

pub(super) struct Attributes {
    pub(super) stack_bytes: usize,
    pub(super) is_detached: bool,
}

impl Attributes {
    /// Returns what a fiber can fulfil; `None` for a stack that the caller provides, and for what
    /// the kernel keeps of a thread: a scheduling policy, cores, a signal mask, [rights].
    ///
    /// [rights]: serve::note_rights
    ///
    /// # Safety
    ///
    /// They are null, or initialised.
    pub(super) unsafe fn read(attributes: *const pthread_attr_t) -> Option<Attributes> {
        if serve::do_rights_differ() {
            return None;
        }
        if attributes.is_null() {
            return Attributes::default();
        }
        let (mut detached, mut address, mut stack_bytes) = (0, std::ptr::null_mut(), 0);
        // SAFETY: by the contract.
        unsafe {
            pthread_attr_getdetachstate(attributes, &mut detached);
            pthread_attr_getstack(attributes, &mut address, &mut stack_bytes);
            // libc returns the lowest address, which it computes from the end: null if none is set.
            let end = address.addr().wrapping_add(stack_bytes);
            if end != 0 || is_for_the_kernel(attributes) {
                return None;
            }
        }
        if stack_bytes == 0 {
            stack_bytes = Attributes::default()?.stack_bytes;
        }
        Some(Attributes { stack_bytes, is_detached: detached == DETACHED })
    }

    /// Those of a thread without attributes, which the program may have set.
    fn default() -> Option<Attributes> {
        let mut attributes = MaybeUninit::<pthread_attr_t>::uninit();
        // SAFETY: by the contract of the first call, it initialises the attributes if it succeeds.
        // libc's have a size.
        unsafe {
            if pthread_getattr_default_np(attributes.as_mut_ptr()) != 0 {
                return Some(Attributes { stack_bytes: 0, is_detached: false });
            }
            let read = Attributes::read(attributes.as_ptr());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            read
        }
    }
}

/// # Safety
///
/// The attributes are initialised.
unsafe fn is_for_the_kernel(attributes: *const pthread_attr_t) -> bool {
    let mut inherits = 0;
    let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: by the contract; all zeros are a set.
    unsafe {
        libc::pthread_attr_getinheritsched(attributes, &mut inherits);
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        let bytes = size_of_val(&cores);
        libc::pthread_attr_getaffinity_np(attributes, bytes, &mut cores);
        let words = std::slice::from_raw_parts((&raw const cores).cast::<u8>(), bytes);
        // If none are set, libc returns all that a set can have.
        inherits == EXPLICIT
            || pthread_attr_getsigmask_np(attributes, mask.as_mut_ptr()) != NO_MASK
            || words.iter().any(|&byte| byte != u8::MAX)
    }
}
