//! The resolver. libc's own calls within it are not interposed, so all of it runs on a thread.
//!
//! It may take long, so a cancel ends the wait for `getaddrinfo`, which has its result in memory of
//! its own. The other calls write into the caller's memory, and are waited for.

use super::call::OnFiber;
use super::next;
use libc::{EAI_SYSTEM, addrinfo, hostent, sockaddr, socklen_t};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr::{from_ref, null, null_mut};

/// # Safety
///
/// As libc's.
pub unsafe fn getaddrinfo(
    on: OnFiber,
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: by the contract.
    let query = unsafe { Query::copy(node, service, hints) };
    match on.on_thread_detached(move || query.resolve()) {
        Ok((0, addresses)) => {
            // SAFETY: by the contract. The caller has to free the list.
            unsafe { result.write(addresses.into_raw()) };
            0
        }
        Ok((code, _)) => code,
        // `errno` says why.
        Err(_) => EAI_SYSTEM,
    }
}

/// The arguments of `getaddrinfo`.
struct Query {
    node: Option<CString>,
    service: Option<CString>,
    /// `ai_flags`, `ai_family`, `ai_socktype` and `ai_protocol`. The rest of a hint is 0.
    hints: Option<[c_int; 4]>,
}

impl Query {
    /// # Safety
    ///
    /// Each pointer is null, or one to a C string or a hint.
    unsafe fn copy(node: *const c_char, service: *const c_char, hints: *const addrinfo) -> Query {
        // SAFETY: by the contract.
        let [node, service] = [node, service]
            .map(|text| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned()));
        // SAFETY: by the contract.
        let hints = unsafe { hints.as_ref() };
        let hints =
            hints.map(|hint| [hint.ai_flags, hint.ai_family, hint.ai_socktype, hint.ai_protocol]);
        Query { node, service, hints }
    }

    fn resolve(self) -> (c_int, Addresses) {
        let text = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        let hints = self.hints.map(|[ai_flags, ai_family, ai_socktype, ai_protocol]| {
            // SAFETY: all-zero is a valid value.
            addrinfo { ai_flags, ai_family, ai_socktype, ai_protocol, ..unsafe { zeroed() } }
        });
        let hints = hints.as_ref().map_or(null(), from_ref);
        let mut addresses = Addresses(null_mut());
        let (node, service) = (text(&self.node), text(&self.service));
        // SAFETY: by the contract of the call: the strings and the hint live for it.
        let code = unsafe { next::getaddrinfo(node, service, hints, &raw mut addresses.0) };
        (code, addresses)
    }
}

/// A list that `getaddrinfo` has made, or null.
struct Addresses(*mut addrinfo);

// SAFETY: by the contract of `getaddrinfo`, the list belongs to its receiver, on any thread.
unsafe impl Send for Addresses {}

impl Addresses {
    fn into_raw(self) -> *mut addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: by the contract of `freeaddrinfo`: the list was not freed.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

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
