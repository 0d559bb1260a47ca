//! What libc asks the kernel about a thread: of a thread that is a fiber the answers are those that
//! a thread of the system gets, except where the fiber would change its worker.

use super::common::{kernel_thread, on_each_runtime, on_workers};
use libc::*;
use std::ffi::c_void;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

unsafe extern "C" {
    fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int;
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_attr_getdetachstate(attributes: *const pthread_attr_t, state: *mut c_int) -> c_int;
}
unsafe extern "C-unwind" {
    fn pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int;
    fn pthread_timedjoin_np(
        thread: pthread_t,
        value: *mut *mut c_void,
        time: *const timespec,
    ) -> c_int;
}

/// What a call has answered: its name, its result, and what it has written.
type Answer = (&'static str, i64, i64);

fn own() -> pthread_t {
    // SAFETY: the call has no contract.
    unsafe { pthread_self() }
}

/// −1 with `errno`, as one number.
fn with_errno(result: c_int) -> i64 {
    // SAFETY: the call has no contract.
    if result == -1 { -i64::from(unsafe { *__errno_location() }) } else { result.into() }
}

fn priority(sched_priority: c_int) -> sched_param {
    sched_param { sched_priority }
}

fn policies() -> Vec<Answer> {
    let (mut policy, mut current) = (-1, priority(-1));
    // SAFETY: the memory is borrowed for each call; the handle is the caller's.
    unsafe {
        let got = pthread_getschedparam(own(), &mut policy, &mut current);
        let set = |policy, parameters| pthread_setschedparam(own(), policy, parameters).into();
        vec![
            ("getschedparam", got.into(), policy.into()),
            ("getschedparam, priority", 0, current.sched_priority.into()),
            ("setschedparam, in force", set(policy, &current), 0),
            ("setschedparam, no such policy", set(99, &current), 0),
            ("setschedparam, no policy", set(-1, &current), 0),
            ("setschedparam, no such priority", set(SCHED_OTHER, &priority(1)), 0),
            ("setschedparam, a deadline", set(SCHED_DEADLINE, &priority(0)), 0),
            ("setschedparam, null", set(policy, null()), 0),
            ("setschedprio", pthread_setschedprio(own(), current.sched_priority).into(), 0),
            ("setschedprio, no such", pthread_setschedprio(own(), 100).into(), 0),
        ]
    }
}

/// The number of cores, and the set.
fn cores() -> (c_int, cpu_set_t) {
    // SAFETY: all zeros are a set, which is borrowed for the call.
    unsafe {
        let mut set: cpu_set_t = zeroed();
        assert_eq!(pthread_getaffinity_np(own(), size_of::<cpu_set_t>(), &mut set), 0);
        (CPU_COUNT(&set), set)
    }
}

fn affinities() -> Vec<Answer> {
    let bytes = size_of::<cpu_set_t>();
    let (count, mut current) = cores();
    // SAFETY: the sets are borrowed for each call; the handle is the caller's.
    unsafe {
        let mut larger = [u8::MAX; 4096];
        let get = |bytes, set: *mut c_void| pthread_getaffinity_np(own(), bytes, set.cast()).into();
        let set = |set: &cpu_set_t| pthread_setaffinity_np(own(), bytes, set).into();
        let empty: cpu_set_t = zeroed();
        let mut absent = empty;
        CPU_SET(1023, &mut absent);
        let small = (&raw mut current).cast();
        vec![
            ("getaffinity", 0, count.into()),
            ("getaffinity, no bytes", get(0, small), 0),
            ("getaffinity, odd bytes", get(13, small), 0),
            ("getaffinity, many bytes", get(4096, larger.as_mut_ptr().cast()), larger[4095].into()),
            ("setaffinity, in force", set(&cores().1), 0),
            ("setaffinity, none", set(&empty), 0),
            ("setaffinity, absent", set(&absent), 0),
            ("setaffinity, no bytes", pthread_setaffinity_np(own(), 0, &absent).into(), 0),
        ]
    }
}

fn clocks() -> Vec<Answer> {
    let (mut clock, mut time) = (0, timespec { tv_sec: -1, tv_nsec: 0 });
    let short = timespec { tv_sec: 0, tv_nsec: 1 };
    let invalid = timespec { tv_sec: 0, tv_nsec: -1 };
    // SAFETY: the memory is borrowed for each call; the handle is the caller's.
    unsafe {
        let sleep = |clock, time| clock_nanosleep(clock, 0, time, null_mut()).into();
        let got = pthread_getcpuclockid(own(), &mut clock);
        let read = clock_gettime(clock, &mut time);
        vec![
            ("getcpuclockid", got.into(), 0),
            ("its time", read.into(), time.tv_sec.min(0)),
            ("clock_nanosleep of it", sleep(clock, &short), 0),
            ("clock_nanosleep of the thread", sleep(CLOCK_THREAD_CPUTIME_ID, &short), 0),
            ("clock_nanosleep, no such clock", sleep(99, &short), 0),
            ("clock_nanosleep, no such time", sleep(CLOCK_MONOTONIC, &invalid), 0),
        ]
    }
}

/// Of the last signal: its value, and the kernel's number of the thread that has received it.
static VALUE: AtomicUsize = AtomicUsize::new(0);
static RECEIVER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn receive(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel provides the information.
    let info = unsafe { &*info };
    let is_queued = info.si_code == SI_QUEUE;
    // SAFETY: a queued signal has a value.
    let value = if is_queued { unsafe { info.si_value() }.sival_ptr.addr() } else { 1 };
    VALUE.store(value, Ordering::SeqCst);
    RECEIVER.store(kernel_thread() as usize, Ordering::SeqCst);
}

fn signals() -> Vec<Answer> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores numbers.
        unsafe {
            let mut action: sigaction = zeroed();
            action.sa_sigaction = receive as *const () as usize;
            action.sa_flags = SA_SIGINFO | SA_RESTART;
            assert_eq!(sigaction(SIGUSR2, &action, null_mut()), 0);
        }
    });
    let received = |result: c_int| {
        let is_own = RECEIVER.swap(0, Ordering::SeqCst) == kernel_thread() as usize;
        (i64::from(result), if is_own { VALUE.swap(0, Ordering::SeqCst) as i64 } else { -1 })
    };
    // SAFETY: the handle is the caller's.
    unsafe {
        let queue = |signal| {
            let value = sigval { sival_ptr: without_provenance_mut(77) };
            pthread_sigqueue(own(), signal, value)
        };
        let kill = |signal| pthread_kill(own(), signal);
        let (killed, value) = received(kill(SIGUSR2));
        let mut answers = vec![("kill", killed, value)];
        let (queued, value) = received(queue(SIGUSR2));
        answers.push(("sigqueue", queued, value));
        let (raised, value) = received(raise(SIGUSR2));
        answers.push(("raise", raised, value));
        answers.extend([0, -1, 32, 33, 65].map(|signal| ("kill, invalid", kill(signal).into(), 0)));
        answers.extend(
            [0, -1, 32, 33, 65].map(|signal| ("sigqueue, invalid", queue(signal).into(), 0)),
        );
        answers
    }
}

