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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_affects_the_calling_thread_only() {
        let before = allowed();
        assert!(!before.is_empty());
        let pinned = std::thread::spawn(|| {
            pin_to(&allowed()[..1]).unwrap();
            allowed()
        });
        assert_eq!(pinned.join().unwrap(), before[..1]);
        assert_eq!(allowed(), before);
    }
}
