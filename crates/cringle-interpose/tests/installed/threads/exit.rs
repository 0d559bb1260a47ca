//! The ends of threads in C code: of threads of the system, and of fibers.

use super::common::on_each_runtime;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// What a thread has left: its value, and a letter for each handler that ran.
#[repr(C)]
struct Left {
    value: usize,
    log: [c_char; 32],
}

impl Left {
    fn nothing() -> Left {
        Left { value: usize::MAX, log: [0; 32] }
    }

    fn parts(&self) -> (isize, &str) {
        // SAFETY: the log ends with a zero byte.
        let log = unsafe { CStr::from_ptr(self.log.as_ptr()) };
        (self.value as isize, log.to_str().unwrap())
    }
}

/// A library of C code, compiled with some options. It is never unloaded.
pub(crate) struct Library(*mut c_void);

// SAFETY: a handle of the dynamic loader may be used by any thread.
unsafe impl Sync for Library {}

impl Library {
    /// `None` if there is no C compiler.
    fn compile(name: &str, option: &str) -> Option<Library> {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/installed/threads");
        let source = Path::new(sources).join(name);
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library.so");
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1"]);
        compiler.arg(option).arg("-o").arg(&library).arg(source);
        let Ok(status) = compiler.status() else {
            let is_required = std::env::var_os("CRINGLE_TOOLS").is_some_and(|it| it == "required");
            assert!(!is_required, "there is no `cc`: install it");
            println!("skipped: there is no `cc`");
            return None;
        };
        assert!(status.success());
        let path = CString::new(library.as_os_str().as_bytes()).unwrap();
        // SAFETY: the library's constructor makes keys.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Some(Library(library))
    }

    pub(crate) fn function(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the library stays loaded.
        let function = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!function.is_null());
        function
    }

    /// Runs the start routine of this name in a thread.
    fn run(&self, name: &CStr) -> Left {
        type Run = extern "C-unwind" fn(*mut c_void, &mut Left);
        let mut left = Left::nothing();
        // SAFETY: the function has this type.
        let run = unsafe { std::mem::transmute::<*mut c_void, Run>(self.function(c"run")) };
        run(self.function(name), &mut left);
        left
    }

    fn run_fork(&self, exits: bool) -> Left {
        type Run = extern "C-unwind" fn(c_int, &mut Left);
        let mut left = Left::nothing();
        // SAFETY: the function has this type.
        let run = unsafe { std::mem::transmute::<*mut c_void, Run>(self.function(c"run_fork")) };
        run(c_int::from(exits), &mut left);
        left
    }
}

/// The library of this source, with exceptions and without.
pub(crate) fn libraries(name: &str) -> Vec<Library> {
    let options = ["-fexceptions", "-fno-exceptions"];
    options.iter().filter_map(|option| Library::compile(name, option)).collect()
}

/// Checks a thread of the system, and fibers.
pub(crate) fn on_threads_and_fibers(check: impl Fn() + Sync) {
    check();
    on_each_runtime(check);
}

#[test]
fn thread_that_exits_runs_its_cleanup_handlers() {
    for library in libraries("exit.c") {
        on_threads_and_fibers(|| {
            assert_eq!(library.run(c"exit_in_handlers").parts(), (12, "ba2"));
            assert_eq!(library.run(c"return_after_handlers").parts(), (2, "a"));
            assert_eq!(library.run(c"exit_by_c11").parts(), (-1, "a"));
        });
    }
}

#[test]
fn exit_in_a_destructor_runs_the_other_destructors() {
    for library in libraries("exit.c") {
        // libc leaves the other values of a thread of the system to the next thread.
        on_each_runtime(|| {
            assert_eq!(library.run(c"exit_in_a_destructor").parts(), (7, "1a1a2"));
        });
    }
}

#[test]
fn child_of_a_thread_ends_with_the_thread() {
    for library in libraries("exit.c") {
        on_threads_and_fibers(|| {
            assert_eq!(library.run_fork(false).parts(), (0, "ae"));
            assert_eq!(library.run_fork(true).parts(), (0, "ae"));
        });
    }
}