fn signal_stacks() -> Vec<Answer> {
    let mut current = MaybeUninit::<stack_t>::uninit();
    // SAFETY: the first call fills the structure; a stack that is refused is not used.
    unsafe {
        let query = with_errno(sigaltstack(null(), current.as_mut_ptr()));
        let current = current.assume_init();
        let set = |stack: &stack_t| with_errno(sigaltstack(stack, null_mut()));
        let small = stack_t { ss_size: MINSIGSTKSZ - 1, ..current };
        vec![
            ("sigaltstack", query, current.ss_flags.into()),
            ("sigaltstack, in force", set(&current), 0),
            ("sigaltstack, too small", set(&small), 0),
            ("sigaltstack, no such flags", set(&stack_t { ss_flags: 16, ..current }), 0),
        ]
    }
}

fn attributes() -> Vec<Answer> {
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the first call initialises the attributes; the sets are borrowed for each call.
    unsafe {
        let got = pthread_getattr_np(own(), attributes.as_mut_ptr());
        let (mut detached, mut set): (_, cpu_set_t) = (-1, zeroed());
        let read = pthread_attr_getdetachstate(attributes.as_ptr(), &mut detached);
        let bytes = size_of::<cpu_set_t>();
        let with_cores = pthread_attr_getaffinity_np(attributes.as_ptr(), bytes, &mut set);
        pthread_attr_destroy(attributes.as_mut_ptr());
        vec![
            ("getattr", got.into(), 0),
            ("detach state", read.into(), detached.into()),
            ("cores", with_cores.into(), CPU_COUNT(&set).into()),
        ]
    }
}

