//! The library that `cringle run` preloads: it makes the threads of an unmodified program fibers.
//!
//! It defines libc's blocking calls, as a program with `cringle_interpose::install!` does, and has
//! [`cringle_interpose`] start a runtime when the program creates its first thread. `main` stays a
//! thread of the system, so a program of one thread pays only for loading this library.
//!
//! `LD_PRELOAD` lasts for what the program starts, as it does for each library, unless the
//! environment says what those get: see [`restore_preload`].

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::ffi::CStr;

cringle_interpose::__define_all!();

/// Makes the threads of this program fibers, from the first one on.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    restore_preload();
    cringle_interpose::__private::install();
    cringle_interpose::__private::begin_notes();
    cringle_interpose::__private::serve_program();
}

/// Gives `LD_PRELOAD` the value of `CRINGLE_CHILDREN_PRELOAD`, which `cringle run` sets unless its
/// option `--children` is given. An empty one removes it.
fn restore_preload() {
    const PRELOAD: &CStr = c"LD_PRELOAD";
    const CHILDREN_PRELOAD: &CStr = c"CRINGLE_CHILDREN_PRELOAD";
    // SAFETY: the contracts of these calls: C strings. The process has one thread. No variable is
    // added, so `environ` stays where the program's start files have it.
    unsafe {
        let value = libc::getenv(CHILDREN_PRELOAD.as_ptr());
        if value.is_null() {
            return;
        }
        if *value == 0 {
            libc::unsetenv(PRELOAD.as_ptr());
        } else {
            libc::setenv(PRELOAD.as_ptr(), value, 1);
        }
        libc::unsetenv(CHILDREN_PRELOAD.as_ptr());
    }
}
