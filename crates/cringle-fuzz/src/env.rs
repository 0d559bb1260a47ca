//! What the fibers of a running program share: where its files are, what a loss of power may do to
//! them, and what was found wrong.

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

/// Why the interpreter itself tries something again: these faults may be the reason.
#[derive(Debug)]
pub(super) struct Because(pub(super) &'static [Fault]);

impl Because {
    pub(super) fn error(self) -> io::Error {
        io::Error::other(self)
    }
}

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "as by {:?}", self.0)
    }
}

impl std::error::Error for Because {}

/// Tries of something that may fail for a while.
const MOST_TRIES: usize = 10_000;
/// After so many the disk is no more, where the power may be lost.
const DEAD_AFTER: usize = 300;

/// The program's, as one stretch of a fiber sees it.
#[derive(Clone)]
pub(super) struct Env {
    common: Arc<Common>,
    /// What may cut that stretch short.
    pub(super) frame: Arc<Frame>,
    #[cfg(test)]
    pub(super) sabotage: Option<cringle::sim::Sabotage>,
}

pub(super) struct Common {
    place: PathBuf,
    faults: Faults,
    may_lose_power: bool,
    ledger: Mutex<BTreeMap<(usize, usize), Versions>>,
    wrong: Mutex<Option<(Checker, String)>>,
    /// A cancel that nobody asked for, as far as is known. It may follow from something else.
    unasked: Mutex<Option<String>>,
    /// The main fiber has ended: those that are left are cancelled.
    ended: AtomicBool,
    /// The power is gone.
    dead: AtomicBool,
    /// Bodies that run now.
    running: AtomicUsize,
}

/// What a region may hold after a loss of power: anything since its last sync that was answered.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    pub(super) synced: bool,
    /// The first is what was synced.
    pub(super) since: Vec<Vec<u8>>,
}

/// The fiber is to end: it was cancelled, or something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop;

impl Env {
    /// For a place where these faults may happen, and a loss of power or not.
    pub(super) fn new(place: &Path, faults: Faults, may_lose_power: bool) -> Env {
        let common = Common {
            place: place.to_owned(),
            faults,
            may_lose_power,
            ledger: Mutex::default(),
            wrong: Mutex::default(),
            unasked: Mutex::default(),
            ended: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            running: AtomicUsize::new(0),
        };
        Env {
            common: Arc::new(common),
            frame: Arc::default(),
            #[cfg(test)]
            sabotage: None,
        }
    }

    /// The same within another frame.
    pub(super) fn within(self: &Arc<Self>, frame: Frame) -> Arc<Env> {
        Arc::new(Env { frame: Arc::new(frame), ..(**self).clone() })
    }

    /// The main fiber has ended.
    pub(super) fn has_ended(&self) {
        self.common.ended.store(true, Ordering::Release);
    }

    /// Whether the power was found to be gone.
    pub(super) fn is_dead(&self) -> bool {
        self.common.dead.load(Ordering::Acquire)
    }

    /// Whether everything may be cancelled by now.
    pub(super) fn may_be_over(&self) -> bool {
        self.common.ended.load(Ordering::Acquire) || self.common.may_lose_power
    }

