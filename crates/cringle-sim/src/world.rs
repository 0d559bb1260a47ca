//! A simulated machine, whose files and clock persist across runs and losses of power.

use super::{Checker, Failure, Faults, Options, Stats};
use crate::driver::{Core, RunWorld, lock};
use cringle_core::choices::Balance;
use cringle_run::run::{Builder, InternalOptions};
use cringle_sys::lock::{Mutex, MutexGuard};
use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A simulated machine, whose files and virtual time persist from run to run.
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
    balance: Option<Balance>,
}

impl World {
    /// Returns a machine without files. The seed determines every choice.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let world = World::new(7, &Options::new());
    /// assert!(world.paths().is_empty());
    /// ```
    pub fn new(seed: u64, options: &Options) -> World {
        World { core: Arc::new(Mutex::new(Core::new(seed, options))), seed, balance: None }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// Runs `f` as [`cringle::run`](cringle_run::run::run) does, on the workers of this machine.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let mut world = World::new(7, &Options::new());
    /// world.run(|| cringle::fs::write("/log", "first"))??;
    /// assert_eq!(world.run(|| cringle::fs::read("/log"))??, b"first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The finding of a [`Checker`], or the panic of `f`. The return value of `f` must not contain
    /// an open file of the world, which would count as left open.
    ///
    /// # Panics
    ///
    /// Within another run, simulated or not.
    pub fn run<T>(&mut self, f: impl FnOnce() -> T) -> Result<T, Failure> {
        self.run_once(f).map(|value| value.expect("this run does not lose power"))
    }

    /// Runs `f` as [`run`](Self::run) does, but the power may fail at a moment that the seed
    /// determines. Then all fibers are cancelled, their operations fail with `EIO`, the files are
    /// as after a [`crash`](Self::crash) at that moment, and the result is `None`.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let mut world = World::new(7, &Options::new());
    /// match world.run_until_power_loss(|| cringle::fs::write("/log", "first"))? {
    ///     Some(result) => result?,
    ///     None => println!("the power failed: {:?}", world.read("/log")),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run). A panic after the loss of power is not a failure.
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

    /// Returns the options of a run in this world. It has no watchdog, and counts as open, so that
    /// no call blocks the thread in the belief that no other fiber could run.
    fn builder(&self) -> Builder {
        let workers = self.core().begin_run();
        let world = Arc::new(RunWorld::of(&self.core));
        Builder::new().workers(workers).open_to_outside().watchdog(None::<Duration>).in_world(world)
    }

    fn run_once<T>(&mut self, f: impl FnOnce() -> T) -> Result<Option<T>, Failure> {
        let body = || {
            let result = catch_unwind(AssertUnwindSafe(f));
            if let Err(payload) = &result {
                self.core().note_panic(&message_of(&**payload));
            }
            result
        };
        let mut builder = self.builder();
        if let Some(balance) = self.balance {
            builder = builder.balance(balance);
        }
        let ended = builder.run(body);
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

    /// Simulates a loss of power and a restart. Of the data that was not synced, each block of 512
    /// bytes may be lost or kept, and so may each file that was never synced. The first sync of a
    /// file also keeps its name, as on ext4, XFS and btrfs. A sync of a directory keeps the names
    /// in it. Files that were removed or renamed stay so. The pages of 4,096 bytes that a
    /// [sync that failed](super::Fault::InputOutput) has dropped are lost, whether or not a later
    /// sync has succeeded, unless they were written to again.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let mut world = World::new(7, &Options::new());
    /// world.write("/log", "synced")?;
    /// world.crash();
    /// assert_eq!(world.read("/log").as_deref(), Some(&b"synced"[..]));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn crash(&mut self) {
        self.core().crash();
    }

    /// Returns the contents of a file, or `None` if it does not exist.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let world = World::new(7, &Options::new());
    /// assert_eq!(world.read("/log"), None);
    /// ```
    pub fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.core().files.read(path.as_ref().as_os_str().as_bytes())
    }

    /// Creates a file, or replaces its contents. The contents count as synced.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let mut world = World::new(7, &Options::new());
    /// world.write("/config", "verbose")?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error if no descriptor or memory is free.
    pub fn write(&mut self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.core().files.write(path.as_ref().as_os_str().as_bytes(), bytes.as_ref())
    }

    /// Removes a file, and returns whether it existed.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let mut world = World::new(7, &Options::new());
    /// assert!(!world.remove("/log"));
    /// ```
    pub fn remove(&mut self, path: impl AsRef<Path>) -> bool {
        self.core().files.remove(path.as_ref().as_os_str().as_bytes())
    }

    /// Returns the paths of all files, in order.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let mut world = World::new(7, &Options::new());
    /// world.write("/b", "")?;
    /// world.write("/a", "")?;
    /// assert_eq!(world.paths()[0].to_str(), Some("/a"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn paths(&self) -> Vec<PathBuf> {
        let core = self.core();
        let names = core.files.names().map(|name| OsStr::from_bytes(name).to_owned());
        names.map(|name| PathBuf::from(std::ffi::OsString::from_vec(name.into_vec()))).collect()
    }

    /// Disables all faults from now on, for a run that inspects the files of an earlier one.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let mut world = World::new(7, &Options::new());
    /// world.stop_faults();
    /// ```
    pub fn stop_faults(&mut self) {
        self.core().stop_faults();
    }

    /// Returns the enabled faults. With [`Options::swarm`], the seed determines them.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let world = World::new(7, &Options::new());
    /// println!("{:?}", world.faults());
    /// ```
    pub fn faults(&self) -> Faults {
        self.core().faults()
    }

    /// Returns the seed.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let world = World::new(7, &Options::new());
    /// assert_eq!(world.seed(), 7);
    /// ```
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the virtual time since the world was created.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let world = World::new(7, &Options::new());
    /// assert!(world.elapsed().is_zero());
    /// ```
    pub fn elapsed(&self) -> Duration {
        self.core().elapsed()
    }

    /// Returns the numbers of operations and of injected faults since the world was created.
    ///
    /// ```
    /// use cringle::sim::{Options, World};
    ///
    /// let world = World::new(7, &Options::new());
    /// println!("{:?}", world.stats());
    /// ```
    pub fn stats(&self) -> Stats {
        self.core().stats
    }

    /// Chooses whether fibers move between the workers, in place of the environment.
    #[doc(hidden)]
    pub fn set_balance(&mut self, balance: Balance) {
        self.balance = Some(balance);
    }

    /// Injects a bug into the driver, to prove that a checker detects it.
    #[cfg(any(test, feature = "sabotage"))]
    #[doc(hidden)]
    pub fn sabotage(&mut self, by: crate::driver::Sabotage) {
        self.core().sabotage = Some(by);
    }
}

brief_debug!(World, |it| seed: it.seed);

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .or_else(|| {
            payload
                .is::<cringle_core::cancelled::Cancelled>()
                .then(|| "the main fiber was cancelled".into())
        })
        .unwrap_or_else(|| "the main fiber panicked".into())
}
