//! pthread's and C11's functions for threads that are fibers, as C code calls them.

use super::common::{kernel_thread, on_each_runtime, on_workers};
use libc::*;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

unsafe extern "C-unwind" {
    fn pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        start: Start,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_exit(value: *mut c_void) -> !;
    fn pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int;
    fn pthread_timedjoin_np(
        thread: pthread_t,
        value: *mut *mut c_void,
        time: *const timespec,
    ) -> c_int;
    fn pthread_clockjoin_np(
        thread: pthread_t,
        value: *mut *mut c_void,
        clock: clockid_t,
        time: *const timespec,
    ) -> c_int;
    fn thrd_create(
        thread: *mut pthread_t,
        start: extern "C-unwind" fn(*mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn thrd_join(thread: pthread_t, value: *mut c_int) -> c_int;
    fn thrd_detach(thread: pthread_t) -> c_int;
    fn thrd_exit(value: c_int) -> !;
}

/// The name of the calling thread, as pthread has it.
pub(crate) fn name_of_self() -> String {
    let mut name = [0 as c_char; 16];
    // SAFETY: the name has room.
    unsafe {
        assert_eq!(pthread_getname_np(pthread_self(), name.as_mut_ptr(), name.len()), 0);
        CStr::from_ptr(name.as_ptr()).to_str().unwrap().to_owned()
    }
}

fn create(attributes: *const pthread_attr_t, start: Start, argument: usize) -> pthread_t {
    let mut thread = 0;
    // SAFETY: the start routines of this test use their argument as a number.
    let code =
        unsafe { pthread_create(&mut thread, attributes, start, without_provenance_mut(argument)) };
    assert_eq!(code, 0);
    thread
}

fn join(thread: pthread_t) -> Result<usize, c_int> {
    let mut value = null_mut();
    // SAFETY: the handle is that of a thread that was created.
    match unsafe { pthread_join(thread, &mut value) } {
        0 => Ok(value.addr()),
        code => Err(code),
    }
}

/// Waits until the word is not 0.
extern "C-unwind" fn wait(_: *mut c_void) -> *mut c_void {
    while GATE.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    without_provenance_mut(9)
}
static GATE: AtomicI32 = AtomicI32::new(0);

extern "C-unwind" fn add_one(argument: *mut c_void) -> *mut c_void {
    without_provenance_mut(argument.addr() + 1)
}

extern "C-unwind" fn own_handle(_: *mut c_void) -> *mut c_void {
    // SAFETY: the call has no contract.
    without_provenance_mut(unsafe { pthread_self() } as usize)
}

extern "C-unwind" fn number(_: *mut c_void) -> *mut c_void {
    without_provenance_mut(kernel_thread() as usize)
}

#[test]
fn values_and_handles_are_those_of_the_thread() {
    on_each_runtime(|| {
        let threads: Vec<_> = (0..50).map(|n| create(null(), add_one, n)).collect();
        for (n, thread) in threads.into_iter().enumerate() {
            assert_eq!(join(thread), Ok(n + 1));
        }
        let thread = create(null(), own_handle, 0);
        assert_eq!(join(thread), Ok(thread as usize));
    });
}

/// One test, because the gate is shared.
#[test]
fn joins_have_their_errors() {
    on_workers(1, || {
        GATE.store(0, Ordering::SeqCst);
        let thread = create(null(), wait, 0);
        let past = timespec { tv_sec: 1, tv_nsec: 0 };
        // SAFETY: the handles are those of threads, the times are valid.
        unsafe {
            assert_eq!(pthread_tryjoin_np(thread, null_mut()), EBUSY);
            assert_eq!(pthread_timedjoin_np(thread, null_mut(), &past), ETIMEDOUT);
            assert_eq!(pthread_clockjoin_np(thread, null_mut(), CLOCK_MONOTONIC, &past), ETIMEDOUT);
            assert_eq!(pthread_join(pthread_self(), null_mut()), EDEADLK);
            assert_eq!(pthread_tryjoin_np(pthread_self(), null_mut()), EBUSY);
            let kill = |signal| pthread_kill(thread, signal);
            assert_eq!([0, SIGUSR1, 65, -1].map(kill), [0, ENOTSUP, EINVAL, EINVAL]);
            let value = sigval { sival_ptr: null_mut() };
            let queue = |signal| pthread_sigqueue(thread, signal, value);
            assert_eq!([0, SIGUSR1, 65, 32].map(queue), [0, ENOTSUP, EINVAL, EINVAL]);
            let mut scheduled = (-1, sched_param { sched_priority: -1 });
            let code = pthread_getschedparam(thread, &mut scheduled.0, &mut scheduled.1);
            assert_eq!((code, scheduled.0), (0, sched_getscheduler(0)));
            assert_eq!(pthread_setschedparam(thread, scheduled.0, &scheduled.1), 0);
        }
        let other = cringle::fiber::spawn(move || join(thread));
        while !other.is_finished() && GATE.load(Ordering::SeqCst) == 0 {
            cringle::fiber::yield_now();
            // SAFETY: the handle is that of a thread.
            if unsafe { pthread_timedjoin_np(thread, null_mut(), &past) } == EINVAL {
                GATE.store(1, Ordering::SeqCst);
            }
        }
        assert_eq!(other.join().unwrap(), Ok(9));
        let thread = create(null(), wait, 0);
        while join_now(thread) == Err(EBUSY) {
            std::thread::yield_now();
        }
    });
}

fn join_now(thread: pthread_t) -> Result<(), c_int> {
    // SAFETY: the handle is that of a thread.
    match unsafe { pthread_tryjoin_np(thread, null_mut()) } {
        0 => Ok(()),
        code => Err(code),
    }
}

/// The fibers of this runtime, of which one calls this.
fn alive() -> usize {
    cringle::runtime::dump().expect("within run").fibers.len()
}

static DETACHED: AtomicUsize = AtomicUsize::new(0);

extern "C-unwind" fn detach_self(_: *mut c_void) -> *mut c_void {
    // SAFETY: the handle is the caller's.
    unsafe {
        assert_eq!(pthread_detach(pthread_self()), 0);
        assert_eq!(pthread_detach(pthread_self()), EINVAL);
    }
    DETACHED.fetch_add(1, Ordering::SeqCst);
    null_mut()
}

extern "C-unwind" fn is_detached(_: *mut c_void) -> *mut c_void {
    // SAFETY: the handle is the caller's.
    assert_eq!(unsafe { pthread_detach(pthread_self()) }, EINVAL);
    DETACHED.fetch_add(1, Ordering::SeqCst);
    null_mut()
}

#[test]
fn detached_threads_end_by_themselves() {
    on_each_runtime(|| {
        create(null(), detach_self, 0);
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised by the first call.
        unsafe {
            pthread_attr_init(attributes.as_mut_ptr());
            let state = PTHREAD_CREATE_DETACHED;
            pthread_attr_setdetachstate(attributes.as_mut_ptr(), state);
        }
        create(attributes.as_ptr(), is_detached, 0);
        let ended = create(null(), add_one, 0);
        while alive() > 1 {
            std::thread::yield_now();
        }
        // SAFETY: the handle is that of a thread.
        assert_eq!(unsafe { pthread_detach(ended) }, 0);
        // A fiber that is no thread can be neither detached nor joined.
        let fiber = cringle::fiber::spawn(|| {
            // SAFETY: the handle is the caller's.
            unsafe { pthread_detach(pthread_self()) }
        });
        assert_eq!(fiber.join().unwrap(), EINVAL);
    });
    assert_eq!(DETACHED.load(Ordering::SeqCst), 8);
}

extern "C-unwind" fn exit_within(argument: *mut c_void) -> *mut c_void {
    let _guard = Guard;
    // SAFETY: the frames have only destructors that may run.
    unsafe { pthread_exit(argument) }
}

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        UNWOUND.fetch_add(1, Ordering::SeqCst);
    }
}
static UNWOUND: AtomicUsize = AtomicUsize::new(0);

