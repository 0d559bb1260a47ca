//! The processors that this process may use, and pinning threads to them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Returns the processors in this thread's affinity mask, in order; never empty.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Pins the calling thread to some processors. Threads and processes that it starts inherit the
/// mask.
///
/// # Panics
///
/// For the number of a processor that no mask can have.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
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
