//! Clocks: CPU time of a thread and of the process, and wall-clock time.

use std::time::{Duration, Instant};

/// Returns the CPU time of this thread. It excludes the time of other processes on the core, so it
/// suits work that never waits on a machine that is not idle.
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a structure that lives for the call.
    let res = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(res, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the thread's CPU time of `work`, in nanoseconds per operation.
pub fn cpu_ns_per_op(operations: u64, work: impl FnOnce()) -> f64 {
    let start = thread_cpu();
    work();
    (thread_cpu() - start).as_secs_f64() * 1e9 / operations as f64
}

/// Returns the wall-clock time of `work`, in nanoseconds per operation.
pub fn wall_ns_per_op(operations: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / operations as f64
}

/// The time and CPU of some work.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub seconds: f64,
    /// CPU time of the whole process, including the kernel's workers for its rings.
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub context_switches: i64,
}

/// A running measurement of [`Usage`].
pub struct Meter {
    started: Instant,
    before: libc::rusage,
}

impl Meter {
    pub fn start() -> Meter {
        let before = rusage();
        Meter { started: Instant::now(), before }
    }

    pub fn stop(self) -> Usage {
        let seconds = self.started.elapsed().as_secs_f64();
        let (after, before) = (rusage(), self.before);
        let switches = |usage: libc::rusage| usage.ru_nvcsw + usage.ru_nivcsw;
        Usage {
            seconds,
            user_seconds: seconds_of(after.ru_utime) - seconds_of(before.ru_utime),
            system_seconds: seconds_of(after.ru_stime) - seconds_of(before.ru_stime),
            context_switches: switches(after) - switches(before),
        }
    }
}

fn rusage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a structure that lives for the call; zeroes are valid in it.
    unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    }
}

fn seconds_of(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}
