//! The state that the fibers of a running program share: the directory of its files, what these may
//! hold after a loss of power, and the failures found.

use super::frames::Frame;
use super::{Body, Program, REGION_BYTES};
use cringle::cancel;
use cringle::fs::{File, OpenOptions};
use cringle::sim::{Checker, Fault, Faults};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// An error by which the interpreter itself asks for a retry, with the faults that may be the
/// cause.
#[derive(Debug)]
pub(super) struct Because(pub(super) &'static [Fault]);

impl Because {
    pub(super) fn error(self) -> io::Error {
        io::Error::other(self)
    }
}

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an effect of {:?}", self.0)
    }
}

impl std::error::Error for Because {}

/// The number of attempts of a call that faults may fail.
const MOST_TRIES: usize = 10_000;
/// The number of attempts after which `EIO` means that the power is lost, where it may fail.
const POWER_LOST_AFTER: usize = 300;

/// The shared state, and the frame of one region of a fiber.
#[derive(Clone)]
pub(super) struct Env {
    common: Arc<Common>,
    /// The scopes and deadlines that may cancel the region.
    pub(super) frame: Arc<Frame>,
    #[cfg(test)]
    pub(super) sabotage: Option<cringle::sim::Sabotage>,
}

pub(super) struct Common {
    directory: PathBuf,
    faults: Faults,
    power_may_fail: bool,
    ledger: Mutex<BTreeMap<(usize, usize), Versions>>,
    wrong: Mutex<Option<(Checker, String)>>,
    /// The first cancel without a known cause. It may be a consequence of another failure.
    unexplained: Mutex<Option<String>>,
    /// Whether the main fiber has ended, so that the fibers left are cancelled.
    main_ended: AtomicBool,
    /// Whether the power is lost.
    power_lost: AtomicBool,
    /// The number of bodies that are running.
    running: AtomicUsize,
}

/// The contents that a region may have after a loss of power: all since its last completed sync.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    pub(super) synced: bool,
    /// The content that was synced, then the content after each later write.
    pub(super) since: Vec<Vec<u8>>,
}

/// Ends a fiber: it was cancelled, or the run has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop;

impl Env {
    /// Makes the state of a run with its files in `directory`, where these faults may happen.
    pub(super) fn new(directory: &Path, faults: Faults, power_may_fail: bool) -> Env {
        let common = Common {
            directory: directory.to_owned(),
            faults,
            power_may_fail,
            ledger: Mutex::default(),
            wrong: Mutex::default(),
            unexplained: Mutex::default(),
            main_ended: AtomicBool::new(false),
            power_lost: AtomicBool::new(false),
            running: AtomicUsize::new(0),
        };
        Env {
            common: Arc::new(common),
            frame: Arc::default(),
            #[cfg(test)]
            sabotage: None,
        }
    }

    /// Returns the same state with another frame.
    pub(super) fn within(self: &Arc<Self>, frame: Frame) -> Arc<Env> {
        Arc::new(Env { frame: Arc::new(frame), ..(**self).clone() })
    }

    /// Records that the main fiber has ended.
    pub(super) fn main_has_ended(&self) {
        self.common.main_ended.store(true, Ordering::Release);
    }

    /// Returns whether the power is known to be lost.
    pub(super) fn has_lost_power(&self) -> bool {
        self.common.power_lost.load(Ordering::Acquire)
    }

    /// Returns whether the end of the run may have cancelled every fiber by now.
    pub(super) fn may_end_all(&self) -> bool {
        self.common.main_ended.load(Ordering::Acquire) || self.common.power_may_fail
    }

    /// Counts a body that begins or ends.
    pub(super) fn count_body(&self, begins: bool) {
        if begins {
            self.common.running.fetch_add(1, Ordering::AcqRel);
        } else {
            self.common.running.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns a failure that no fiber has reported: a cancel without a cause, or a fiber left
    /// running.
    pub(super) fn afterwards(&self) -> Option<(Checker, String)> {
        if let Some(text) = self.unexplained().take() {
            return Some((Checker::Outcome, text));
        }
        match self.common.running.load(Ordering::Acquire) {
            0 => None,
            left => Some((Checker::Scopes, format!("{left} fibers outlive the run"))),
        }
    }

    pub(super) fn unexplained(&self) -> MutexGuard<'_, Option<String>> {
        self.common.unexplained.lock().expect("no code panics under this lock")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.common.directory.join(name)
    }

    pub(super) fn open(&self, name: &str, append: bool) -> Result<File, Stop> {
        self.persist(|| self.try_open(name, append))
    }

    pub(super) fn try_open(&self, name: &str, append: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).append(append);
        options.open(self.path(name))
    }

    /// Retries `f` while it fails by a fault that is on. `f` makes one call that can fail: of
    /// several, one might fail at each attempt.
    pub(super) fn persist<T>(&self, mut f: impl FnMut() -> io::Result<T>) -> Result<T, Stop> {
        let mut tries = 0;
        loop {
            match f() {
                Ok(value) => return Ok(value),
                Err(e) => self.may_try_again(tries, &e)?,
            }
            tries += 1;
        }
    }

