//! The calls that concern fibers also if a thread makes them, by the symbol's name.

pub use super::conditions::{
    pthread_cond_broadcast, pthread_cond_clockwait, pthread_cond_signal, pthread_cond_timedwait,
    pthread_cond_wait,
};
pub use super::descriptors::{close, close_range, closefrom, dup2, dup3};
pub use super::futex::syscall;
pub use super::locks::{
    pthread_mutex_clocklock, pthread_mutex_consistent, pthread_mutex_lock,
    pthread_mutex_lock as __pthread_mutex_lock, pthread_mutex_setprioceiling,
    pthread_mutex_timedlock, pthread_mutex_trylock,
    pthread_mutex_trylock as __pthread_mutex_trylock, pthread_mutex_unlock,
    pthread_mutex_unlock as __pthread_mutex_unlock, pthread_rwlock_unlock,
    pthread_rwlock_unlock as __pthread_rwlock_unlock,
};
pub use super::processes::{
    pause, popen, posix_spawn, posix_spawnp, sigsuspend, sigtimedwait, sigwait, sigwaitinfo, system,
};
pub use super::threads::{
    capset, nice, prctl, pthread_cancel, pthread_clockjoin_np, pthread_create, pthread_detach,
    pthread_exit, pthread_getaffinity_np, pthread_getattr_np, pthread_getcpuclockid,
    pthread_getname_np, pthread_getschedparam, pthread_join, pthread_kill, pthread_setaffinity_np,
    pthread_setcancelstate, pthread_setcanceltype, pthread_setname_np, pthread_setschedparam,
    pthread_setschedprio, pthread_sigmask, pthread_sigqueue, pthread_testcancel,
    pthread_timedjoin_np, pthread_tryjoin_np, ptrace, raise, sched_setaffinity, sched_setparam,
    sched_setscheduler, setfsgid, setfsuid, setns, setpriority, sigaltstack, sigprocmask, tgkill,
    thrd_create, thrd_detach, thrd_exit, thrd_join, unshare,
};
pub use super::waits::{
    call_once, cnd_broadcast, cnd_signal, cnd_timedwait, cnd_wait, mtx_unlock, pthread_once,
    pthread_once as __pthread_once,
};

use super::call::OnFiber;
use super::{hooks, next};
use libc::pthread_rwlock_t;
use std::ffi::c_int;

macro_rules! aliases {
    ($($alias:ident = $name:ident;)*) => {
        $(
            /// # Safety
            ///
            /// As libc's.
            pub unsafe fn $alias(on: Option<OnFiber>, lock: *mut pthread_rwlock_t) -> c_int {
                // SAFETY: by the contract.
                unsafe {
                    match on {
                        Some(on) => hooks::$name(on, lock),
                        None => next::$name(lock),
                    }
                }
            }
        )*
    };
}

aliases! {
    __pthread_rwlock_rdlock = pthread_rwlock_rdlock;
    __pthread_rwlock_tryrdlock = pthread_rwlock_tryrdlock;
    __pthread_rwlock_wrlock = pthread_rwlock_wrlock;
    __pthread_rwlock_trywrlock = pthread_rwlock_trywrlock;
}
