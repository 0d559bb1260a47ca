//! Cancelled threads in C code: of threads of the system, and of fibers.

use super::exit::{Library, libraries, on_threads_and_fibers};
use std::ffi::{CStr, c_char, c_int, c_uint};

/// Cancels a thread in each of the library's calls.
fn check(library: &Library) {
    // SAFETY: the functions have these types.
    let (name_of, cancel) = unsafe {
        (
            std::mem::transmute::<*mut _, extern "C" fn(c_uint) -> *const c_char>(
                library.function(c"name_of"),
            ),
            std::mem::transmute::<*mut _, extern "C-unwind" fn(c_uint, c_int) -> *const c_char>(
                library.function(c"cancel"),
            ),
        )
    };
    let text = |text: *const c_char| {
        // SAFETY: the texts are the library's.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap())
    };
    let mut checked = 0;
    while let Some(name) = text(name_of(checked)) {
        for within in [0, 1] {
            let wrong = text(cancel(checked, within));
            assert_eq!(wrong, None, "{name}, cancelled within: {within}");
        }
        checked += 1;
    }
    assert!(checked >= 19);
}

#[test]
fn cancelled_thread_ends_at_its_cancellation_points() {
    for library in libraries("cancel.c") {
        on_threads_and_fibers(|| check(&library));
    }
}
