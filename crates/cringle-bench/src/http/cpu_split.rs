//! Divides the processors between the server and the load.

use crate::experiment::Notes;

/// The processors of the server and those of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuSplit {
    pub(super) server: Vec<usize>,
    pub(super) load: Vec<usize>,
}

impl CpuSplit {
    /// Gives the first processors to the server, one for each worker, and the others to the load.
    /// If none is left, the load shares the last one with the server.
    pub(super) fn of(cpus: &[usize], workers: usize, notes: &mut Notes) -> CpuSplit {
        let (server, load) = cpus.split_at(workers.min(cpus.len()));
        if workers > cpus.len() {
            let have = cpus.len();
            notes.add(format!("{workers} workers share {have} processors"));
        }
        if load.is_empty() {
            notes.add(format!(
                "with {workers} workers no processor is left for the load: it shares one with the \
                 server, which affects rates and latencies"
            ));
        }
        let load = if load.is_empty() { &cpus[cpus.len() - 1..] } else { load };
        CpuSplit { server: server.to_vec(), load: load.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_avoids_the_server_if_possible() {
        let mut notes = Notes::default();
        let split = CpuSplit::of(&[0, 1, 4, 5], 2, &mut notes);
        assert_eq!((&split.server[..], &split.load[..]), (&[0, 1][..], &[4, 5][..]));
        assert!(notes.0.is_empty());
        let split = CpuSplit::of(&[0, 1], 2, &mut notes);
        assert_eq!((&split.server[..], &split.load[..]), (&[0, 1][..], &[1][..]));
        assert!(notes.0[0].contains("no processor is left"));
        let split = CpuSplit::of(&[3], 2, &mut notes);
        assert_eq!((&split.server[..], &split.load[..]), (&[3][..], &[3][..]));
        assert!(notes.0[1].contains("2 workers share 1"));
    }
}
