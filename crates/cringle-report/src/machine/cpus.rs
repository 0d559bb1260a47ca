//! The processors that this process may use, and pinning threads to them.

use std::io;
use std::mem::MaybeUninit;

/// Returns the processors in this thread's affinity mask, in order; never empty.
pub fn allowed() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the call writes to `set`, a whole `cpu_set_t` of the size passed; all zeroes is a
    // valid one.
    let (result, set) = unsafe {
        let size = size_of::<libc::cpu_set_t>();
        (libc::sched_getaffinity(0, size, set.as_mut_ptr()), set.assume_init())
    };
    if result != 0 {
        return vec![0];
    }
    let mask_bits = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: every index is less than the number of bits in the set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..mask_bits).filter(is_set).collect()
}

/// Pins the calling thread to some processors. Threads and processes that it starts inherit the
/// mask.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero `cpu_set_t` is the empty set; `CPU_SET` panics on an index beyond the set
    // and writes nothing; the set outlives the call, which only reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Pins each thread of a run to a processor of its own, if that is enabled.
#[derive(Clone, Debug)]
pub struct Pinning {
    cpus: Vec<usize>,
    enabled: bool,
}

impl Pinning {
    pub fn new(enabled: bool) -> Pinning {
        Pinning { cpus: allowed(), enabled }
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether a run with so many threads is pinned: with more threads than processors the choice
    /// is the scheduler's.
    pub fn applies_to(&self, threads: usize) -> bool {
        self.enabled && threads <= self.cpus.len()
    }

    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Pins the calling thread, which is number `thread` of `threads`, if pinning
    /// [applies](Pinning::applies_to).
    pub fn pin(&self, thread: usize, threads: usize) -> io::Result<()> {
        if self.applies_to(threads) { pin_to(&[self.cpus[thread]]) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_affects_the_calling_thread_only() {
        let before = allowed();
        assert!(!before.is_empty());
        let pinned = std::thread::spawn(|| {
            Pinning::new(true).pin(0, 1).unwrap();
            allowed()
        });
        assert_eq!(pinned.join().unwrap(), before[..1]);
        assert_eq!(allowed(), before);
    }
}