    /// Ends the fiber, unless the error comes from a fault that is on, and few attempts have
    /// failed.
    pub(super) fn may_try_again(&self, tries: usize, e: &io::Error) -> Result<(), Stop> {
        if cancel::reason(e).is_some() {
            return Err(self.stopped_by(e));
        }
        if self.is_wrong() {
            return Err(Stop);
        }
        if !self.is_from_a_fault(e) {
            let text = format!("an error without an injected fault: {e:?}");
            return Err(self.fail(Checker::Outcome, text));
        }
        // Without power each call fails, and no cancel ends a fiber in a protected call.
        let is_io_error = e.raw_os_error() == Some(libc::EIO);
        if tries > POWER_LOST_AFTER && is_io_error && self.common.power_may_fail {
            self.common.power_lost.store(true, Ordering::Release);
            return Err(Stop);
        }
        if tries >= MOST_TRIES {
            return Err(self.fail(Checker::Outcome, format!("{tries} tries failed: {e}")));
        }
        Ok(())
    }

    /// Returns whether a fault that is on causes this error.
    fn is_from_a_fault(&self, e: &io::Error) -> bool {
        // An error that repeats an earlier one.
        let cause = e.get_ref().and_then(|inner| inner.source());
        if let Some(first) = cause.and_then(|cause| cause.downcast_ref()) {
            return self.is_from_a_fault(first);
        }
        let resets = self.common.faults.has(Fault::ConnectionReset);
        if let Some(Because(faults)) = e.get_ref().and_then(|inner| inner.downcast_ref()) {
            return faults.iter().any(|&fault| self.common.faults.has(fault));
        }
        match (e.raw_os_error(), e.kind()) {
            (Some(libc::EINTR), _) => self.common.faults.has(Fault::Interrupted),
            (Some(libc::EIO), _) => {
                self.common.faults.has(Fault::InputOutput) || self.common.power_may_fail
            }
            (Some(libc::ENOSPC), _) => self.common.faults.has(Fault::NoSpace),
            (Some(libc::ECONNRESET | libc::EPIPE), _) => resets,
            (None, io::ErrorKind::UnexpectedEof) => {
                self.common.faults.has(Fault::ZeroTransfer) || resets
            }
            (None, io::ErrorKind::WriteZero) => self.common.faults.has(Fault::ZeroTransfer),
            _ => false,
        }
    }

    /// Records a failure, unless there is one already, and ends the fiber.
    pub(super) fn fail(&self, checker: Checker, text: impl Into<String>) -> Stop {
        self.wrong().get_or_insert((checker, text.into()));
        Stop
    }

    pub(super) fn wrong(&self) -> MutexGuard<'_, Option<(Checker, String)>> {
        self.common.wrong.lock().expect("no code panics under this lock")
    }

    fn is_wrong(&self) -> bool {
        self.wrong().is_some()
    }

    fn ledger(&self) -> MutexGuard<'_, BTreeMap<(usize, usize), Versions>> {
        self.common.ledger.lock().expect("no code panics under this lock")
    }

    /// Records that the fiber is about to write, after which its region has this content.
    pub(super) fn will_write(&self, body: &Body, content: &[u8]) {
        let fresh = || Versions { synced: false, since: vec![vec![0; REGION_BYTES]] };
        let mut ledger = self.ledger();
        let versions = ledger.entry((body.file, body.region)).or_insert_with(fresh);
        versions.since.push(content.to_owned());
    }

    /// Records that a sync of the fiber's file has completed while its region had this content.
    pub(super) fn has_synced(&self, body: &Body, content: &[u8]) {
        let versions = Versions { synced: true, since: vec![content.to_owned()] };
        self.ledger().insert((body.file, body.region), versions);
    }

    /// Compares the files after a loss of power with the ledger; returns the first difference.
    pub(super) fn lost(
        &self,
        program: &Program,
        read: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<String> {
        for (&(file, region), versions) in self.ledger().iter() {
            let name = super::file_name(file);
            let content = match read(&name) {
                Some(content) => content,
                None if versions.synced => {
                    return Some(format!("{name} was synced and is missing"));
                }
                None => continue,
            };
            if content.len() > program.file_bytes() {
                return Some(format!("{name} is longer than it was ever written"));
            }
            let first = region * REGION_BYTES;
            for byte in 0..REGION_BYTES {
                let found = content.get(first + byte).copied().unwrap_or(0);
                let is_unwritten = !versions.synced && found == 0;
                if !is_unwritten && versions.since.iter().all(|version| version[byte] != found) {
                    let at = first + byte;
                    return Some(format!(
                        "byte {at} of {name} is {found}, which was not written there since the \
                         last sync"
                    ));
                }
            }
        }
        None
    }
}
