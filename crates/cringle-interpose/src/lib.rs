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

/// What [`install!`] expands to.
#[doc(hidden)]
pub mod __private {
    pub use cringle::__interposed_calls as interposed_calls;
    pub use cringle::interpose::{hooks, install, next, on_fiber};
    pub use libc;
}

/// Defines libc's blocking calls in this program: to be called once, in `main.rs`, outside of any
/// function.
#[macro_export]
macro_rules! install {
    () => {
        const _: () = {
            $crate::__private::interposed_calls!($crate::__define);

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
        #[allow(unused_imports)]
        use $crate::__private::libc::*;

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
