//! The memory of rings that counts against `RLIMIT_MEMLOCK`.
//!
//! Where the kernel counts rings, `io_uring_setup` adds the pages of both mappings of a ring to
//! those of the caller's user, over all processes and containers of the host, and fails with
//! `ENOMEM` if the sum exceeds the caller's soft limit. `CAP_IPC_LOCK` of the initial user
//! namespace exempts. Linux before 5.12 and from 6.14 to 7.2 counts them; between and after, the
//! control group of memory counts them instead. Distributions port such changes to older kernels,
//! so this module tests by using rings.

use super::child::{Reply, ask_child};
use super::permissions::{CAP_IPC_LOCK, Permissions};
use super::raw::{self, Params};
use cringle_report::failure::Failure;
use cringle_report::machine::cache::page_bytes;
use cringle_report::machine::cpus;
use rlimit::Resource;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// What the rings of a program need, and what this process can have.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Rings {
    /// The workers of a program that chooses no number.
    #[serde(rename = "workers")]
    pub wanted: usize,
    /// The number of rings of the driver's size that could be created at once, at most `workers`.
    #[serde(rename = "created")]
    pub made: usize,
    /// The error number of the first that could not.
    pub error: Option<i32>,
    /// The size of one ring: the whole pages of its two mappings.
    pub ring_bytes: u64,
    /// Whether the kernel counts rings of users without `CAP_IPC_LOCK`; `null` if unknown.
    pub counted: Option<bool>,
    /// The size of one ring by an experiment: the least increase of the limit that admits another.
    /// `null` if rings are not counted, or the limit is too low to make three.
    pub counted_ring_bytes: Option<u64>,
    /// What other rings and registered buffers of this user take meanwhile.
    pub others_bytes: Option<u64>,
}

impl Rings {
    /// Creates a ring of the driver's size for each worker, and makes the experiment, in children.
    pub(crate) fn examine() -> Rings {
        let counts = ask_child(count).numbers;
        let pages = |at: usize| Some(u64::try_from(*counts.get(at)?).ok()? * page_bytes());
        let wanted = workers().unwrap_or(cpus::allowed().len());
        let answer = ask_child(|reply| create(wanted, reply));
        let mut numbers = answer.numbers.into_iter();
        let ring_bytes = numbers.next().and_then(|bytes| u64::try_from(bytes).ok());
        let (made, failed): (Vec<_>, Vec<_>) = numbers.partition(|error| *error == 0);
        Rings {
            wanted,
            made: made.len(),
            error: failed.first().copied(),
            ring_bytes: ring_bytes.unwrap_or_else(|| Params::expected().ring_bytes()),
            counted: counts.first().map(|counted| *counted != 0),
            counted_ring_bytes: pages(1),
            others_bytes: pages(2),
        }
    }

    pub(crate) fn is_enough(&self) -> bool {
        self.made == self.wanted
    }

    /// Whether `ENOMEM` for a ring can come from the limit of locked memory.
    pub(crate) fn are_limited(&self, permissions: &Permissions) -> bool {
        let soft = Resource::MEMLOCK.get().map_or(0, |(soft, _)| soft);
        let is_exempt = permissions.can(CAP_IPC_LOCK) == Some(true);
        self.counted != Some(false) && !is_exempt && soft != u64::MAX
    }

    /// The size of the rings of all workers.
    pub(crate) fn needed_bytes(&self) -> u64 {
        self.ring_bytes * self.wanted as u64
    }

    /// The number of rings that this limit admits beside the others of the user.
    pub(crate) fn fitting(&self, limit: u64) -> u64 {
        limit.saturating_sub(self.others_bytes.unwrap_or(0)) / self.ring_bytes
    }
}

/// The workers that a program gets which chooses no number.
pub(crate) fn workers() -> Result<usize, Failure> {
    const VARIABLE: &str = "CRINGLE_WORKERS";
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(cpus::allowed().len());
    };
    let chosen = text.to_str().and_then(|text| text.parse().ok());
    chosen.filter(|workers| (1..=1024).contains(workers)).ok_or_else(|| {
        Failure::failed(format!("{VARIABLE} is {text:?}, must be 1 to 1024; or unset it"))
    })
}

