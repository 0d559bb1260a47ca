//! libc's blocking calls, as calls of a fiber: the part of the crate `cringle-interpose` that needs
//! the library's inside. It is no public API: only that crate may use it, in the same version.
//!
//! That crate's `install!` defines libc's symbols in the program. Each definition asks
//! [`on_fiber`], which is one load of a thread-local where no fiber runs. Then it calls the
//! [`next`] definition; or it calls the function of the same name in [`hooks`], in which only the
//! calling fiber waits.
//!
//! - `call` is the frame of each such call;
//! - `transfer`, `sockets`, `receives`, `connections`, `messages`, `ready`, `sleep`, `files`,
//!   `processes` and `names` are the calls;
//! - `descriptors` closes under waits, and `held` has the files of calls that wait;
//! - `queue` is what fibers wait in for futexes (`futex`) and pthread's locks (`locks`,
//!   `conditions`, `waits`); calls that end such waits are in [`for_all`], because threads make
//!   them too;
//! - `threads` are threads that are fibers;
//! - `table` lists the signatures.
//!
//! # Invariants
//!
//! The system calls here are raw (**I14**). No unwinding leaves a call (**I12**). Memory of the
//! caller is lent to an op until the call returns (**I1**): C code lends it as Rust code does.

/// Defines calls by other functions: where the arguments are those of the next definition, which
/// reports a buffer that is too small and aborts, it is called. The first line is the type of the
/// first argument.
macro_rules! calls {
    ($on:ty: $(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty
            $(, next if $condition:expr)?;
        $call:expr;
    )*) => {
        $(
            /// # Safety
            ///
            /// As libc's.
            #[allow(clippy::too_many_arguments, reason = "they are libc's")]
            #[allow(unused_unsafe, reason = "some calls have no contract")]
            pub unsafe fn $name(on: $on, $($argument: $type),*) -> $result {
                // SAFETY: by the contract.
                unsafe {
                    if false $(|| $condition)? {
                        return $crate::interpose::next::$name($($argument),*);
                    }
                    ($call)(on)
                }
            }
        )*
    };
}

mod call;
mod conditions;
mod connections;
mod descriptors;
mod files;
pub mod for_all;
mod futex;
mod held;
pub mod hooks;
mod locks;
mod messages;
mod modes;
mod names;
pub mod next;
mod processes;
mod queue;
mod ready;
mod receives;
mod sleep;
mod slices;
mod sockets;
mod table;
mod threads;
mod transfer;
mod waits;

pub use call::{OnFiber, on_fiber};
pub use threads::{C11Start, Start, has_threads};
pub use waits::Routine;

/// Whether libc's blocking calls are interposed in this program.
pub fn is_installed() -> bool {
    crate::sys::is_interposed()
}

/// Looks up the next definition of each call. The program's first constructor calls it, while the
/// process has one thread.
pub extern "C" fn install() {
    // SAFETY: the contract of this function.
    unsafe { next::resolve() };
    conditions::find_attributes();
    after_fork();
    crate::sys::set_interposed();
}

/// Makes the calls of a forked child plain ones: it has no worker.
fn after_fork() {
    extern "C" fn in_child() {
        crate::runtime::worker::Worker::leave_thread();
        queue::forget_all();
        futex::forget_all();
        crate::driver::kept::forget_all();
        waits::count_fork();
    }
    // SAFETY: the contract of `pthread_atfork`: the handler only writes a thread-local and a
    // number.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}
