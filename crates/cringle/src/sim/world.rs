//! A world: files and a clock that outlast the runs in it, and can lose their power.

use super::{Checker, Failure, Faults, Options, Stats};
use crate::Builder;
use crate::driver::sim::{Core, lock};
use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A simulated machine: its files and its time stay from run to run.
///
/// ```
/// use cringle::{fs::File, sim};
/// use std::io::Write;
///
/// let mut world = sim::World::new(42, &sim::Options::new());
/// world.run(|| {
///     let mut log = File::create("/log")?;
///     log.write_all(b"kept")?;
///     log.sync_all()?;
///     log.write_all(b" or lost")
/// })??;
/// world.crash();
/// let log = world.read("/log").unwrap();
/// assert_eq!(&log[..4], b"kept");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct World {
    core: Arc<Mutex<Core>>,
    seed: u64,
}

impl World {
    /// A machine without files, whose every choice comes from this seed.
    pub fn new(seed: u64, options: &Options) -> World {
        World { core: Arc::new(Mutex::new(Core::new(seed, options))), seed }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// Runs `f` as [`cringle::run`](crate::run) does, on one worker of this machine.
    ///
    /// # Errors
    ///
    /// What a checker found, or `f`'s panic. What `f` returns must hold no open file of the world:
    /// it would count as left open.
    ///
    /// # Panics
    ///
    /// Within another run, simulated or not.
    pub fn run<T>(&mut self, f: impl FnOnce() -> T) -> Result<T, Failure> {
        self.run_once(f).map(|value| value.expect("the power stays on"))
    }

    /// Like [`run`](Self::run), but the power is lost at some moment that the seed draws, if `f` has
    /// not returned by then: all fibers are cancelled, what they asked for fails with `EIO`, and the
    /// files are left as after a [`crash`](Self::crash) at that moment. `None` says that it was.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run). Panics after the power was lost are no failure.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn run_until_power_loss<T>(&mut self, f: impl FnOnce() -> T) -> Result<Option<T>, Failure> {
        self.core().draw_power_loss();
        let result = self.run_once(f);
        self.core().power_lasts = None;
        result
    }

    fn run_once<T>(&mut self, f: impl FnOnce() -> T) -> Result<Option<T>, Failure> {
        let body = || {
            let result = catch_unwind(AssertUnwindSafe(f));
            if let Err(payload) = &result {
                self.core().note_panic(&message_of(&**payload));
            }
            result
        };
        let ended = Builder::simulated(&self.core).run(body);
        let mut core = self.core();
        let lost = core.wreck.take();
        let had_power = lost.is_none();
        if let Some(wreck) = lost
            && let Err(e) = core.files.restore(wreck)
        {
            core.fail(Checker::Setup, format!("the files cannot be restored: {e}"));
        }
        let left_open = core.files.open_descriptors();
        if !left_open.is_empty() {
            let text = format!("{} of simulated files are still open", left_open.len());
            core.fail(Checker::Descriptors, text);
        }
        if let Some((checker, message)) = core.failure.take() {
            return Err(Failure::new(self.seed, checker, message));
        }
        match ended {
            Err(e) => Err(Failure::new(self.seed, Checker::Setup, e.to_string())),
            Ok(Ok(value)) if had_power => Ok(Some(value)),
            Ok(_) => Ok(None),
        }
    }

    /// The power is lost, and the machine starts again: of what was not synced, each block of 512
    /// bytes may be there or not, and so may a file that was never synced. (A file's first sync
    /// keeps its name, too, as it does on ext4, XFS and btrfs.)
    pub fn crash(&mut self) {
        self.core().crash();
    }

    /// What is in a file; `None` if there is no such file.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.core().files.read(path.as_ref().as_os_str().as_bytes())
    }

    /// Makes a file, or replaces what is in it. It counts as synced.
    ///
    /// # Errors
    ///
    /// What the system says where it has no descriptor or memory left.
    pub fn write(&mut self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.core().files.write(path.as_ref().as_os_str().as_bytes(), bytes.as_ref())
    }

    /// Removes a file; whether it was there.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> bool {
        self.core().files.remove(path.as_ref().as_os_str().as_bytes())
    }

    /// The files there are, in the order of their names.
    pub fn paths(&self) -> Vec<PathBuf> {
        let core = self.core();
        let names = core.files.names().map(|name| OsStr::from_bytes(name).to_owned());
        names.map(|name| PathBuf::from(std::ffi::OsString::from_vec(name.into_vec()))).collect()
    }

    /// Nothing goes wrong from now on: for the run that looks at what an earlier one left.
    pub fn stop_faults(&mut self) {
        self.core().stop_faults();
    }

    /// What may go wrong in it: with [`Options::swarm`], what the seed has drawn.
    pub fn faults(&self) -> Faults {
        self.core().faults()
    }

    /// The seed it was made from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Virtual time since it was made.
    pub fn elapsed(&self) -> Duration {
        self.core().elapsed()
    }

    /// What was done, and what went wrong, since it was made.
    pub fn stats(&self) -> Stats {
        self.core().stats
    }

    /// Makes the driver wrong on purpose, to prove that a checker finds it.
    #[cfg(any(test, feature = "sabotage"))]
    #[doc(hidden)]
    pub fn sabotage(&mut self, by: crate::driver::sim::Sabotage) {
        self.core().sabotage = Some(by);
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .or_else(|| payload.is::<crate::Cancelled>().then(|| "the main fiber was cancelled".into()))
        .unwrap_or_else(|| "the main fiber panicked".into())
}