/// Sends the size of a ring, and 0 for each ring that was created, or the error number.
fn create(wanted: usize, reply: &mut Reply) {
    let mut rings = Vec::new();
    for _ in 0..wanted {
        match raw::setup_of_the_driver(raw::setup_when_freed) {
            Ok((ring, params)) => {
                if rings.is_empty() {
                    reply.send(params.ring_bytes() as i32);
                }
                rings.push(ring);
                reply.send(0);
            }
            Err(error) => {
                if rings.is_empty() {
                    reply.send(Params::expected().ring_bytes() as i32);
                }
                return reply.send(error.raw_os_error().unwrap_or(libc::EIO));
            }
        }
    }
}

/// The attempts of the experiment to create a ring. Each costs some microseconds.
const ATTEMPTS: u64 = 4096;
/// The rings of the experiment.
const RINGS: usize = 12;
/// The kernel frees the rings of processes that have ended, as of earlier probes, with a delay. The
/// experiment waits so often and so long until there are no others, and then between its rings.
const WAITS: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Sends whether rings are counted, and then the pages of a ring and those of others of this user.
fn count(reply: &mut Reply) {
    let mut limit = Limit { attempts: 0, rings: Vec::new() };
    give_up_exemption();
    match limit.admits(0) {
        Some(is_admitted) => reply.send(i32::from(!is_admitted)),
        None => return,
    }
    if limit.rings.is_empty()
        && let Some((ring, others)) = limit.measure()
    {
        reply.send(ring as i32);
        reply.send(others as i32);
    }
}

/// Clears `CAP_IPC_LOCK` in this child, so that rings are counted as those of an ordinary user.
fn give_up_exemption() {
    if let Ok(mut sets) = capabilities(None) {
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        let _ = set_capabilities(None, sets);
    }
}

/// The limit of a child that creates rings under it, and keeps them.
struct Limit {
    attempts: u64,
    rings: Vec<OwnedFd>,
}

impl Limit {
    /// Creates one more ring under a limit of this many pages. `None` if that cannot be tried.
    fn admits(&mut self, pages: u64) -> Option<bool> {
        let (_, hard) = Resource::MEMLOCK.get().ok()?;
        self.attempts += 1;
        let soft = pages * page_bytes();
        if soft > hard || self.attempts > ATTEMPTS {
            return None;
        }
        Resource::MEMLOCK.set(soft, hard).ok()?;
        match raw::setup_of_the_driver(raw::setup) {
            Ok((ring, _)) => self.rings.push(ring),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => return Some(false),
            Err(_) => return None,
        }
        Some(true)
    }

    /// Measures the pages of a ring, and those of the user's others, when as few are left as will.
    fn measure(&mut self) -> Option<(u64, u64)> {
        let alone = Params::expected().ring_bytes() / page_bytes();
        for _ in 0..WAITS {
            if self.admits(alone)? {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let (mut least, mut found) = (Vec::new(), None);
        while self.rings.len() < RINGS {
            if self.rings.len() >= 3 {
                std::thread::sleep(PAUSE);
            }
            let below = least.last().copied().flatten().unwrap_or(0);
            let Some(next) = self.least_above(below) else { break };
            least.push(next);
            let [.., Some(first), Some(second), Some(third)] = least[..] else { continue };
            // Rings that other processes create or free meanwhile change a difference.
            let (before, ring) = (second.checked_sub(first), third.checked_sub(second));
            let (Some(before), Some(ring)) = (before, ring) else { continue };
            let others = third.checked_sub(self.rings.len() as u64 * ring);
            match others.filter(|_| before == ring) {
                Some(others) => found = Some((ring, others)),
                None => continue,
            }
            if others == Some(0) {
                break;
            }
        }
        found
    }

    /// The lowest limit above this one that admits one more ring, and creates that. `Some(None)` if
    /// the first one does, so that a lower one might.
    fn least_above(&mut self, pages: u64) -> Option<Option<u64>> {
        let mut above = pages + 1;
        while !self.admits(above)? {
            above += 1;
        }
        Some((above > pages + 1).then_some(above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_ring_is_that_of_its_mappings() {
        let (_ring, params) = raw::setup_of_the_driver(raw::setup_when_freed).unwrap();
        assert_eq!(params.ring_bytes(), Params::expected().ring_bytes());
        assert_eq!(params.ring_bytes() % page_bytes(), 0);
        // 256 entries of 64 bytes, and 8,192 completions of 16 bytes with 64 bytes before them.
        assert!(params.ring_bytes() > 256 * 64 + 8192 * 16);
    }
}
