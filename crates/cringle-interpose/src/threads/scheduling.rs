//! What the kernel schedules: policy, cores and processor time.
//!
//! A fiber has the policy, the cores and the clock of its worker, on which other fibers run, too. A
//! change would reach all of them, or would have to be made at each switch. So a fiber can read
//! them, and set them to what they are. In a program that is served, a fiber that changes its own
//! becomes a thread of the system. Any other change fails with `ENOTSUP`, or with the error that
//! libc has for arguments which no thread can have. No call succeeds without an effect.

use super::super::call::OnFiber;
use super::super::notes::Reason;
use super::super::own_threads;
use super::registry::{self, On, Progress};
use super::{is_fibers, own};
use cringle_sys::{self as sys, syscall};
use libc::{clockid_t, cpu_set_t, pid_t, pthread_t, sched_param, size_t};
use std::ffi::c_int;

/// `SCHED_RESET_ON_FORK`, which the kernel returns as a part of the policy.
const RESET_ON_FORK: c_int = 0x4000_0000;
/// The cores that the largest kernel knows, in bytes of a set.
const MOST_CORES_BYTES: usize = 1024;

/// Returns the kernel's number of the thread that runs a fiber, 0 for the calling thread.
fn worker_of(thread: pthread_t) -> Result<pid_t, c_int> {
    if thread == own() {
        return Ok(0);
    }
    let found = registry::find(thread).ok_or(libc::ESRCH)?;
    let state = found.lock();
    match state.progress {
        Progress::Running => Ok(state.worker),
        _ => Err(libc::ESRCH),
    }
}

fn has_own(thread: pthread_t) -> bool {
    registry::find(thread).is_some_and(|found| found.lock().on == On::Own)
}

/// Whether the kernel's thread of this thread is its own for good, so that its state can change. A
/// caller that means itself becomes such a thread.
fn is_own(on: Option<OnFiber>, thread: pthread_t) -> bool {
    if thread == own() {
        return own_threads::take(on, Reason::ThreadState);
    }
    has_own(thread)
}

/// The result of a system call, or its `errno`.
fn checked(result: isize) -> Result<usize, c_int> {
    usize::try_from(result).map_err(|_| -result as c_int)
}

/// Returns the policy and the priority of a kernel's thread.
fn in_force(worker: pid_t) -> Result<(c_int, sched_param), c_int> {
    // SAFETY: all zeros are a value of the structure, which is borrowed for the call.
    unsafe {
        let policy = checked(syscall!(SYS_sched_getscheduler, worker))?;
        let mut parameters: sched_param = std::mem::zeroed();
        checked(syscall!(SYS_sched_getparam, worker, &raw mut parameters))?;
        Ok((policy as c_int, parameters))
    }
}

calls! {
    Option<OnFiber>:
    fn pthread_getschedparam(
        thread: pthread_t, policy: *mut c_int, parameters: *mut sched_param,
    ) -> c_int, next if !is_fibers(thread);
    |_| code(worker_of(thread).and_then(in_force).map(|found| (*policy, *parameters) = found));

    fn pthread_setschedparam(
        thread: pthread_t, policy: c_int, parameters: *const sched_param,
    ) -> c_int, next if !is_fibers(thread);
    |on| match parameters.as_ref() {
        Some(parameters) => set(on, thread, Some(policy), parameters.sched_priority),
        None => libc::EINVAL,
    };

    fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int,
        next if !is_fibers(thread);
    |on| set(on, thread, None, priority);

    fn pthread_getaffinity_np(thread: pthread_t, bytes: size_t, cores: *mut cpu_set_t) -> c_int,
        next if !is_fibers(thread);
    |_| code(worker_of(thread).and_then(|worker| read_cores(worker, cores.cast(), bytes)));

    fn pthread_setaffinity_np(
        thread: pthread_t, bytes: size_t, cores: *const cpu_set_t,
    ) -> c_int, next if !is_fibers(thread);
    |on| set_cores(on, thread, bytes, cores);

    // The clock of the worker that runs the fiber now.
    fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int,
        next if !is_fibers(thread);
    |_| code(worker_of(thread).map(|worker| {
        *clock = clock_of(if worker == 0 { sys::thread_number() } else { worker });
    }));
}

