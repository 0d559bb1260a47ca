//! A block that is used again shows nothing of the fiber before: libc's own state of a thread.

use super::on_workers;
use cringle::fiber;
use std::ffi::{c_char, c_int};

unsafe extern "C" {
    fn __ctype_b_loc() -> *mut *const u16;
    fn __h_errno_location() -> *mut c_int;
    fn __res_state() -> *mut c_int;
    fn dlerror() -> *mut c_char;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// What a thread sees of its own state in libc.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    errno: c_int,
    lookup_error: c_int,
    locale: usize,
    loader_error: bool,
    resolver_wait: c_int,
    resolver_servers: c_int,
    cancel: [c_int; 2],
}

/// Returns what the caller sees, and changes all of it.
fn look_and_change() -> Seen {
    let mut cancel = [-1; 2];
    // SAFETY: calls of libc, and accesses to thread-locals of its own. The locale is never freed.
    unsafe {
        let resolver = __res_state();
        let seen = Seen {
            errno: *libc::__errno_location(),
            lookup_error: *__h_errno_location(),
            locale: libc::uselocale(std::ptr::null_mut()) as usize,
            loader_error: !dlerror().is_null(),
            resolver_wait: resolver.read(),
            resolver_servers: resolver.add(4).read(),
            cancel: {
                pthread_setcancelstate(1, &mut cancel[0]);
                pthread_setcanceltype(1, &mut cancel[1]);
                cancel
            },
        };
        libc::uselocale(libc::newlocale(1 << libc::LC_CTYPE, c"C".as_ptr(), std::ptr::null_mut()));
        libc::dlopen(c"/nonexistent".as_ptr(), libc::RTLD_NOW);
        // It initialises the resolver.
        let mut result = std::ptr::null_mut();
        if libc::getaddrinfo(c"127.0.0.1".as_ptr(), c"1".as_ptr(), std::ptr::null(), &mut result)
            == 0
        {
            libc::freeaddrinfo(result);
        }
        resolver.write(99);
        *__h_errno_location() = 98;
        *libc::__errno_location() = 97;
        seen
    }
}

#[test]
fn libc_state_begins_anew() {
    let mut on_thread = std::thread::spawn(look_and_change).join().unwrap();
    // std's start of a thread may leave an error.
    on_thread.errno = 0;
    on_workers(1, || {
        for _ in 0..5 {
            assert_eq!(fiber::spawn(look_and_change).join().unwrap(), on_thread);
        }
    });
}

#[test]
fn a_fiber_uses_the_locale_of_its_start() {
    // SAFETY: the call has no contract.
    let table = || unsafe { *__ctype_b_loc() } as usize;
    on_workers(1, || {
        let before = fiber::spawn(table).join().unwrap();
        // SAFETY: no other code of this process uses another locale.
        let is_set = unsafe { !libc::setlocale(libc::LC_CTYPE, c"C.UTF-8".as_ptr()).is_null() };
        let after = fiber::spawn(table).join().unwrap();
        assert_eq!(after, table());
        assert_eq!(after != before, is_set);
        // SAFETY: as above.
        unsafe { libc::setlocale(libc::LC_CTYPE, c"C".as_ptr()) };
    });
}
