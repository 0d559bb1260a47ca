//! The next definitions of the interposed calls: libc's, or a preloaded library's or a sanitizer's,
//! which keep working in this way. The program's first constructor (`.preinit_array`) looks them
//! up, never a call: the lookup allocates, and takes the loader's lock. Only a call before that
//! constructor, which no known program makes, looks them up itself.

pub use calls::*;
pub use for_all::*;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};

macro_rules! define {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        use super::{Absent, NextSlot};
        #[allow(unused_imports)]
        use crate::__private::{C11Start, Routine, Start};
        use libc::*;

        /// Looks up these definitions.
        ///
        /// # Safety
        ///
        /// The process has one thread.
        pub(super) unsafe fn resolve() {
            // SAFETY: by the contract.
            $(unsafe { slots::$name.resolve(concat!(stringify!($name), "\0")) };)*
        }

        #[allow(non_upper_case_globals)]
        mod slots {
            $(pub(super) static $name: super::NextSlot = super::NextSlot::new();)*
        }

        $(
            /// The next definition.
            ///
            /// # Safety
            ///
            /// As libc's.
            #[inline(always)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                type Definition = Option<unsafe extern "C-unwind" fn($($type),*) -> $result>;
                let slot: &NextSlot = &slots::$name;
                // SAFETY: the contract of `resolve`: what libc defines by this name has this
                // signature.
                unsafe {
                    match slot.get::<Definition>() {
                        Some(next) => next($($argument),*),
                        None => match slot.get_early::<Definition>() {
                            Some(next) => next($($argument),*),
                            None => Absent::absent(),
                        },
                    }
                }
            }
        )*
    };
}

mod calls {
    cringle_sys::__interposed_calls!(define);
}

mod for_all {
    cringle_sys::__interposed_for_all!(define);
}

/// Looks up all definitions.
///
/// # Safety
///
/// The process has one thread.
pub(super) unsafe fn resolve() {
    // SAFETY: by the contract.
    unsafe {
        calls::resolve();
        for_all::resolve();
    }
}

/// The address of a definition; null until it is looked up, and for a function that libc lacks.
struct NextSlot(UnsafeCell<*mut c_void>);

// SAFETY: the contract of `resolve`: it is written before a second thread exists, and read after.
unsafe impl Sync for NextSlot {}

impl NextSlot {
    const fn new() -> NextSlot {
        NextSlot(UnsafeCell::new(std::ptr::null_mut()))
    }

    /// # Safety
    ///
    /// The process has one thread.
    unsafe fn resolve(&self, name: &str) {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("one NUL");
        // SAFETY: by the contract.
        unsafe { *self.0.get() = libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    }

    /// Returns the definition.
    ///
    /// # Safety
    ///
    /// `F` is an optional function pointer of its type.
    #[inline(always)]
    unsafe fn get<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: by the contract, and the contract of `resolve`.
        unsafe { self.0.get().cast::<F>().read() }
    }

    /// Returns the definition for a call before `main`, after looking it up.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
    #[cold]
    unsafe fn get_early<F: Copy>(&self) -> F {
        // SAFETY: by the contract. If `resolve` has been called, the function is not in libc.
        unsafe {
            if !cringle_sys::is_interposed() {
                resolve();
            }
            self.get()
        }
    }
}

/// The result of a function that libc lacks.
trait Absent {
    fn absent() -> Self;
}

macro_rules! absent {
    ($($number:ty)*) => {
        $(
            impl Absent for $number {
                #[cold]
                fn absent() -> $number {
                    cringle_sys::set_errno(libc::ENOSYS);
                    -1i8 as $number
                }
            }
        )*
    };
}

absent!(i32 u32 i64 isize);

impl Absent for () {
    fn absent() {}
}

impl<T> Absent for *mut T {
    fn absent() -> *mut T {
        cringle_sys::set_errno(libc::ENOSYS);
        std::ptr::null_mut()
    }
}

#[cfg(test)]
mod tests {
    use libc::{RTLD_DEFAULT, dlsym};
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
        cringle_sys::__interposed_calls!(check);
        cringle_sys::__interposed_for_all!(check);
        assert_eq!(missing, Vec::<&str>::new());
    }
}
