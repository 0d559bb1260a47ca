//! The calls that each symbol of the table makes on a fiber, by the symbol's name.

pub use super::connections::{accept4, connect};
pub use super::files::{
    copy_file_range, flock, openat, openat as openat64, sendfile, sendfile as sendfile64, splice,
};
pub use super::locks::{
    pthread_rwlock_clockrdlock, pthread_rwlock_clockwrlock, pthread_rwlock_rdlock,
    pthread_rwlock_timedrdlock, pthread_rwlock_timedwrlock, pthread_rwlock_tryrdlock,
    pthread_rwlock_trywrlock, pthread_rwlock_wrlock,
};
pub use super::messages::{recvmmsg, sendmmsg};
pub use super::names::{
    getaddrinfo, gethostbyaddr_r, gethostbyname_r, gethostbyname2_r, getnameinfo,
};
pub use super::processes::{posix_spawn, posix_spawnp, sigtimedwait, sigwait, wait4, waitid};
pub use super::ready::{epoll_wait, poll, select};
pub use super::receives::{recvfrom, recvmsg};
pub use super::semaphores::{sem_clockwait, sem_timedwait, sem_trywait, sem_wait};
pub use super::sleep::{clock_gettime, clock_nanosleep, nanosleep, sched_yield, sleep, usleep};
pub use super::sockets::{sendmsg, sendto};
pub use super::transfer::{
    pread, pread as pread64, preadv, preadv as preadv64, preadv2, preadv2 as preadv64v2, pwrite,
    pwrite as pwrite64, pwritev, pwritev as pwritev64, pwritev2, pwritev2 as pwritev64v2, read,
    readv, write, writev,
};
pub use super::waits::{
    mtx_lock, mtx_timedlock, mtx_trylock, pthread_barrier_wait, pthread_spin_lock,
    pthread_spin_trylock, thrd_sleep, thrd_yield,
};

use super::call::OnFiber;
use super::threads::with_mask;
use super::{files, next, ready};
use libc::{
    epoll_event, fd_set, mode_t, nfds_t, off_t, pid_t, pollfd, rusage, siginfo_t, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec,
};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::null_mut;

calls! {
    OnFiber:
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t,
        next if len > room;
    |on| read(on, fd, buf, len);

    fn __pread_chk(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, room: size_t)
        -> ssize_t, next if len > room;
    |on| pread(on, fd, buf, len, offset);

    fn __pread64_chk(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, room: size_t)
        -> ssize_t, next if len > room;
    |on| pread(on, fd, buf, len, offset);

    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    |on| recvfrom(on, fd, buf, len, flags, null_mut(), null_mut());

    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int)
        -> ssize_t, next if len > room;
    |on| recvfrom(on, fd, buf, len, flags, null_mut(), null_mut());

    fn __recvfrom_chk(
        fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int,
        addr: *mut sockaddr, addr_len: *mut socklen_t,
    ) -> ssize_t, next if len > room;
    |on| recvfrom(on, fd, buf, len, flags, addr, addr_len);

    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    |on| sendto(on, fd, buf, len, flags, null_mut(), 0);

    fn accept(fd: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> c_int;
    |on| accept4(on, fd, addr, addr_len, 0);

    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int,
        next if room / size_of::<pollfd>() < count as usize;
    |on| poll(on, fds, count, timeout);

    fn ppoll(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int;
    |on| with_mask(
        mask,
        || ready::ppoll(on, fds, count, timeout),
        || next::ppoll(fds, count, timeout, mask),
    );

    fn __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t,
    ) -> c_int, next if room / size_of::<pollfd>() < count as usize;
    |on| ppoll(on, fds, count, timeout, mask);

    fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int;
    |on| with_mask(
        mask,
        || ready::pselect(on, count, [read, write, except], timeout),
        || next::pselect(count, read, write, except, timeout, mask),
    );

    fn epoll_pwait(
        instance: c_int, events: *mut epoll_event, most: c_int, timeout: c_int,
        mask: *const sigset_t,
    ) -> c_int;
    |on| with_mask(
        mask,
        || epoll_wait(on, instance, events, most, timeout),
        || next::epoll_pwait(instance, events, most, timeout, mask),
    );

    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    |on| openat(on, libc::AT_FDCWD, path, flags, mode);

    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    |on| openat(on, libc::AT_FDCWD, path, flags, mode);

    fn __open_2(path: *const c_char, flags: c_int) -> c_int, next if makes(flags);
    |on| openat(on, libc::AT_FDCWD, path, flags, 0);

    fn __open64_2(path: *const c_char, flags: c_int) -> c_int, next if makes(flags);
    |on| openat(on, libc::AT_FDCWD, path, flags, 0);

    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int, next if makes(flags);
    |on| openat(on, dir, path, flags, 0);

    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int,
        next if makes(flags);
    |on| openat(on, dir, path, flags, 0);

    fn creat(path: *const c_char, mode: mode_t) -> c_int;
    |on| openat(on, libc::AT_FDCWD, path, CREAT, mode);

    fn creat64(path: *const c_char, mode: mode_t) -> c_int;
    |on| openat(on, libc::AT_FDCWD, path, CREAT, mode);

    fn fsync(fd: c_int) -> c_int;
    |on| files::sync(on, fd, false);

    fn fdatasync(fd: c_int) -> c_int;
    |on| files::sync(on, fd, true);

    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int, next if !waits(command);
    |on| files::wait_for_record(on, fd, command, argument);

    fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int, next if !waits(command);
    |on| files::wait_for_record(on, fd, command, argument);

    fn wait(status: *mut c_int) -> pid_t;
    |on| wait4(on, -1, status, 0, null_mut());

    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t;
    |on| wait4(on, pid, status, options, null_mut());

    fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t;
    |on| wait4(on, -1, status, options, usage);

    fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int;
    |on| sigtimedwait(on, set, info, null_mut());
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// Whether an `open` needs a mode.
fn makes(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}

/// Whether an `fcntl` waits for a lock.
fn waits(command: c_int) -> bool {
    matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW)
}
