//! Which processors are whose.

use crate::notes::Notes;

/// The server's and the load's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuSplit {
    pub(super) server: Vec<usize>,
    pub(super) load: Vec<usize>,
}

impl CpuSplit {
    /// The first ones are the server's, a processor for each worker, and the others the load's. One is
    /// the load's in any case: the server's last one, if there are too few.
    pub(super) fn of(cpus: &[usize], workers: usize, notes: &mut Notes) -> CpuSplit {
        let (server, load) = cpus.split_at(workers.min(cpus.len()));
        if workers > cpus.len() {
            let have = cpus.len();
            notes.add(format!("{workers} workers share {have} processors with each other"));
        }
        if load.is_empty() {
            notes.add(format!(
                "with {workers} workers no processor is left for the load: it shares one with the \
                 server, so that rates and latencies are of both together"
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
    fn the_load_keeps_away_from_the_server_while_it_can() {
        let mut notes = Notes::default();
        let split = CpuSplit::of(&[0, 1, 4, 5], 2, &mut notes);
        assert_eq!((&split.server[..], &split.load[..]), (&[0, 1][..], &[4, 5][..]));
        assert!(notes.all().is_empty());
        let split = CpuSplit::of(&[0, 1], 2, &mut notes);
        assert_eq!((&split.server[..], &split.load[..]), (&[0, 1][..], &[1][..]));
        assert!(notes.all()[0].contains("no processor is left"));
        let split = CpuSplit::of(&[3], 2, &mut notes);
        assert_eq!((&split.server[..], &split.load[..]), (&[3][..], &[3][..]));
        assert!(notes.all()[1].contains("2 workers share 1"));
    }
}