extern "C-unwind" fn return_int(argument: *mut c_void) -> c_int {
    argument.addr() as c_int - 10
}

extern "C-unwind" fn exit_with_int(_: *mut c_void) -> c_int {
    // SAFETY: the frames have no destructors.
    unsafe { thrd_exit(-3) }
}

#[test]
fn thread_ends_by_pthread_exit() {
    on_each_runtime(|| assert_eq!(join(create(null(), exit_within, 12)), Ok(12)));
    assert_eq!(UNWOUND.load(Ordering::SeqCst), 4);
}

#[test]
fn threads_of_c11_return_numbers() {
    on_each_runtime(|| {
        // SAFETY: the handles are those of threads that were created.
        unsafe {
            let (mut thread, mut value) = (0, 0);
            assert_eq!(thrd_create(&mut thread, return_int, without_provenance_mut(3)), 0);
            assert_eq!((thrd_join(thread, &mut value), value), (0, -7));
            assert_eq!(thrd_create(&mut thread, exit_with_int, null_mut()), 0);
            assert_eq!((thrd_join(thread, &mut value), value), (0, -3));
            assert_eq!(thrd_create(&mut thread, return_int, null_mut()), 0);
            assert_eq!(thrd_detach(thread), 0);
        }
    });
}

/// Returns whether the attributes of the calling thread have its stack.
extern "C-unwind" fn knows_its_stack(least: *mut c_void) -> *mut c_void {
    let local = 0u8;
    let mut attributes = MaybeUninit::uninit();
    let (mut bytes, mut lowest) = (0, null_mut());
    // SAFETY: the attributes are initialised by the first call.
    unsafe {
        assert_eq!(pthread_getattr_np(pthread_self(), attributes.as_mut_ptr()), 0);
        pthread_attr_getstack(attributes.as_ptr(), &mut lowest, &mut bytes);
        pthread_attr_destroy(attributes.as_mut_ptr());
    }
    let stack = lowest.addr()..lowest.addr() + bytes;
    // The lowest byte can be written.
    // SAFETY: it is the stack's, and no frame is there.
    unsafe { lowest.cast::<u8>().write_volatile(1) };
    let is_right = stack.contains(&(&raw const local).addr()) && bytes >= least.addr();
    without_provenance_mut(usize::from(is_right))
}

