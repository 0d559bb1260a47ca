//! The processors that this process may use, and tying a thread to one of them.

use std::io;
use std::mem::MaybeUninit;

/// The processors in this thread's affinity mask, in order; never empty.
pub fn allowed() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the pointer is to a whole `cpu_set_t` of the size given, which is only written;
    // all zeroes is a valid one.
    let (result, set) = unsafe {
        let size = size_of::<libc::cpu_set_t>();
        (libc::sched_getaffinity(0, size, set.as_mut_ptr()), set.assume_init())
    };
    if result != 0 {
        return vec![0];
    }
    let mask_bits = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: every index is below the number of bits in the set.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..mask_bits).filter(is_set).collect()
}

/// Ties the calling thread to one processor. Threads it starts inherit that.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    tie_to(&[cpu])
}

/// Ties the calling thread to these. Threads it starts inherit that.
pub fn tie_to(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero `cpu_set_t` is the empty set; `CPU_SET` ignores an index that is
    // too large; the set outlives the call, which only reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Which threads are tied to which processor.
#[derive(Clone, Debug)]
pub struct Pinning {
    cpus: Vec<usize>,
    on: bool,
}

impl Pinning {
    pub fn new(on: bool) -> Pinning {
        Pinning { cpus: allowed(), on }
    }

    pub fn on(&self) -> bool {
        self.on
    }

    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Ties the calling thread, number `thread` of `threads`. When there are more threads
    /// than processors the scheduler knows better, and nothing is tied.
    pub fn pin(&self, thread: usize, threads: usize) -> io::Result<()> {
        if !self.on || threads > self.cpus.len() {
            return Ok(());
        }
        pin_to(self.cpus[thread])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_sees_one_processor_and_others_keep_theirs() {
        let before = allowed();
        assert!(!before.is_empty());
        let seen = std::thread::spawn(|| {
            Pinning::new(true).pin(0, 1).unwrap();
            allowed()
        });
        assert_eq!(seen.join().unwrap(), before[..1]);
        assert_eq!(allowed(), before);
    }
}
