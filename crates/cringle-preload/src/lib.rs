//! The library that `cringle run` preloads: it makes the threads of an unmodified program fibers.
//!
//! It defines libc's blocking calls, as a program with `cringle_interpose::install!` does, and has
//! [`cringle_interpose`] start a runtime when the program creates its first thread. `main` stays a
//! thread of the system, so a program of one thread pays only for loading this library.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod exec;

cringle_interpose::__define_all!();

/// Makes the threads of this program fibers, from the first one on.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    exec::restore_preload();
    cringle_interpose::__private::install();
    cringle_interpose::__private::begin_notes();
    cringle_interpose::__private::serve_program();
}

/// For another copy of the library, in the program or in what it loads: the calling thread creates
/// a thread of that copy next, which stays one of the system.
#[unsafe(no_mangle)]
pub extern "C" fn cringle_next_thread_is_of_the_system() {
    cringle_interpose::__private::next_thread_is_of_the_system();
}
