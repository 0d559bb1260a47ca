//! Which processors are whose.

use crate::notes::Notes;

/// The server's and the load's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) server: Vec<usize>,
    pub(super) load: Vec<usize>,
}

impl Places {
    /// The first ones are the server's, a processor for each worker, and the others the load's. One is
    /// the load's in any case: the server's last one, if there are too few.
    pub(super) fn of(cpus: &[usize], workers: usize, notes: &mut Notes) -> Places {
        let (server, load) = cpus.split_at(workers.min(cpus.len()));
        if workers > cpus.len() {
            let have = cpus.len();
            notes.say(format!("{workers} workers share {have} processors with each other"));
        }
        if load.is_empty() {
            notes.say(format!(
                "with {workers} workers no processor is left for the load: it shares one with the \
                 server, so that rates and latencies are of both together"
            ));
        }
        let load = if load.is_empty() { &cpus[cpus.len() - 1..] } else { load };
        Places { server: server.to_vec(), load: load.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_keeps_away_from_the_server_while_it_can() {
        let mut notes = Notes::default();
        let places = Places::of(&[0, 1, 4, 5], 2, &mut notes);
        assert_eq!((&places.server[..], &places.load[..]), (&[0, 1][..], &[4, 5][..]));
        assert!(notes.all().is_empty());
        let places = Places::of(&[0, 1], 2, &mut notes);
        assert_eq!((&places.server[..], &places.load[..]), (&[0, 1][..], &[1][..]));
        assert!(notes.all()[0].contains("no processor is left"));
        let places = Places::of(&[3], 2, &mut notes);
        assert_eq!((&places.server[..], &places.load[..]), (&[3][..], &[3][..]));
        assert!(notes.all()[1].contains("2 workers share 1"));
    }
}