/// The code that libc's function returns.
fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// Returns the result of setting a policy, `None` for the policy in force, and a priority.
fn set(on: Option<OnFiber>, thread: pthread_t, policy: Option<c_int>, priority: c_int) -> c_int {
    let (current, mut parameters) = match worker_of(thread).and_then(in_force) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let policy = policy.unwrap_or(current);
    if (policy, priority) == (current, parameters.sched_priority) {
        return 0;
    }
    let plain = policy & !RESET_ON_FORK;
    // SAFETY: the calls have no contract.
    let (least, most) = unsafe {
        let least = syscall!(SYS_sched_get_priority_min, plain);
        (least, syscall!(SYS_sched_get_priority_max, plain))
    };
    let is_valid = least >= 0 && (least..=most).contains(&(priority as isize));
    // This call cannot set the parameters of a deadline.
    if !is_valid || plain == libc::SCHED_DEADLINE {
        return libc::EINVAL;
    }
    if !is_own(on, thread) {
        return libc::ENOTSUP;
    }
    parameters.sched_priority = priority;
    code(worker_of(thread).and_then(|thread| {
        // SAFETY: the structure is borrowed for the call.
        checked(unsafe { syscall!(SYS_sched_setscheduler, thread, policy, &raw const parameters) })
            .map(drop)
    }))
}

/// Writes the cores of a kernel's thread.
///
/// # Safety
///
/// This number of bytes can be written.
unsafe fn read_cores(worker: pid_t, cores: *mut u8, bytes: usize) -> Result<(), c_int> {
    let most = bytes.min(c_int::MAX as usize);
    // SAFETY: by the contract. The kernel writes as many bytes as it returns.
    unsafe {
        let written = checked(syscall!(SYS_sched_getaffinity, worker, most, cores))?;
        cores.add(written).write_bytes(0, bytes - written);
    }
    Ok(())
}

/// A fiber that may run on all cores of its worker runs only on cores of the set.
///
/// # Safety
///
/// The set has this number of bytes.
unsafe fn set_cores(
    on: Option<OnFiber>,
    thread: pthread_t,
    bytes: size_t,
    cores: *const cpu_set_t,
) -> c_int {
    let wanted = match bytes.min(MOST_CORES_BYTES) {
        0 => &[],
        _ if cores.is_null() => return libc::EFAULT,
        // SAFETY: by the contract.
        bytes => unsafe { std::slice::from_raw_parts(cores.cast::<u8>(), bytes) },
    };
    let mut current = [0; MOST_CORES_BYTES];
    // SAFETY: the contract of `read_cores`: the array has this number of bytes.
    let read = |worker| unsafe { read_cores(worker, current.as_mut_ptr(), MOST_CORES_BYTES) };
    if let Err(code) = worker_of(thread).and_then(read) {
        return code;
    }
    // A thread of its own may get more cores than it has.
    let has_own = has_own(thread);
    let byte = |at: usize| wanted.get(at).copied().unwrap_or(0);
    if !has_own && current.iter().enumerate().all(|(at, current)| current & !byte(at) == 0) {
        return 0;
    }
    // SAFETY: the call has no contract.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize;
    if !(0..count).any(|core| byte(core / 8) & (1 << (core % 8)) != 0) {
        return libc::EINVAL;
    }
    if !is_own(on, thread) {
        return libc::ENOTSUP;
    }
    code(worker_of(thread).and_then(|thread| {
        // SAFETY: by the contract.
        checked(unsafe { syscall!(SYS_sched_setaffinity, thread, bytes, cores) }).map(drop)
    }))
}

/// Returns the clock of a kernel's thread, by the kernel's encoding: the clock of one thread, in
/// the unit of the scheduler.
fn clock_of(thread: pid_t) -> clockid_t {
    const OF_A_THREAD: clockid_t = 4;
    const SCHEDULED: clockid_t = 2;
    (!thread << 3) | OF_A_THREAD | SCHEDULED
}

/// Whether a clock is the calling thread's, for which libc and the kernel refuse to sleep.
pub(in super::super) fn is_own_clock(clock: clockid_t) -> bool {
    clock == libc::CLOCK_THREAD_CPUTIME_ID || clock == clock_of(sys::thread_number())
}

/// Adds the cores of a fiber to its attributes.
///
/// # Safety
///
/// The attributes are initialised.
pub(super) unsafe fn add_cores(thread: pthread_t, attributes: *mut libc::pthread_attr_t) -> c_int {
    let mut cores = [0u8; MOST_CORES_BYTES];
    // SAFETY: by the contract; the array has room for this number of bytes.
    unsafe {
        let read = |worker| read_cores(worker, cores.as_mut_ptr(), MOST_CORES_BYTES);
        match worker_of(thread).and_then(read) {
            Ok(()) => libc::pthread_attr_setaffinity_np(
                attributes,
                MOST_CORES_BYTES,
                cores.as_ptr().cast(),
            ),
            // As of a thread that has ended.
            Err(_) => 0,
        }
    }
}
