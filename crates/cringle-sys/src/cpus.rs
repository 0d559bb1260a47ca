//! The CPUs that a thread may run on.

use super::check;
use std::io;

/// Returns the CPUs that the calling thread may run on, in order.
pub fn allowed_cpus() -> Vec<usize> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: an all-zero set is valid, and the call writes at most the size that it is given.
    let set = unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        set.assume_init()
    };
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the contract of `CPU_ISSET`: the index is below `CPU_SETSIZE`.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Returns the CPU set of these CPUs.
fn affinity_of(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: the all-zero `cpu_set_t` is the empty set, and each index is below `CPU_SETSIZE`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu, &mut set);
        }
        set
    }
}

/// Restricts the calling thread to these CPUs.
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let set = affinity_of(cpus);
    // SAFETY: the set is borrowed for the call, which reads it.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) }).map(drop)
}
