//! `poll`, `select` and `epoll_wait`.
//!
//! Each is attempted with a timeout of 0. If nothing is ready, the fiber waits for one event, of
//! a few descriptors or of an epoll instance with all of them, and the attempt is repeated: so the
//! kernel writes each result. A call with a signal mask blocks the worker's thread, as the mask
//! is that thread's.
//!
//! # After a cancel
//!
//! Ready descriptors are reported. If none is ready, a call with a timeout has timed out, and
//! returns 0. Without one, `poll` and `select` fail as other calls do: std, libpq and libmariadb
//! report that. Event loops do not: tokio panics on any error of `epoll_wait` but `EINTR`, libuv
//! and libzmq abort, and libuv does not take 0 for an answer there. So `epoll_wait` fails with
//! `EINTR`; and if the loop only calls again, it waits. With a timeout, too, it leaves the clock
//! alone: the timers of the loop may belong to other fibers, and would all be due.

use super::call::{Call, OnFiber, either};
use super::held::LONGEST_WAIT;
use super::receives::is_probably_empty;
use cringle_driver::Op;
use cringle_std::internal::Backoff;
use cringle_sys::syscall;
use libc::{epoll_event, fd_set, nfds_t, pollfd, timespec, timeval};
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The events by which `select` calls a descriptor readable, writable or exceptional.
const SELECT_EVENTS: [i16; 3] = [
    libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLIN | libc::POLLHUP | libc::POLLERR,
    libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | libc::POLLERR,
    libc::POLLPRI,
];

/// The events that a file without readiness always has. A driver cannot wait for others of it.
const ALWAYS: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
/// The most descriptors that a call waits for by an op for each.
const MOST_OPS: usize = 8;
/// The error for a number that is not open. `select` ignores some such numbers.
const CLOSED: isize = -(libc::EBADF as isize);

/// Returns the end of a wait of this many milliseconds. `None` for a negative number: never.
fn deadline_ms(call: Call, ms: c_int) -> Option<Instant> {
    let ms = u64::try_from(ms).ok()?;
    call.now().checked_add(Duration::from_millis(ms))
}

/// # Safety
///
/// As libc's.
pub unsafe fn poll(on: OnFiber, fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    on.call_int(|call| {
        // SAFETY: by the contract.
        unsafe { poll_until(call, fds, count, timeout == 0, deadline_ms(call, timeout)) }
    })
}

/// `ppoll` without a signal mask.
///
/// # Safety
///
/// As libc's.
pub(super) unsafe fn ppoll(
    on: OnFiber,
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
) -> c_int {
    on.call_int(|call| {
        // SAFETY: by the contract.
        let limit = unsafe { duration(timeout)? };
        let ends_now = limit.is_some_and(|limit| limit.is_zero());
        let deadline = limit.and_then(|limit| call.now().checked_add(limit));
        // SAFETY: by the contract.
        unsafe { poll_until(call, fds, count, ends_now, deadline) }
    })
}

/// # Safety
///
/// As `poll`'s.
unsafe fn poll_until(
    call: Call,
    fds: *mut pollfd,
    count: nfds_t,
    ends_now: bool,
    deadline: Option<Instant>,
) -> Result<isize, isize> {
    call.may_attempt();
    if count == 1 && !ends_now && call.owns(fds.cast()) {
        // SAFETY: by the contract; it is on the caller's stack.
        let one = unsafe { &mut *fds };
        if is_readable(call, one, deadline) {
            return Ok(1);
        }
    }
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: by the contract. The kernel changes its copy of the time.
    let attempt = || unsafe {
        let mut zero = zero;
        syscall!(SYS_ppoll, fds, count, &raw mut zero, std::ptr::null::<()>(), 0)
    };
    let result = attempt();
    if result != 0 || ends_now {
        return Ok(result);
    }
    let live: Vec<pollfd> = match count {
        0 => Vec::new(),
        // SAFETY: by the contract; the kernel has read and written the array.
        _ => unsafe { std::slice::from_raw_parts(fds, count as usize) }
            .iter()
            .filter(|one| one.fd >= 0)
            .copied()
            .collect(),
    };
    Ok(wait_for_any(call, &live, deadline, None, attempt))
}

