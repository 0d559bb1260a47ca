//! Makes crates and C libraries that know nothing of [Cringle] suspend their fiber instead of their
//! thread.
//!
//! [`install!`] defines libc's blocking calls (`recv`, `connect`, `read`, `poll`, `nanosleep`,
//! `pthread_mutex_lock`, `syscall(SYS_futex)`, …) as symbols of the program, and the dynamic linker
//! binds all libraries to them. On a fiber such a call suspends the fiber, and its worker runs
//! others; elsewhere it is libc's own.
//!
//! ```no_run
//! use std::io::{self, Read, Write};
//! use std::net::TcpStream;
//!
//! cringle_interpose::install!();
//!
//! /// Code that was written for threads.
//! fn ask(host: &str) -> io::Result<String> {
//!     let mut stream = TcpStream::connect((host, 80))?;
//!     write!(stream, "GET / HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     Ok(answer)
//! }
//!
//! fn main() {
//!     cringle::run(|| {
//!         // Both wait at the same time, on one thread.
//!         let asked = ["example.com", "example.org"]
//!             .map(|host| cringle::fiber::spawn(move || ask(host)));
//!         for answer in asked {
//!             println!("{:?}", answer.join().unwrap());
//!         }
//!     });
//! }
//! ```
//!
//! # Rules
//!
//! - Only a program calls `install!`, once, in `main.rs` (or a test in its own). The crate itself
//!   defines no symbol, so that depending on it changes nothing.
//! - Start fibers by [`spawn`] or [`par_map_workers`]. Such a fiber has thread-locals of its own,
//!   and is a thread to a crate. A tree of local fibers, those of [`spawn_local`], [`par_map`],
//!   `join`, `race` and `any`, is one thread: while one of them waits in an interposed call, none
//!   of the others runs.
//! - [`run`] fails with a sentence where fibers cannot have thread-locals of their own, or where
//!   `ThreadLocals::Shared` was chosen.
//!
//! # Errors and cancellation
//!
//! Each call has its own semantics: `O_NONBLOCK`, socket timeouts, whole writes of blocking sockets
//! and pipes, `errno` set on failure only. A call of a cancelled fiber fails with `ECANCELED`,
//! after a deadline with `ETIMEDOUT`. Sleeps end early, and waits with a time of their own time
//! out; other waits for locks continue.
//!
//! # Threads
//!
//! Threads that such code starts are threads of the system, unless [`Builder::threads`] makes them
//! fibers.
//!
//! The book's chapter "Code that knows nothing of Cringle" lists the calls, and what cannot be.
//!
//! # Requirements
//!
//! Linux on x86-64 or aarch64, with GNU's C library, dynamically linked.
//!
//! [Cringle]: https://docs.rs/cringle/latest/cringle/
//! [`spawn`]: https://docs.rs/cringle/latest/cringle/fiber/fn.spawn.html
//! [`par_map_workers`]: https://docs.rs/cringle/latest/cringle/fiber/fn.par_map_workers.html
//! [`spawn_local`]: https://docs.rs/cringle/latest/cringle/fiber/fn.spawn_local.html
//! [`par_map`]: https://docs.rs/cringle/latest/cringle/fiber/fn.par_map.html
//! [`run`]: https://docs.rs/cringle/latest/cringle/fn.run.html
//! [`Builder::threads`]: https://docs.rs/cringle/latest/cringle/struct.Builder.html#method.threads

#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!(
    "cringle-interpose needs Linux with GNU's C library: fibers need thread-locals of their own"
);
#[cfg(target_feature = "crt-static")]
compile_error!(
    "cringle-interpose needs a dynamically linked C library: build without `crt-static`"
);

#[macro_use]
extern crate cringle_sys;

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
                        return $crate::next::$name($($argument),*);
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
#[doc(hidden)]
pub mod for_all;
mod futex;
mod held;
#[doc(hidden)]
pub mod hooks;
mod locks;
mod messages;
mod modes;
mod monitor;
mod names;
#[doc(hidden)]
pub mod next;
mod notes;
mod own_threads;
mod owned_locks;
mod processes;
mod program;
mod queue;
mod ready;
mod receives;
mod semaphores;
mod serve;
mod sleep;
mod slices;
mod sockets;
mod start;
mod threads;
mod transfer;
mod waits;

/// What [`install!`] and [`main!`] expand to.
#[doc(hidden)]
pub mod __private {
    pub use cringle_run::run::Builder;
    pub use cringle_sys::{
        __interposed_aliases as interposed_aliases, __interposed_calls as interposed_calls,
        __interposed_for_all as interposed_for_all, is_interposed,
    };
    pub use libc;

    pub use crate::call::on_fiber;
    pub use crate::notes::begin as begin_notes;
    pub use crate::processes::before_exec;
    pub use crate::program::run;
    pub use crate::serve::serve_program;
    pub use crate::start::install;
    pub use crate::threads::cancel::{Point, at_point, plain_point, point_of};
    pub use crate::threads::{C11Start, Start, next_thread_is_of_the_system};
    pub use crate::waits::Routine;
    pub use crate::{for_all, hooks, next};
}