    /// A body begins (or ends).
    pub(super) fn count_body(&self, begins: bool) {
        match begins {
            true => self.common.running.fetch_add(1, Ordering::AcqRel),
            false => self.common.running.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// What is wrong though every fiber went on as if nothing were.
    pub(super) fn afterwards(&self) -> Option<(Checker, String)> {
        if let Some(text) = self.unasked().take() {
            return Some((Checker::Outcome, text));
        }
        match self.common.running.load(Ordering::Acquire) {
            0 => None,
            left => Some((Checker::Scopes, format!("{left} fibers are left after the end"))),
        }
    }

    pub(super) fn unasked(&self) -> MutexGuard<'_, Option<String>> {
        self.common.unasked.lock().expect("no code panics under this lock")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.common.place.join(name)
    }

    pub(super) fn open(&self, name: &str, append: bool) -> Result<File, Stop> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).append(append);
        self.persist(|| options.open(self.path(name)))
    }

    /// Does what may fail for a while until it succeeds.
    pub(super) fn persist<T>(&self, mut f: impl FnMut() -> io::Result<T>) -> Result<T, Stop> {
        for tries in 0..MOST_TRIES {
            match f() {
                Ok(value) => return Ok(value),
                Err(e) if cancel::reason(&e).is_some() => return Err(self.told(&e)),
                Err(_) if self.is_wrong() => return Err(Stop),
                Err(e) if !self.may_fail_so(&e) => {
                    let text = format!("an error that no fault explains: {e:?}");
                    return Err(self.fail(Checker::Outcome, text));
                }
                // Nobody cancels what is protected, and no power is left to do it by.
                Err(e) if tries > DEAD_AFTER && e.raw_os_error() == Some(libc::EIO) => {
                    if self.common.may_lose_power {
                        self.common.dead.store(true, Ordering::Release);
                        return Err(Stop);
                    }
                }
                Err(_) => {}
            }
        }
        let error = f().err().map_or(String::from("it went well at last"), |e| e.to_string());
        Err(self.fail(Checker::Outcome, format!("{MOST_TRIES} tries failed: {error}")))
    }

    /// Whether a fault that is on here gives this error.
    fn may_fail_so(&self, e: &io::Error) -> bool {
        let cut = self.common.faults.has(Fault::ConnectionReset);
        if let Some(Because(faults)) = e.get_ref().and_then(|inner| inner.downcast_ref()) {
            return faults.iter().any(|&fault| self.common.faults.has(fault));
        }
        match (e.raw_os_error(), e.kind()) {
            (Some(libc::EINTR), _) => self.common.faults.has(Fault::Interrupted),
            (Some(libc::EIO), _) => {
                self.common.faults.has(Fault::InputOutput) || self.common.may_lose_power
            }
            (Some(libc::ENOSPC), _) => self.common.faults.has(Fault::NoSpace),
            (Some(libc::ECONNRESET | libc::EPIPE), _) => cut,
            (None, io::ErrorKind::UnexpectedEof) => {
                self.common.faults.has(Fault::ZeroTransfer) || cut
            }
            (None, io::ErrorKind::WriteZero) => self.common.faults.has(Fault::ZeroTransfer),
            _ => false,
        }
    }

    /// Something is wrong. The first to be told of counts.
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

    /// The fiber is about to make its region this.
    pub(super) fn will_write(&self, body: &Body, content: &[u8]) {
        let fresh = || Versions { synced: false, since: vec![vec![0; REGION_BYTES]] };
        let mut ledger = self.ledger();
        let versions = ledger.entry((body.file, body.region)).or_insert_with(fresh);
        versions.since.push(content.to_owned());
    }

    /// A sync of the fiber's file has been answered: its region, as it is, stays.
    pub(super) fn has_synced(&self, body: &Body, content: &[u8]) {
        let versions = Versions { synced: true, since: vec![content.to_owned()] };
        self.ledger().insert((body.file, body.region), versions);
    }

    /// What a file with regions that were synced lost, if it is not as the ledger allows.
    pub(super) fn lost(
        &self,
        program: &Program,
        read: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<String> {
        for (&(file, region), versions) in self.ledger().iter() {
            let name = super::file_name(file);
            let content = match read(&name) {
                Some(content) => content,
                None if versions.synced => return Some(format!("{name} was synced and is gone")),
                None => continue,
            };
            if content.len() > program.file_bytes() {
                return Some(format!("{name} is longer than anybody made it"));
            }
            let first = region * REGION_BYTES;
            for byte in 0..REGION_BYTES {
                let found = content.get(first + byte).copied().unwrap_or(0);
                let unsynced = !versions.synced && found == 0;
                if !unsynced && versions.since.iter().all(|version| version[byte] != found) {
                    let at = first + byte;
                    return Some(format!(
                        "byte {at} of {name} is {found}, which nobody wrote there \
                                         since it was last synced"
                    ));
                }
            }
        }
        None
    }
}
