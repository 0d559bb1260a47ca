//! Where libc keeps the list of a thread's destructors (`tls_dtor_list`), one for each thread-local
//! that was used. It is a thread-local of libc's own, so it is found by a registration, which adds
//! to it. With its place known, a fiber that has used no such thread-local ends faster.

use super::glibc::{Glibc, symbol};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// A place in the list.
#[repr(C)]
struct Entry {
    function: usize,
    object: *const c_void,
    module: *const c_void,
    next: *const Entry,
}

type Register =
    unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *const c_void, *const c_void) -> c_int;

/// What the registration is for. It names the module, too.
static OBJECT: u8 = 0;

unsafe extern "C" fn do_nothing(_object: *mut c_void) {}

/// Returns how far the list's head is from the thread pointer, unless this libc keeps it otherwise.
///
/// # Safety
///
/// I14: the caller runs on a block that no other code has used.
pub(super) unsafe fn find(glibc: &Glibc, thread_pointer: NonNull<u8>) -> Option<isize> {
    let register = symbol(c"__cxa_thread_atexit_impl").ok()?;
    // SAFETY: I15. The type is that which the function has had since glibc 2.18.
    let register = unsafe { std::mem::transmute::<NonNull<u8>, Register>(register) };
    let libc = glibc.link_map.place_of_libc()?;
    // SAFETY: I15. Nothing else runs on the block.
    let read = || unsafe { libc.words(thread_pointer.addr().get()) };
    // So that the allocator has its own thread-locals.
    drop(std::hint::black_box(Box::new(0u64)));
    let before = read();
    let object = (&raw const OBJECT).cast();
    // SAFETY: I15. The destructor does nothing. Its module is named by an address within.
    if unsafe { register(do_nothing, object, object) } != 0 {
        return None;
    }
    let is_head = |word: usize, old: usize| {
        // SAFETY: I15. The caller has seen the address only now: an allocation has returned it.
        let entry = unsafe { &*(word as *const Entry) };
        entry.object == object && entry.next as usize == old
    };
    let changed = read().into_iter().zip(&before).position(|((_, now), &(_, old))| {
        now != old
            && now > usize::from(u16::MAX)
            && now % align_of::<Entry>() == 0
            && is_head(now, old)
    });
    // SAFETY: I14. The caller runs on the block.
    unsafe { (glibc.call_destructors)() };
    let place = changed?;
    (read()[place] == before[place]).then_some(before[place].0)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(target_env = "gnu", not(cringle_sanitizer)))]
    fn list_of_destructors_is_found() {
        let glibc = super::super::glibc().unwrap();
        assert_ne!(glibc.destructor_list.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