/// Defines libc's blocking calls in this program: to be called once, in `main.rs`, outside of any
/// function.
///
/// The program's first constructor looks up the next definition of each call: libc's, or that of a
/// preloaded library.
///
/// ```
/// cringle_interpose::install!();
///
/// fn main() {
///     cringle::run(|| {
///         let sleepers: Vec<_> = (0..100)
///             .map(|_| {
///                 cringle::fiber::spawn(|| {
///                     std::thread::sleep(std::time::Duration::from_millis(10));
///                 })
///             })
///             .collect();
///         for sleeper in sleepers {
///             sleeper.join().unwrap();
///         }
///     });
/// }
/// ```
#[macro_export]
macro_rules! install {
    () => {
        $crate::__define_all!();

        const _: () = {
            /// Before the constructors of libraries, which may call what is defined here.
            #[used]
            #[unsafe(link_section = ".preinit_array")]
            static INSTALL: extern "C" fn() = $crate::__private::install;
        };
    };
}

/// Defines all calls.
#[doc(hidden)]
#[macro_export]
macro_rules! __define_all {
    () => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::__private::libc::*;
            #[allow(unused_imports)]
            use $crate::__private::{C11Start, Routine, Start};

            $crate::__private::interposed_calls!($crate::__define);
            $crate::__private::interposed_for_all!($crate::__define_for_all);
            $crate::__private::interposed_aliases!($crate::__define_for_all);

            /// As `fork`: a child that shares this process's memory would be a part of its fiber.
            ///
            /// # Safety
            ///
            /// As libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn vfork() -> pid_t {
                // SAFETY: by the contract.
                unsafe { fork() }
            }
        };
    };
}

/// Calls [`install!`], and defines `main` so that its body runs on a fiber.
///
/// A [`Builder`] before the function chooses more than the defaults. `main` may return what any
/// `main` may return.
///
/// ```
/// use std::thread;
/// use std::time::Duration;
///
/// cringle_interpose::main!(
///     cringle::Builder::new().threads(cringle::runtime::Threads::Fibers),
///     fn main() {
///         // Fibers, all of them, on a worker for each core.
///         let sleep = || thread::sleep(Duration::from_millis(10));
///         let threads: Vec<_> = (0..1000).map(|_| thread::spawn(sleep)).collect();
///         threads.into_iter().for_each(|thread| thread.join().unwrap());
///     }
/// );
/// ```
///
/// When `main` returns, fibers that have not ended are cancelled, and the process ends after them,
/// as with [`run`]. If threads that are fibers have not ended, the process ends at once, as it does
/// with threads: by `cringle::process::exit`.
///
/// # Errors
///
/// A runtime that cannot start is reported on standard error, with exit status 1. A panic of `main`
/// gives status 101.
///
/// [`Builder`]: https://docs.rs/cringle/latest/cringle/struct.Builder.html
/// [`run`]: https://docs.rs/cringle/latest/cringle/fn.run.html
#[macro_export]
macro_rules! main {
    (fn main() $(-> $result:ty)? $body:block) => {
        $crate::main!($crate::__private::Builder::new(), fn main() $(-> $result)? $body);
    };
    ($builder:expr, fn main() $(-> $result:ty)? $body:block) => {
        $crate::install!();

        fn main() -> ::std::process::ExitCode {
            fn body() $(-> $result)? $body
            $crate::__private::run($builder, body)
        }
    };
}

/// Defines the listed calls.
#[doc(hidden)]
#[macro_export]
macro_rules! __define {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            ///
            /// As libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                const POINT: Option<$crate::__private::Point> =
                    $crate::__private::point_of(stringify!($name));
                match $crate::__private::on_fiber() {
                    // SAFETY: by the contract.
                    None => $crate::__private::plain_point(POINT, || unsafe {
                        $crate::__private::next::$name($($argument),*)
                    }),
                    // SAFETY: by the contract.
                    Some(on) => unsafe {
                        $crate::__private::at_point(
                            POINT,
                            on,
                            |on| $crate::__private::hooks::$name(on, $($argument),*),
                            || $crate::__private::next::$name($($argument),*),
                        )
                    },
                }
            }
        )*
    };
}

/// Defines the listed calls, which concern fibers whoever makes them.
#[doc(hidden)]
#[macro_export]
macro_rules! __define_for_all {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            ///
            /// As libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                const POINT: Option<$crate::__private::Point> =
                    $crate::__private::point_of(stringify!($name));
                let on = $crate::__private::on_fiber();
                // SAFETY: by the contract.
                unsafe {
                    match on {
                        Some(on) => $crate::__private::at_point(
                            POINT,
                            on,
                            |on| $crate::__private::for_all::$name(Some(on), $($argument),*),
                            || $crate::__private::for_all::$name(None, $($argument),*),
                        ),
                        None => $crate::__private::plain_point(POINT, || {
                            $crate::__private::for_all::$name(None, $($argument),*)
                        }),
                    }
                }
            }
        )*
    };
}
