//! Crates that know nothing of Cringle wait only their fiber.
//!
//! ```no_run
//! cringle_interpose::install!();
//!
//! fn main() {
//!     cringle::run(|| {
//!         // std's sleep, sockets and files: only the fiber waits.
//!         std::thread::sleep(std::time::Duration::from_millis(1));
//!     });
//! }
//! ```

#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!(
    "cringle-interpose needs Linux with GNU's C library: fibers need thread-locals of their own"
);
#[cfg(target_feature = "crt-static")]
compile_error!(
    "cringle-interpose needs a dynamically linked C library: build without `crt-static`"
);

/// What [`install!`] expands to.
#[doc(hidden)]
pub mod __private {
    pub use cringle::interpose::{Routine, for_all, hooks, install, next, on_fiber};
    pub use cringle::{
        __interposed_aliases as interposed_aliases, __interposed_calls as interposed_calls,
        __interposed_for_all as interposed_for_all,
    };
    pub use libc;
}

/// Defines libc's blocking calls in this program: to be called once, in `main.rs`, outside of any
/// function.
#[macro_export]
macro_rules! install {
    () => {
        const _: () = {
            #[allow(unused_imports)]
            use $crate::__private::Routine;
            #[allow(unused_imports)]
            use $crate::__private::libc::*;

            $crate::__private::interposed_calls!($crate::__define);
            $crate::__private::interposed_for_all!($crate::__define_for_all);
            $crate::__private::interposed_aliases!($crate::__define_for_all);

            /// Before the constructors of libraries, which may call what is defined here.
            #[used]
            #[unsafe(link_section = ".preinit_array")]
            static INSTALL: extern "C" fn() = $crate::__private::install;
        };
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
                match $crate::__private::on_fiber() {
                    // SAFETY: by the contract.
                    None => unsafe { $crate::__private::next::$name($($argument),*) },
                    // SAFETY: by the contract.
                    Some(on) => unsafe { $crate::__private::hooks::$name(on, $($argument),*) },
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
                let on = $crate::__private::on_fiber();
                // SAFETY: by the contract.
                unsafe { $crate::__private::for_all::$name(on, $($argument),*) }
            }
        )*
    };
}
