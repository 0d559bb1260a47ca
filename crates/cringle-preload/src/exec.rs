//! `LD_PRELOAD` of what the program starts, and of what it becomes.
//!
//! `LD_PRELOAD` lasts for all that the program starts, as it does for each library, unless
//! `CRINGLE_CHILDREN_PRELOAD` is set, as `cringle run` does: to the value that children get. Then
//! only the process that began with it is served. It may execute another program in its place, as
//! `env`, `nice`, `sh -c 'exec …'` and the scripts that choose a version of an interpreter do. So
//! the calls for that put the library back into the environment, and children do not have it.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

const PRELOAD: &CStr = c"LD_PRELOAD";
const CHILDREN_PRELOAD: &CStr = c"CRINGLE_CHILDREN_PRELOAD";

type Execute =
    unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// The process that is served, if what it starts is not.
struct Process {
    id: libc::pid_t,
    library: CString,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// Gives `LD_PRELOAD` its value for children. Call it while the process has one thread.
pub(crate) fn restore_preload() {
    // SAFETY: the contracts of these calls: C strings, and one thread. No variable is added, so
    // `environ` stays where the program's start files have it.
    unsafe {
        let (all, children) =
            (libc::getenv(PRELOAD.as_ptr()), libc::getenv(CHILDREN_PRELOAD.as_ptr()));
        if all.is_null() || children.is_null() {
            return;
        }
        // `cringle run` puts the library first.
        let library = CStr::from_ptr(all).to_bytes().split(|byte| *byte == b':').next();
        let library = CString::new(library.unwrap_or_default()).unwrap_or_default();
        let _ = PROCESS.set(Process { id: libc::getpid(), library });
        if *children == 0 {
            libc::unsetenv(PRELOAD.as_ptr());
        } else {
            libc::setenv(PRELOAD.as_ptr(), children, 1);
        }
        libc::unsetenv(CHILDREN_PRELOAD.as_ptr());
    }
}

/// An environment in which the program is served.
struct Served {
    _strings: [CString; 2],
    pointers: Vec<*const c_char>,
}

impl Served {
    /// # Safety
    ///
    /// The environment is an array of C strings that ends with null.
    unsafe fn of(process: &Process, environment: *const *const c_char) -> Served {
        let is = |name: &CStr, variable: &CStr| {
            let value = variable.to_bytes().strip_prefix(name.to_bytes());
            value.and_then(|value| value.strip_prefix(b"=")).map(<[u8]>::to_vec)
        };
        let (mut children, mut pointers) = (Vec::new(), Vec::new());
        let mut next = environment;
        // SAFETY: by the contract.
        unsafe {
            while !next.is_null() && !(*next).is_null() {
                match is(PRELOAD, CStr::from_ptr(*next)) {
                    Some(value) => children = value,
                    None => pointers.push(*next),
                }
                next = next.add(1);
            }
        }
        let pair = |name: &CStr, values: &[&[u8]]| {
            let text = [name.to_bytes(), b"=", &values.join(&b':')].concat();
            CString::new(text).expect("C strings have no nulls")
        };
        let values = [process.library.to_bytes(), &children];
        let values = if children.is_empty() { &values[..1] } else { &values };
        let strings = [pair(PRELOAD, values), pair(CHILDREN_PRELOAD, &[&children])];
        pointers.extend(strings.iter().map(|string| string.as_ptr()));
        pointers.push(std::ptr::null());
        Served { _strings: strings, pointers }
    }
}

/// Executes by the next definition of the call, with an environment in which this process is
/// served again. A child makes the plain call, which allocates nothing.
///
/// # Safety
///
/// As libc's, and the call has these arguments.
unsafe fn execute(
    call: &CStr,
    file: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    cringle_interpose::__private::before_exec();
    // SAFETY: by the contract. libc has a definition after this one.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, call.as_ptr());
        let next = std::mem::transmute::<*mut libc::c_void, Execute>(next);
        match PROCESS.get().filter(|process| process.id == libc::getpid()) {
            None => next(file, arguments, environment),
            Some(process) => {
                let served = Served::of(process, environment);
                next(file, arguments, served.pointers.as_ptr())
            }
        }
    }
}

macro_rules! executes {
    ($($name:ident($($environment:ident)?) by $call:literal, $value:expr;)*) => {$(
        /// # Safety
        ///
        /// As libc's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            file: *const c_char,
            arguments: *const *const c_char,
            $($environment: *const *const c_char,)?
        ) -> c_int {
            // SAFETY: by the contract.
            unsafe { execute($call, file, arguments, $value) }
        }
    )*};
}

executes! {
    execve(environment) by c"execve", environment;
    execvpe(environment) by c"execvpe", environment;
    execv() by c"execve", environ;
    execvp() by c"execvpe", environ;
}