/// Waits for a socket that the last attempt has found empty, without an attempt before and after.
/// False if `poll` has yet to say what the result is.
fn is_readable(call: Call, one: &mut pollfd, deadline: Option<Instant>) -> bool {
    const IN: i16 = libc::POLLIN;
    if one.events != IN || !is_probably_empty(one.fd) || !call.ends_timed_waits() {
        return false;
    }
    let poll = Op::Poll { fd: one.fd, events: IN as u32 };
    let found = call.perform_until(poll, deadline).map_or(0, |found| found.max(0) as i16);
    one.revents = found & (IN | libc::POLLERR | libc::POLLHUP);
    one.revents != 0
}

/// Waits until one of the descriptors has an event and the attempt succeeds, or until the
/// deadline. `late` is the error of an event loop that a cancel reaches: see the module.
fn wait_for_any(
    call: Call,
    live: &[pollfd],
    deadline: Option<Instant>,
    late: Option<isize>,
    attempt: impl Fn() -> isize,
) -> isize {
    if !call.ends_timed_waits() && (deadline.is_some() || late.is_some()) {
        call.current.worker.watch_at_end(call.current.fiber);
        return either(call.shielded(|| wait_for_event(call, live, deadline, attempt)));
    }
    match either(wait_for_event(call, live, deadline, attempt)) {
        code if call.is_refusal(code) && deadline.is_some() => {
            if late.is_none() {
                call.pass_until(deadline);
            }
            0
        }
        code if call.is_refusal(code) => late.unwrap_or(code),
        result => result,
    }
}

/// [`wait_for_any`] as other calls, which a cancel makes fail.
fn wait_for_event(
    call: Call,
    live: &[pollfd],
    deadline: Option<Instant>,
    attempt: impl Fn() -> isize,
) -> Result<isize, isize> {
    if live.is_empty() {
        if !call.sleep_until(deadline) {
            call.admit()?;
        }
        return Ok(0);
    }
    let is_file = |one: &pollfd| one.events & ALWAYS == 0;
    let mut instance = None;
    if live.len() > MOST_OPS || live.iter().any(is_file) {
        instance = Some(Instance::new(live)?);
    }
    let mut backoff = Backoff::default();
    loop {
        // An op that was queued, but not submitted, when a number got another file waits for that
        // file; an instance forgets a descriptor that is closed. The attempt finds out.
        let may_miss = live.len() > 1 || instance.is_some();
        let until = may_miss.then(|| call.now().checked_add(LONGEST_WAIT)).flatten();
        let until = [deadline, until].into_iter().flatten().min();
        let readiness = match (&instance, live) {
            (Some(instance), _) => call.ready(instance.0, libc::POLLIN, until),
            (None, [one]) => call.ready(one.fd, one.events, until),
            (None, several) => call.any_ready(several, until),
        };
        match (attempt(), readiness) {
            // An event that the caller has not asked for, such as a hang-up for `select`.
            (0, Ok(true)) => call.pause(&mut backoff)?,
            (0, Ok(false)) if deadline.is_none_or(|at| call.now() < at) => {}
            (0, Ok(false)) => return Ok(0),
            // A number that the kernel ignores: an empty instance never has an event.
            (0, Err(CLOSED)) if instance.is_none() => instance = Some(Instance::new(live)?),
            (0, Err(code)) => return Err(code),
            (result, _) => return Ok(result),
        }
    }
}

/// An epoll instance for the time of one call.
struct Instance(RawFd);

