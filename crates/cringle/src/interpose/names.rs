//! The resolver. libc's own calls within it are not interposed, so all of it runs on a thread.

use super::call::OnFiber;
use super::next;
use libc::{addrinfo, hostent, sockaddr, socklen_t};
use std::ffi::{c_char, c_int, c_void};

/// The arguments of a call on their way to a thread, which makes the call while the caller waits.
struct Arguments<T>(T);

// SAFETY: I1. The caller's memory is lent until the call returns, as to libc.
unsafe impl<T> Send for Arguments<T> {}

macro_rules! on_a_thread {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> c_int;)*) => {
        $(
            /// # Safety
            ///
            /// As libc's.
            #[allow(clippy::too_many_arguments, reason = "they are libc's")]
            pub unsafe fn $name(on: OnFiber, $($argument: $type),*) -> c_int {
                let arguments = Arguments(($($argument,)*));
                on.on_thread(move || {
                    let Arguments(($($argument,)*)) = { arguments };
                    // SAFETY: by the contract.
                    unsafe { next::$name($($argument),*) }
                })
            }
        )*
    };
}

on_a_thread! {
    fn getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const addrinfo,
        result: *mut *mut addrinfo,
    ) -> c_int;
    fn getnameinfo(
        addr: *const sockaddr, addr_len: socklen_t, host: *mut c_char, host_len: socklen_t,
        service: *mut c_char, service_len: socklen_t, flags: c_int,
    ) -> c_int;
    fn gethostbyname_r(
        name: *const c_char, entry: *mut hostent, buf: *mut c_char, len: usize,
        result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int;
    fn gethostbyname2_r(
        name: *const c_char, family: c_int, entry: *mut hostent, buf: *mut c_char, len: usize,
        result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int;
    fn gethostbyaddr_r(
        addr: *const c_void, addr_len: socklen_t, family: c_int, entry: *mut hostent,
        buf: *mut c_char, len: usize, result: *mut *mut hostent, error: *mut c_int,
    ) -> c_int;
}
