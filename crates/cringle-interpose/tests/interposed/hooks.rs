//! libc's functions that a program may interpose, defined here. Each notes its call and calls the
//! next definition.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The calls on fibers, with their backtraces.
static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static IS_NOTING: AtomicBool = AtomicBool::new(false);
/// All calls of the interposed functions, by any thread.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread is within [`own`], or notes a call.
    static IGNORED: Cell<bool> = const { Cell::new(false) };
}

/// Calls code of the test that calls libc itself. It must not suspend the fiber.
pub(crate) fn own<T>(f: impl FnOnce() -> T) -> T {
    let before = IGNORED.replace(true);
    let value = f();
    IGNORED.set(before);
    value
}

/// Notes the calls on fibers from now on.
pub(crate) fn begin() {
    drop(take());
    IS_NOTING.store(true, Ordering::SeqCst);
}

/// Returns the calls since the last time, each with its backtrace.
pub(crate) fn take() -> Vec<String> {
    own(|| std::mem::take(&mut *CALLS.lock().unwrap()))
}

/// Returns the number of calls of the interposed functions so far.
pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

fn note(name: &str) {
    if !IS_NOTING.load(Ordering::Relaxed) || IGNORED.get() {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    if cringle_interpose::__private::on_fiber().is_some() {
        own(|| {
            let backtrace = Backtrace::force_capture().to_string();
            if !is_by_unwinder(name, &backtrace) {
                CALLS.lock().unwrap().push(format!("{name}, called on a fiber:\n{backtrace}"));
            }
        });
    }
}

/// Whether libgcc's unwinder makes the call: it initialises itself by `pthread_once`, for any code
/// that unwinds.
fn is_by_unwinder(name: &str, backtrace: &str) -> bool {
    let mut callers = backtrace.lines().filter(|line| !line.trim_start().starts_with("at "));
    name == "pthread_once"
        && callers.any(|frame| frame.ends_with(": pthread_once"))
        && callers.take(2).any(|frame| frame.contains("_Unwind_"))
}

fn next(name: &'static std::ffi::CStr, address: &AtomicUsize) -> usize {
    match address.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: by the contract of `dlsym`: the name is a C string.
            let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            if found == 0 {
                std::process::abort();
            }
            address.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// Defines functions of libc. All of their arguments are integers or pointers, at most seven
/// (`syscall`), and are passed on as they are, however many there are.
macro_rules! interpose {
    ($($name:ident)*) => {$(
        /// # Safety
        ///
        /// As libc's function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize,
        ) -> usize {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            type Call =
                unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> usize;
            note(stringify!($name));
            let name = const {
                let name = concat!(stringify!($name), "\0").as_bytes();
                match std::ffi::CStr::from_bytes_with_nul(name) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                }
            };
            // SAFETY: by the contract of the interposed function, whose arguments are passed on in
            // the same registers.
            unsafe { std::mem::transmute::<usize, Call>(next(name, &NEXT))(a, b, c, d, e, f, g) }
        }
    )*};
}

interpose! {
    read write readv writev pread pwrite pread64 pwrite64 preadv pwritev preadv64 pwritev64
    preadv2 pwritev2 preadv64v2 pwritev64v2 __read_chk __pread_chk __pread64_chk
    recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg __recv_chk __recvfrom_chk
    sendfile sendfile64 splice connect accept accept4
    poll ppoll __poll_chk __ppoll_chk select pselect epoll_wait epoll_pwait epoll_pwait2
    nanosleep clock_nanosleep usleep sleep sched_yield sigwait sigtimedwait sigwaitinfo
    open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2
    close fsync fdatasync flock fcntl fcntl64 lockf lockf64
    wait waitpid wait3 wait4 waitid posix_spawn posix_spawnp
    getaddrinfo getnameinfo gethostbyname_r gethostbyname2_r gethostbyaddr_r
    syscall
    pthread_join pthread_timedjoin_np pthread_clockjoin_np
    pthread_mutex_lock pthread_mutex_trylock pthread_mutex_timedlock pthread_mutex_clocklock
    pthread_mutex_unlock
    pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait pthread_cond_signal
    pthread_cond_broadcast
    pthread_rwlock_rdlock pthread_rwlock_tryrdlock pthread_rwlock_timedrdlock
    pthread_rwlock_wrlock pthread_rwlock_trywrlock pthread_rwlock_timedwrlock
    pthread_rwlock_unlock
    pthread_barrier_wait pthread_once call_once
    sem_wait sem_trywait sem_timedwait sem_clockwait sem_post
    mtx_lock mtx_trylock mtx_timedlock mtx_unlock cnd_wait cnd_timedwait cnd_signal cnd_broadcast
    thrd_join thrd_sleep thrd_yield
}