fn names_and_joins() -> Vec<Answer> {
    let past = timespec { tv_sec: 1, tv_nsec: 0 };
    let mut name = [0 as c_char; 16];
    let (mut state, mut kind) = (-1, -1);
    // SAFETY: the memory is borrowed for each call; the handle is the caller's.
    unsafe {
        let set = |name: &std::ffi::CStr| pthread_setname_np(own(), name.as_ptr()).into();
        vec![
            ("setname", set(c"fifteen letters"), 0),
            ("setname, too long", set(c"sixteen letters!"), 0),
            ("getname", pthread_getname_np(own(), name.as_mut_ptr(), 16).into(), name[14].into()),
            ("getname, too short", pthread_getname_np(own(), name.as_mut_ptr(), 15).into(), 0),
            ("tryjoin", pthread_tryjoin_np(own(), null_mut()).into(), 0),
            ("join", pthread_join(own(), null_mut()).into(), 0),
            ("timedjoin", pthread_timedjoin_np(own(), null_mut(), &past).into(), 0),
            ("setcancelstate", pthread_setcancelstate(0, &mut state).into(), state.into()),
            ("setcanceltype", pthread_setcanceltype(0, &mut kind).into(), kind.into()),
            ("setcancelstate, invalid", pthread_setcancelstate(7, null_mut()).into(), 0),
            ("setcanceltype, invalid", pthread_setcanceltype(7, null_mut()).into(), 0),
            ("sigmask, invalid", pthread_sigmask(99, &zeroed(), null_mut()).into(), 0),
        ]
    }
}

/// The answers to a thread that has just begun.
fn answers() -> Vec<Answer> {
    let parts = [
        policies(),
        affinities(),
        clocks(),
        signals(),
        signal_stacks(),
        attributes(),
        names_and_joins(),
    ];
    parts.concat()
}

/// The handler's numbers are shared, so both parts are one test.
#[test]
fn fiber_gets_the_answers_of_a_thread() {
    let of_a_thread = thread::spawn(answers).join().unwrap();
    on_each_runtime(|| {
        let of_a_fiber = thread::spawn(answers).join().unwrap();
        let differ = |(a, b): &(&Answer, &Answer)| a != b;
        let differences: Vec<_> = of_a_fiber.iter().zip(&of_a_thread).filter(differ).collect();
        assert!(differences.is_empty(), "of a fiber, and of a thread: {differences:?}");
    });
}

#[test]
fn only_the_worker_has_what_the_kernel_schedules() {
    on_workers(2, || {
        let before = (kernel_policy(), cores().0);
        let results = thread::spawn(|| {
            let (count, current) = cores();
            // SAFETY: the memory is borrowed for each call; the handle is the caller's.
            let batch = unsafe { pthread_setschedparam(own(), SCHED_BATCH, &priority(0)) };
            let (mut rest, mut all) = (current, current);
            // SAFETY: the sets are borrowed for each call.
            let pinned = unsafe {
                let set = |set| pthread_setaffinity_np(own(), size_of::<cpu_set_t>(), set);
                let first = (0..1024).find(|&core| CPU_ISSET(core, &current)).unwrap();
                CPU_CLR(first, &mut rest);
                (0..1024).for_each(|core| CPU_SET(core, &mut all));
                [set(&rest), set(&all)]
            };
            // Of one core, the rest is an empty set.
            (batch, pinned, if count > 1 { ENOTSUP } else { EINVAL }, kernel_policy())
        });
        let (batch, pinned, refusal, policy) = results.join().unwrap();
        assert_eq!((batch, pinned), (ENOTSUP, [refusal, 0]));
        assert_eq!((policy, cores().0), before);
    });
}

fn kernel_policy() -> c_int {
    // SAFETY: the call has no contract.
    unsafe { sched_getscheduler(0) }
}
