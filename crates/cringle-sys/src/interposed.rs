//! The signatures of the interposed calls: the only list of them.

/// Passes the signature of each interposed call to a macro, as `fn name(argument: type, …) ->
/// type;`. The types are `libc`'s.
#[doc(hidden)]
#[macro_export]
macro_rules! __interposed_calls {
    ($($then:tt)*) => {
        $($then)*! {
            fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
            fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
            fn readv(fd: c_int, slices: *const iovec, count: c_int) -> ssize_t;
            fn writev(fd: c_int, slices: *const iovec, count: c_int) -> ssize_t;
            fn pread(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
            fn pread64(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
            fn pwrite(fd: c_int, buf: *const c_void, len: size_t, offset: off_t) -> ssize_t;
            fn pwrite64(fd: c_int, buf: *const c_void, len: size_t, offset: off_t) -> ssize_t;
            fn preadv(fd: c_int, slices: *const iovec, count: c_int, offset: off_t) -> ssize_t;
            fn preadv64(fd: c_int, slices: *const iovec, count: c_int, offset: off_t) -> ssize_t;
            fn pwritev(fd: c_int, slices: *const iovec, count: c_int, offset: off_t) -> ssize_t;
            fn pwritev64(fd: c_int, slices: *const iovec, count: c_int, offset: off_t) -> ssize_t;
            fn preadv2(
                fd: c_int, slices: *const iovec, count: c_int, offset: off_t, flags: c_int
            ) -> ssize_t;
            fn preadv64v2(
                fd: c_int, slices: *const iovec, count: c_int, offset: off_t, flags: c_int
            ) -> ssize_t;
            fn pwritev2(
                fd: c_int, slices: *const iovec, count: c_int, offset: off_t, flags: c_int
            ) -> ssize_t;
            fn pwritev64v2(
                fd: c_int, slices: *const iovec, count: c_int, offset: off_t, flags: c_int
            ) -> ssize_t;
            fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t;
            fn __pread_chk(
                fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, room: size_t
            ) -> ssize_t;
            fn __pread64_chk(
                fd: c_int, buf: *mut c_void, len: size_t, offset: off_t, room: size_t
            ) -> ssize_t;

            fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
            fn recvfrom(
                fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
                addr_len: *mut socklen_t
            ) -> ssize_t;
            fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
            fn __recv_chk(
                fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int
            ) -> ssize_t;
            fn __recvfrom_chk(
                fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int,
                addr: *mut sockaddr, addr_len: *mut socklen_t
            ) -> ssize_t;
            fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
            fn sendto(
                fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
                addr_len: socklen_t
            ) -> ssize_t;
            fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
            fn accept(fd: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> c_int;
            fn accept4(
                fd: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t, flags: c_int
            ) -> c_int;
            fn connect(fd: c_int, addr: *const sockaddr, addr_len: socklen_t) -> c_int;

            fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
            fn __poll_chk(
                fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t
            ) -> c_int;
            fn ppoll(
                fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
            ) -> c_int;
            fn __ppoll_chk(
                fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
                room: size_t
            ) -> c_int;
            fn select(
                count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
                timeout: *mut timeval
            ) -> c_int;
            fn pselect(
                count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
                timeout: *const timespec, mask: *const sigset_t
            ) -> c_int;
            fn epoll_wait(
                instance: c_int, events: *mut epoll_event, most: c_int, timeout: c_int
            ) -> c_int;
            fn epoll_pwait(
                instance: c_int, events: *mut epoll_event, most: c_int, timeout: c_int,
                mask: *const sigset_t
            ) -> c_int;

            fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int;
            fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int;
            fn clock_nanosleep(
                clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec
            ) -> c_int;
            fn usleep(us: c_uint) -> c_int;
            fn sleep(seconds: c_uint) -> c_uint;
            fn sched_yield() -> c_int;

            fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
            fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
            fn __open_2(path: *const c_char, flags: c_int) -> c_int;
            fn __open64_2(path: *const c_char, flags: c_int) -> c_int;
            fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
            fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
            fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
            fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
            fn creat(path: *const c_char, mode: mode_t) -> c_int;
            fn creat64(path: *const c_char, mode: mode_t) -> c_int;
            fn fsync(fd: c_int) -> c_int;
            fn fdatasync(fd: c_int) -> c_int;
            fn flock(fd: c_int, how: c_int) -> c_int;
            fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
            fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int;
            fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
            fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
            fn splice(
                from: c_int, from_offset: *mut loff_t, to: c_int, to_offset: *mut loff_t,
                len: size_t, flags: c_uint
            ) -> ssize_t;
            fn copy_file_range(
                from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t,
                len: size_t, flags: c_uint
            ) -> ssize_t;

            fn wait(status: *mut c_int) -> pid_t;
            fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t;
            fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t;
            fn wait4(
                pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage
            ) -> pid_t;
            fn waitid(
                kind: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int
            ) -> c_int;
            fn recvmmsg(
                fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int,
                timeout: *mut timespec
            ) -> c_int;
            fn sendmmsg(
                fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int
            ) -> c_int;

            fn getaddrinfo(
                node: *const c_char, service: *const c_char, hints: *const addrinfo,
                result: *mut *mut addrinfo
            ) -> c_int;
            fn getnameinfo(
                addr: *const sockaddr, addr_len: socklen_t, host: *mut c_char,
                host_len: socklen_t, service: *mut c_char, service_len: socklen_t, flags: c_int
            ) -> c_int;
            fn gethostbyname_r(
                name: *const c_char, entry: *mut hostent, buf: *mut c_char, len: size_t,
                result: *mut *mut hostent, error: *mut c_int
            ) -> c_int;
            fn gethostbyname2_r(
                name: *const c_char, family: c_int, entry: *mut hostent, buf: *mut c_char,
                len: size_t, result: *mut *mut hostent, error: *mut c_int
            ) -> c_int;
            fn gethostbyaddr_r(
                addr: *const c_void, addr_len: socklen_t, family: c_int, entry: *mut hostent,
                buf: *mut c_char, len: size_t, result: *mut *mut hostent, error: *mut c_int
            ) -> c_int;

            fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn pthread_rwlock_timedrdlock(
                lock: *mut pthread_rwlock_t, time: *const timespec
            ) -> c_int;
            fn pthread_rwlock_clockrdlock(
                lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec
            ) -> c_int;
            fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn pthread_rwlock_timedwrlock(
                lock: *mut pthread_rwlock_t, time: *const timespec
            ) -> c_int;
            fn pthread_rwlock_clockwrlock(
                lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec
            ) -> c_int;
            fn pthread_spin_lock(lock: *mut c_int) -> c_int;
            fn pthread_spin_trylock(lock: *mut c_int) -> c_int;
            fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int;
            fn sem_wait(semaphore: *mut sem_t) -> c_int;
            fn sem_trywait(semaphore: *mut sem_t) -> c_int;
            fn sem_timedwait(semaphore: *mut sem_t, time: *const timespec) -> c_int;
            fn sem_clockwait(
                semaphore: *mut sem_t, clock: clockid_t, time: *const timespec
            ) -> c_int;
            fn mtx_lock(mutex: *mut pthread_mutex_t) -> c_int;
            fn mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int;
            fn mtx_timedlock(mutex: *mut pthread_mutex_t, time: *const timespec) -> c_int;
            fn thrd_sleep(time: *const timespec, left: *mut timespec) -> c_int;
            fn thrd_yield() -> ();
        }
    };
}

/// As [`__interposed_calls`], for the calls that concern fibers also if a thread makes them: the
/// calls that end a wait, release a lock within, close a descriptor, or start or end a thread.
#[doc(hidden)]
#[macro_export]
macro_rules! __interposed_for_all {
    ($($then:tt)*) => {
        $($then)*! {
            fn system(command: *const c_char) -> c_int;
            fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
            fn pause() -> c_int;
            fn sigsuspend(mask: *const sigset_t) -> c_int;
            fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int;
            fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int;
            fn sigtimedwait(
                set: *const sigset_t, info: *mut siginfo_t, time: *const timespec
            ) -> c_int;
            fn posix_spawn(
                pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
                attributes: *const posix_spawnattr_t, arguments: *const *mut c_char,
                environment: *const *mut c_char
            ) -> c_int;
            fn posix_spawnp(
                pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
                attributes: *const posix_spawnattr_t, arguments: *const *mut c_char,
                environment: *const *mut c_char
            ) -> c_int;
            fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int;
            fn syscall(
                number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize
            ) -> c_long;
            fn close(fd: c_int) -> c_int;
            fn dup2(from: c_int, to: c_int) -> c_int;
            fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
            fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
            fn closefrom(first: c_int) -> ();
            fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int;
            fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int;
            fn pthread_mutex_timedlock(
                mutex: *mut pthread_mutex_t, time: *const timespec
            ) -> c_int;
            fn pthread_mutex_clocklock(
                mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec
            ) -> c_int;
            fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int;
            fn pthread_mutex_consistent(mutex: *mut pthread_mutex_t) -> c_int;
            fn pthread_mutex_setprioceiling(
                mutex: *mut pthread_mutex_t, new: c_int, old: *mut c_int
            ) -> c_int;
            fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn pthread_cond_wait(
                condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t
            ) -> c_int;
            fn pthread_cond_timedwait(
                condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec
            ) -> c_int;
            fn pthread_cond_clockwait(
                condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t,
                time: *const timespec
            ) -> c_int;
            fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int;
            fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int;
            fn pthread_once(control: *mut c_int, routine: Routine) -> c_int;
            fn call_once(control: *mut c_int, routine: Routine) -> ();
            fn mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int;
            fn cnd_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int;
            fn cnd_timedwait(
                condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec
            ) -> c_int;
            fn cnd_signal(condition: *mut pthread_cond_t) -> c_int;
            fn cnd_broadcast(condition: *mut pthread_cond_t) -> c_int;

            fn pthread_create(
                thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start,
                argument: *mut c_void
            ) -> c_int;
            fn thrd_create(thread: *mut pthread_t, start: C11Start, argument: *mut c_void) -> c_int;
            fn pthread_exit(value: *mut c_void) -> ();
            fn thrd_exit(value: c_int) -> ();
            fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int;
            fn pthread_tryjoin_np(thread: pthread_t, result: *mut *mut c_void) -> c_int;
            fn pthread_timedjoin_np(
                thread: pthread_t, result: *mut *mut c_void, time: *const timespec
            ) -> c_int;
            fn pthread_clockjoin_np(
                thread: pthread_t, result: *mut *mut c_void, clock: clockid_t,
                time: *const timespec
            ) -> c_int;
            fn pthread_detach(thread: pthread_t) -> c_int;
            fn thrd_join(thread: pthread_t, result: *mut c_int) -> c_int;
            fn thrd_detach(thread: pthread_t) -> c_int;
            fn pthread_cancel(thread: pthread_t) -> c_int;
            fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
            fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
            fn pthread_testcancel() -> ();
            fn pthread_kill(thread: pthread_t, signal: c_int) -> c_int;
            fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int;
            fn pthread_getname_np(thread: pthread_t, name: *mut c_char, bytes: size_t) -> c_int;
            fn pthread_getattr_np(thread: pthread_t, attributes: *mut pthread_attr_t) -> c_int;
            fn pthread_sigmask(
                how: c_int, new: *const sigset_t, old: *mut sigset_t
            ) -> c_int;
            fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
            fn raise(signal: c_int) -> c_int;
            fn pthread_sigqueue(thread: pthread_t, signal: c_int, value: sigval) -> c_int;
            fn pthread_getschedparam(
                thread: pthread_t, policy: *mut c_int, parameters: *mut sched_param
            ) -> c_int;
            fn pthread_setschedparam(
                thread: pthread_t, policy: c_int, parameters: *const sched_param
            ) -> c_int;
            fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int;
            fn pthread_getaffinity_np(
                thread: pthread_t, bytes: size_t, cores: *mut cpu_set_t
            ) -> c_int;
            fn pthread_setaffinity_np(
                thread: pthread_t, bytes: size_t, cores: *const cpu_set_t
            ) -> c_int;
            fn pthread_getcpuclockid(thread: pthread_t, clock: *mut clockid_t) -> c_int;

            fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
            fn ptrace(
                request: c_uint, process: pid_t, address: *mut c_void, data: *mut c_void
            ) -> c_long;
            fn sched_setaffinity(
                thread: pid_t, bytes: size_t, cores: *const cpu_set_t
            ) -> c_int;
            fn sched_setscheduler(
                thread: pid_t, policy: c_int, parameters: *const sched_param
            ) -> c_int;
            fn sched_setparam(thread: pid_t, parameters: *const sched_param) -> c_int;
            fn setpriority(which: c_uint, who: id_t, priority: c_int) -> c_int;
            fn nice(change: c_int) -> c_int;
            fn setfsuid(user: uid_t) -> c_int;
            fn setfsgid(group: gid_t) -> c_int;
            fn capset(header: *mut c_void, sets: *const c_void) -> c_int;
            fn unshare(flags: c_int) -> c_int;
            fn setns(fd: c_int, kind: c_int) -> c_int;
            fn tgkill(process: pid_t, thread: pid_t, signal: c_int) -> c_int;
        }
    };
}

/// As [`__interposed_for_all`], for libc's old names of the same functions.
#[doc(hidden)]
#[macro_export]
macro_rules! __interposed_aliases {
    ($($then:tt)*) => {
        $($then)*! {
            fn __pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int;
            fn __pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int;
            fn __pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int;
            fn __pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn __pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn __pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn __pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn __pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int;
            fn __pthread_once(control: *mut c_int, routine: Routine) -> c_int;
        }
    };
}