unsafe extern "C" {
    fn pthread_attr_getstack(
        attributes: *const pthread_attr_t,
        address: *mut *mut c_void,
        bytes: *mut size_t,
    ) -> c_int;
    fn pthread_attr_setstack(
        attributes: *mut pthread_attr_t,
        address: *mut c_void,
        bytes: size_t,
    ) -> c_int;
}

#[test]
fn stack_of_a_thread_is_known_to_libc() {
    on_each_runtime(|| {
        assert_eq!(join(create(null(), knows_its_stack, 8 << 20)), Ok(1));
        // The closure of `run` runs on a stack of its own, too.
        assert_eq!(knows_its_stack(null_mut()).addr(), 1);
    });
}

#[test]
fn thread_that_only_the_kernel_can_have_is_one_of_the_system() {
    on_workers(1, || {
        let mut memory = vec![0u8; 256 << 10];
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised by the first call; the memory outlives the thread.
        unsafe {
            pthread_attr_init(attributes.as_mut_ptr());
            pthread_attr_setstack(
                attributes.as_mut_ptr(),
                memory.as_mut_ptr().cast(),
                memory.len(),
            );
        }
        let thread = create(attributes.as_ptr(), number, 0);
        assert_ne!(join(thread), Ok(kernel_thread() as usize));
        assert_eq!(join(create(null(), number, 0)), Ok(kernel_thread() as usize));
    });
}

/// Sets a stack for signals, as C code does in a thread, and removes it. Neither has an effect, so
/// neither succeeds; a stack that was read can be set.
extern "C-unwind" fn set_signal_stack(_: *mut c_void) -> *mut c_void {
    let mut memory = vec![0u8; 64 << 10];
    let new = stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    let none = stack_t { ss_sp: null_mut(), ss_flags: SS_DISABLE, ss_size: 0 };
    // SAFETY: the memory stays until the stack is removed.
    unsafe {
        for refused in [&new, &none] {
            let errno = (sigaltstack(refused, null_mut()), *__errno_location());
            assert_eq!(errno, (-1, ENOTSUP));
        }
        let mut current = MaybeUninit::<stack_t>::uninit();
        assert_eq!(sigaltstack(null(), current.as_mut_ptr()), 0);
        assert_eq!(sigaltstack(current.as_ptr(), current.as_mut_ptr()), 0);
    }
    null_mut()
}

#[test]
fn workers_signal_stack_stays() {
    let current = || {
        let mut stack = MaybeUninit::<stack_t>::uninit();
        // SAFETY: the call fills the structure.
        unsafe {
            assert_eq!(sigaltstack(null(), stack.as_mut_ptr()), 0);
            let stack = stack.assume_init();
            (stack.ss_sp.addr(), stack.ss_flags, stack.ss_size)
        }
    };
    on_workers(1, || {
        let before = current();
        assert_eq!(before.1, 0);
        join(create(null(), set_signal_stack, 0)).unwrap();
        std::thread::spawn(|| ()).join().unwrap();
        assert_eq!(current(), before);
    });
}

extern "C-unwind" fn name_self(_: *mut c_void) -> *mut c_void {
    // SAFETY: the names are C strings.
    unsafe {
        assert_eq!(pthread_setname_np(pthread_self(), c"longer than a name".as_ptr()), ERANGE);
        assert_eq!(prctl(PR_SET_NAME, c"by prctl".as_ptr()), 0);
        assert_eq!(name_of_self(), "by prctl");
        let mut name = [0 as c_char; 16];
        assert_eq!(prctl(PR_GET_NAME, name.as_mut_ptr()), 0);
        assert_eq!(CStr::from_ptr(name.as_ptr()), c"by prctl");
    }
    null_mut()
}

#[test]
fn threads_are_named_by_themselves_and_by_others() {
    on_workers(1, || {
        let before = name_of_self();
        let thread = create(null(), name_self, 0);
        // SAFETY: the names are C strings, the handle is that of a thread.
        unsafe {
            assert_eq!(pthread_setname_np(thread, c"by another".as_ptr()), 0);
            let mut name = [0 as c_char; 16];
            assert_eq!(pthread_getname_np(thread, name.as_mut_ptr(), 16), 0);
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"by another");
        }
        join(thread).unwrap();
        assert_eq!(name_of_self(), before);
        // Any fiber has a name of its own.
        cringle::fiber::spawn(|| name_self(null_mut()).addr()).join().unwrap();
        assert_eq!(name_of_self(), before);
    });
}