impl Instance {
    fn new(set: &[pollfd]) -> Result<Instance, isize> {
        // SAFETY: no pointers.
        let fd = unsafe { syscall!(SYS_epoll_create1, libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(fd);
        }
        let instance = Instance(fd as RawFd);
        let mut sorted: Vec<(RawFd, i16)> = set.iter().map(|one| (one.fd, one.events)).collect();
        // A descriptor may occur several times.
        sorted.sort_unstable();
        for same in sorted.chunk_by(|one, other| one.0 == other.0) {
            let events = same.iter().fold(0, |events, one| events | one.1);
            instance.add(same[0].0, events)?;
        }
        Ok(instance)
    }

    fn add(&self, fd: RawFd, events: i16) -> Result<(), isize> {
        const EXISTS: isize = -(libc::EEXIST as isize);
        // A file without readiness. It was asked for no event that it would have.
        const NOT_POLLABLE: isize = -(libc::EPERM as isize);
        let mut event = epoll_event { events: events as u16 as u32, u64: 0 };
        // SAFETY: the structure is borrowed for the call.
        let result =
            unsafe { syscall!(SYS_epoll_ctl, self.0, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        match result {
            0 | EXISTS | NOT_POLLABLE | CLOSED => Ok(()),
            code => Err(code),
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: no pointers; the descriptor is this value's.
        unsafe { syscall!(SYS_close, self.0) };
    }
}

/// # Safety
///
/// As libc's.
pub unsafe fn epoll_wait(
    on: OnFiber,
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    on.call_int(|call| {
        let deadline = deadline_ms(call, timeout);
        call.may_attempt();
        let null = std::ptr::null::<()>();
        // SAFETY: by the contract.
        let attempt = || unsafe { syscall!(SYS_epoll_pwait, instance, events, most, 0, null, 0) };
        let result = attempt();
        if result != 0 || timeout == 0 {
            return Ok(result);
        }
        let one = pollfd { fd: instance, events: libc::POLLIN, revents: 0 };
        Ok(wait_for_any(call, &[one], deadline, Some(-(libc::EINTR as isize)), attempt))
    })
}

/// # Safety
///
/// As libc's.
pub unsafe fn select(
    on: OnFiber,
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    const USEC: i64 = 1_000_000;
    on.call_int(|call| {
        let mut limit = None;
        if !timeout.is_null() {
            // SAFETY: by the contract.
            let timeval { tv_sec, tv_usec } = unsafe { *timeout };
            // libc normalises the time, and the kernel refuses a negative one.
            let Some(sec) = tv_sec.checked_add(tv_usec / USEC).filter(|_| tv_usec >= 0) else {
                return Err(-(libc::EINVAL as isize));
            };
            let Ok(sec) = u64::try_from(sec) else { return Err(-(libc::EINVAL as isize)) };
            limit = Some(Duration::new(sec, (tv_usec % USEC) as u32 * 1000));
        }
        let begun = call.now();
        // SAFETY: by the contract.
        let result = unsafe { select_within(call, count, [read, write, except], limit) };
        if let Some(limit) = limit {
            // Linux writes the time that is left.
            let passed = call.now().saturating_duration_since(begun);
            let left = if result == 0 { Duration::ZERO } else { limit.saturating_sub(passed) };
            let (tv_sec, tv_usec) = (left.as_secs() as i64, left.subsec_micros() as i64);
            // SAFETY: by the contract.
            unsafe { *timeout = timeval { tv_sec, tv_usec } };
        }
        Ok(result)
    })
}

/// `pselect` without a signal mask.
///
/// # Safety
///
/// As libc's.
pub(super) unsafe fn pselect(
    on: OnFiber,
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: *const timespec,
) -> c_int {
    on.call_int(|call| {
        // SAFETY: by the contract.
        unsafe { Ok(select_within(call, count, sets, duration(timeout)?)) }
    })
}

/// # Safety
///
/// As `select`'s.
unsafe fn select_within(
    call: Call,
    count: c_int,
    sets: [*mut fd_set; 3],
    limit: Option<Duration>,
) -> isize {
    let deadline = limit.and_then(|limit| call.now().checked_add(limit));
    call.may_attempt();
    let count = looked_at(count);
    let words = usize::try_from(count).unwrap_or(0).div_ceil(64);
    // The kernel overwrites the sets, and the attempt is repeated.
    let copies = sets.map(|set| match set.is_null() {
        true => None,
        // SAFETY: by the contract, a set has a bit for each number that the kernel looks at.
        false => Some(unsafe { std::slice::from_raw_parts(set.cast::<u64>(), words) }.to_vec()),
    });
    let attempt = || {
        for (set, copy) in sets.iter().zip(&copies) {
            if let Some(copy) = copy {
                // SAFETY: by the contract.
                unsafe { set.cast::<u64>().copy_from_nonoverlapping(copy.as_ptr(), words) };
            }
        }
        let mut zero = timespec { tv_sec: 0, tv_nsec: 0 };
        let ([read, write, except], null) = (sets, std::ptr::null::<()>());
        // SAFETY: by the contract.
        unsafe { syscall!(SYS_pselect6, count, read, write, except, &raw mut zero, null) }
    };
    let result = attempt();
    if result != 0 || limit.is_some_and(|limit| limit.is_zero()) {
        return result;
    }
    wait_for_any(call, &poll_set(&copies, count), deadline, None, attempt)
}

/// Returns how many of the numbers below `count` the kernel looks at: those in the process's table.
/// Programs pass the limit of descriptors with sets of `FD_SETSIZE` bits, which are much shorter.
fn looked_at(count: c_int) -> c_int {
    if count <= libc::FD_SETSIZE as c_int {
        return count;
    }
    let (mut low, mut high) = (0, count as usize / 64);
    let mut set = vec![0u64; high + 1];
    while low < high {
        let word = low.midpoint(high);
        set[word] = 1;
        if is_in_table(word * 64, &mut set) {
            low = word + 1;
        } else {
            high = word;
        }
        set[word] = 0;
    }
    count.min(low as c_int * 64)
}

/// Whether the process's table of descriptors has this number, the only one in the set: one that is
/// not open is refused, and one outside is ignored.
fn is_in_table(fd: usize, set: &mut [u64]) -> bool {
    let (mut zero, null) = (timespec { tv_sec: 0, tv_nsec: 0 }, std::ptr::null::<()>());
    // SAFETY: the variables are borrowed for the calls.
    unsafe {
        syscall!(SYS_fcntl, fd, libc::F_GETFD) >= 0
            || syscall!(SYS_pselect6, fd + 1, null, null, set.as_mut_ptr(), &raw mut zero, null)
                == CLOSED
    }
}

/// Converts the sets of `select` to the arguments of `poll`.
fn poll_set(sets: &[Option<Vec<u64>>; 3], count: c_int) -> Vec<pollfd> {
    let mut all = Vec::new();
    for fd in 0..count {
        let has = |set: &Option<Vec<u64>>| {
            set.as_ref().is_some_and(|set| set[fd as usize / 64] >> (fd % 64) & 1 != 0)
        };
        let events = sets.iter().zip(SELECT_EVENTS).filter(|(set, _)| has(set));
        let events = events.fold(0, |all, (_, events)| all | events);
        if events != 0 {
            all.push(pollfd { fd, events, revents: 0 });
        }
    }
    all
}

/// Converts a timeout; `None` means none.
///
/// # Safety
///
/// It is null or valid.
pub(super) unsafe fn duration(time: *const timespec) -> Result<Option<Duration>, isize> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract.
    let timespec { tv_sec, tv_nsec } = unsafe { *time };
    match (u64::try_from(tv_sec), u32::try_from(tv_nsec)) {
        (Ok(sec), Ok(nsec @ 0..=999_999_999)) => Ok(Some(Duration::new(sec, nsec))),
        _ => Err(-(libc::EINVAL as isize)),
    }
}
