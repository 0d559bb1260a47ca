//! Temporary names: of files that are created beside a target and then renamed onto it.
//!
//! One thread uses each name for one file, link or symbolic link. A name is `.cringle-cp.` and 16
//! hexadecimal digits that other processes cannot guess: a keyed hash (std's, with random keys) of
//! a counter. It is created with a call that fails on an existing name; then the next name is
//! tried. A process that is killed leaves its temporary names behind. Only a run with the same
//! manifest (see [`resume`](crate::resume)) removes them.

use crate::compare::split;
use crate::sys;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The names that are tried before `EEXIST` is returned.
const ATTEMPTS: usize = 100;

#[derive(Default)]
pub(crate) struct Temporaries {
    keys: RandomState,
    used: AtomicU64,
    /// The numbers of the manifest of `--resume` and of this run.
    manifest: Option<(u64, u32)>,
}

/// Returns how the temporary names of all runs with this manifest begin: the next run finds by it
/// what this one leaves behind.
pub(crate) fn prefix_of_runs(manifest: u64) -> String {
    format!(".cringle-cp.{manifest:016x}.")
}

/// Returns how the temporary names of one run begin, which removes no files of its own.
pub(crate) fn prefix_of_run((manifest, run): (u64, u32)) -> String {
    format!("{}{run:08x}", prefix_of_runs(manifest))
}

impl Temporaries {
    pub(crate) fn of(manifest: Option<(u64, u32)>) -> Temporaries {
        Temporaries { manifest, ..Temporaries::default() }
    }

    /// Returns a new name in the directory part of `beside`.
    fn name(&self, beside: &CStr) -> CString {
        let number = self.keys.hash_one(self.used.fetch_add(1, Ordering::Relaxed));
        let begin = self.manifest.map_or(".cringle-cp.".into(), prefix_of_run);
        let name = format!("{begin}{number:016x}");
        sys::c_string(&[split(beside.to_bytes()).0, name.as_bytes()].concat())
    }

    /// Calls `make` with new names beside `beside` until it does not fail with `EEXIST`. Returns
    /// its result and the name. `make` must fail on an existing name.
    pub(crate) fn make<T>(
        &self,
        beside: &CStr,
        mut make: impl FnMut(&CStr) -> io::Result<T>,
    ) -> io::Result<(T, CString)> {
        let mut tries = 0;
        loop {
            let name = self.name(beside);
            tries += 1;
            match make(&name) {
                Ok(made) => return Ok((made, name)),
                Err(e) if e.raw_os_error() == Some(libc::EEXIST) && tries < ATTEMPTS => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn threads_get_different_names() {
        let names = Temporaries::default();
        let all: HashSet<_> = std::thread::scope(|scope| {
            let some = || (0..1000).map(|_| names.name(c"a/b")).collect::<Vec<_>>();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(some)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
        });
        assert_eq!(all.len(), 8000);
        assert!(all.iter().all(|name| name.to_bytes().starts_with(b"a/.cringle-cp.")));
    }

    #[test]
    fn processes_get_different_names() {
        assert_ne!(Temporaries::default().name(c"x"), Temporaries::default().name(c"x"));
    }

    #[test]
    fn an_existing_name_is_skipped() {
        let names = Temporaries::default();
        let mut taken = Vec::new();
        let made = names.make(c"d/x/", |name| {
            taken.push(name.to_owned());
            if taken.len() < 3 {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            Ok(())
        });
        assert_eq!(made.ok().map(|((), name)| name).as_ref(), taken.last());
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 3);
        assert!(taken[0].to_bytes().starts_with(b"d/.cringle-cp."));
        let full = names.make(c"x", |_| Err::<(), _>(io::Error::from_raw_os_error(libc::EEXIST)));
        assert!(full.is_err());
    }
}
