//! The next definitions of the interposed calls: libc's, or those of a preloaded library or of a
//! sanitizer in between. They are looked up before `main`, never by a call: the lookup allocates,
//! and takes the loader's lock.

use libc::*;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_uint, c_void};

macro_rules! define {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// The address of each definition. `None` until it is looked up, and for a function that
        /// libc lacks.
        struct Table {
            $($name: Option<unsafe extern "C-unwind" fn($($type),*) -> $result>,)*
        }

        static TABLE: Cell = Cell(UnsafeCell::new(Table { $($name: None,)* }));

        /// Looks up all definitions.
        pub(super) fn resolve() {
            let table = TABLE.0.get();
            $(
                const { assert!(size_of::<Option<unsafe extern "C-unwind" fn()>>() == 8) };
                let name = concat!(stringify!($name), "\0");
                let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("one NUL");
                // SAFETY: the contract of `resolve`'s caller: the process has one thread. What libc
                // defines by this name has this signature.
                unsafe {
                    let address = dlsym(RTLD_NEXT, name.as_ptr());
                    (&raw mut (*table).$name).cast::<*mut c_void>().write(address);
                }
            )*
        }

        $(
            /// The next definition.
            ///
            /// # Safety
            ///
            /// As libc's.
            #[inline(always)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the contract of `install`: the table is written before a second thread
                // exists.
                match unsafe { (*TABLE.0.get()).$name } {
                    // SAFETY: by the contract.
                    Some(next) => unsafe { next($($argument),*) },
                    None => missing(stringify!($name)) as $result,
                }
            }
        )*
    };
}

struct Cell(UnsafeCell<Table>);

// SAFETY: the contract of `install`: it is written before a second thread exists, and read after.
unsafe impl Sync for Cell {}

crate::__interposed_calls!(define);

/// A call before the lookup, or of a function that libc lacks.
#[cold]
fn missing(name: &str) -> c_int {
    let _ = name;
    crate::sys::set_errno(ENOSYS);
    -1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_char;

    #[test]
    fn libc_defines_every_interposed_call() {
        let mut missing: Vec<&str> = Vec::new();
        macro_rules! check {
            ($(fn $name:ident($($ignored:tt)*) -> $result:ty;)*) => {
                $(
                    let name = concat!(stringify!($name), "\0").as_ptr().cast::<c_char>();
                    // SAFETY: the contract of `dlsym`: the name is a C string.
                    if unsafe { dlsym(RTLD_DEFAULT, name) }.is_null() {
                        missing.push(stringify!($name));
                    }
                )*
            };
        }
        crate::__interposed_calls!(check);
        assert_eq!(missing, Vec::<&str>::new());
    }
}
