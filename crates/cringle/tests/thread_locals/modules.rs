//! Libraries that are loaded and unloaded while blocks exist.

use super::on_workers;
use cringle::fiber;
use cringle_testing::child;
use cringle_testing::tools::let_others_wait;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// A library with a variable in each model of thread-locals: in the block itself, and apart.
const LIBRARY: &str = r#"
    __thread int within __attribute__((tls_model("initial-exec"))) = 42;
    static __thread int apart = 43;
    int swap_within(int value) { int before = within; within = value; return before; }
    int swap_apart(int value) { int before = apart; apart = value; return before; }
"#;

/// Compiles the library; `None` if there is no C compiler.
fn compile(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("locals.c"), folder.join("locals.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    let status = compiler
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .status()
        .ok()?;
    assert!(status.success());
    Some(library)
}

/// A loaded library.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

// SAFETY: a handle of the dynamic loader may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    fn load(path: &Path) -> Library {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the library was compiled above, and has no constructors.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Library(library)
    }

    fn swap(self, name: &CStr, value: c_int) -> c_int {
        // SAFETY: the function has this type.
        unsafe {
            let function = libc::dlsym(self.0, name.as_ptr());
            assert!(!function.is_null());
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(function)(value)
        }
    }

    /// Sets both variables, and returns what they were.
    fn swap_both(self, value: c_int) -> [c_int; 2] {
        [self.swap(c"swap_within", value), self.swap(c"swap_apart", value)]
    }

    fn unload(self) {
        // SAFETY: no code of it runs, and no address in it is used any more.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

#[test]
fn loaded_beside_live_and_pooled_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compile(folder.path()) else { return println!("skipped: no `cc`") };
    child::must_succeed("loaded_beside_live_and_pooled_blocks", || {
        on_workers(2, || {
            for _ in 0..3 {
                load_use_and_unload(&path);
            }
        });
    });
}

#[test]
fn loaded_while_fibers_end() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compile(folder.path()) else { return println!("skipped: no `cc`") };
    child::must_succeed("loaded_while_fibers_end", || {
        let is_over = &AtomicBool::new(false);
        on_workers(2, || {
            fiber::scope(|s| {
                let end_fibers = move || {
                    while !is_over.load(Ordering::SeqCst) {
                        fiber::scope(|s| (0..64).for_each(|_| drop(s.spawn(|| ()))));
                    }
                };
                let on = |worker| fiber::Builder::new().worker(worker);
                on(1).spawn_scoped(s, end_fibers).unwrap();
                let load = || {
                    (0..child::scaled(30, 3000)).for_each(|_| load_use_and_unload(&path));
                    is_over.store(true, Ordering::SeqCst);
                };
                on(0).spawn_scoped(s, load).unwrap();
            });
        });
    });
}

fn load_use_and_unload(path: &Path) {
    // Blocks that are in use, and some that wait for the next fiber.
    let live: Vec<_> = (0..10)
        .map(|number| {
            fiber::spawn(move || {
                fiber::park();
                number
            })
        })
        .collect();
    (0..10).map(|_| fiber::spawn(|| ())).for_each(|fiber| fiber.join().unwrap());
    let_others_wait();

    let library = Library::load(path);
    let uses = move |value| {
        assert_eq!(library.swap_both(value), [42, 43], "initial values");
        fiber::yield_now();
        assert_eq!(library.swap_both(value), [value, value]);
    };
    uses(1);
    // Each block twice, so that what a fiber has left would be seen.
    for round in 0..2 {
        let fibers: Vec<_> = (0..40).map(|n| fiber::spawn(move || uses(100 * round + n))).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
    let late = fiber::spawn(move || {
        fiber::park();
        uses(5);
    });
    fiber::spawn(move || uses(6)).join().unwrap();
    late.thread().unpark();
    late.join().unwrap();
    for fiber in live {
        fiber.thread().unpark();
        fiber.join().unwrap();
    }
    library.unload();
    // Without the library, blocks are used as before.
    (0..40).map(|_| fiber::spawn(|| ())).for_each(|fiber| fiber.join().unwrap());
}

/// A fiber that exists since before the library was loaded uses it.
#[test]
fn used_by_a_fiber_that_is_older() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compile(folder.path()) else { return println!("skipped: no `cc`") };
    child::must_succeed("used_by_a_fiber_that_is_older", || {
        static LIBRARY: std::sync::OnceLock<Library> = std::sync::OnceLock::new();
        on_workers(2, || {
            let older: Vec<_> = (0..10)
                .map(|number| {
                    fiber::spawn(move || {
                        fiber::park();
                        let library = LIBRARY.get().unwrap();
                        assert_eq!(library.swap_both(number), [42, 43]);
                        assert_eq!(library.swap_both(0), [number, number]);
                    })
                })
                .collect();
            let_others_wait();
            LIBRARY.set(Library::load(&path)).ok().unwrap();
            for fiber in older {
                fiber.thread().unpark();
                fiber.join().unwrap();
            }
        });
    });
}
