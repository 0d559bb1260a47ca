//! The set-up of a ring with the features of this kernel.
//!
//! All features are requested at once. If the kernel refuses the combination (`EINVAL`), each
//! feature is tried on a small ring of its own, so that an older kernel loses only the features
//! that it lacks. Features are probed by trying them, never by the kernel's version.

use super::restrict::restrict;
use crate::{Feature, Features};
use io_uring::IoUring;
use std::io;
use std::time::Duration;

/// The parameters of a ring.
#[derive(Clone, Debug)]
pub struct UringOptions {
    /// Entries of the submission queue; the kernel rounds up to a power of two.
    pub entries: u32,
    /// Ops that may be in the kernel at once (**I7**).
    pub in_flight_limit: u32,
    /// A kernel thread polls the submission queue, and sleeps after it was idle for this long.
    pub sqpoll: Option<Duration>,
    /// Whether direct reads and writes get a ring of their own, whose completions are polled for.
    pub iopoll: bool,
    /// The features to use if the kernel has them.
    pub features: Features,
    /// Whether the kernel refuses what the driver never asks of a ring.
    pub restrict: bool,
}

/// Completion queue entries reserved for cancels and wake-ups (**I7**).
pub(super) const RESERVED_CQES: u32 = 64;

/// The kernel's limit for a completion queue.
const MAX_CQ_ENTRIES: u32 = 65_536;

impl UringOptions {
    /// Returns the parameters of these sizes, with all features of the kernel.
    pub fn new(entries: u32, in_flight_limit: u32) -> UringOptions {
        let features = Features::all();
        let (sqpoll, iopoll, restrict) = (None, false, false);
        UringOptions { entries, in_flight_limit, sqpoll, iopoll, features, restrict }
    }

    /// The entries of the completion queue: two for each op within the limit, its result and its
    /// release, and the reserve. For limits above 32,736 the largest queue is smaller than that,
    /// and the kernel keeps the completions that do not fit (`NODROP`).
    pub fn cq_entries(&self) -> u32 {
        let reserve = RESERVED_CQES.min(self.in_flight_limit);
        (2 * self.in_flight_limit + reserve).next_power_of_two().clamp(2, MAX_CQ_ENTRIES)
    }
}

/// Makes the ring. Returns it with the wanted features that it has.
pub(super) fn make(options: &UringOptions) -> io::Result<(IoUring, Features)> {
    let mut features = compatible(options.features, options.sqpoll.is_some());
    // An op and its release are submitted together.
    let size = (options.entries.max(2), options.cq_entries());
    let ring = match make_when_freed(size, features, options) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            features = probe_setup(features, options);
            make_when_freed(size, features, options)
        }
        other => other,
    }
    .map_err(super::setup_error::explain)?;
    require(&ring)?;
    Ok((ring.0, without_missing_ops(ring.1, features)?))
}

/// The attempts to make a ring while the kernel frees the memory of closed ones: half a second.
const FREEING_ROUNDS: u32 = 100;
const FREEING_PAUSE: Duration = Duration::from_millis(5);

type Made = (IoUring, io_uring::Probe);
/// The entries of the submission queue and of the completion queue.
type Size = (u32, u32);

/// Makes the ring, and retries on `ENOMEM`: a kernel thread returns the locked memory of a closed
/// ring some time after the close.
fn make_when_freed(size: Size, has: Features, options: &UringOptions) -> io::Result<Made> {
    let mut rounds = 0;
    loop {
        match try_make(size, has, options) {
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && rounds < FREEING_ROUNDS => {
                rounds += 1;
                std::thread::sleep(FREEING_PAUSE);
            }
            result => return result,
        }
    }
}

fn try_make((sq, cq): Size, has: Features, options: &UringOptions) -> io::Result<Made> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(cq.max(sq));
    if has.has(Feature::SubmitAll) {
        builder.setup_submit_all();
    }
    if has.has(Feature::SingleIssuer) {
        builder.setup_single_issuer();
    }
    if has.has(Feature::DeferTaskrun) {
        builder.setup_defer_taskrun();
    } else if has.has(Feature::TaskrunFlag) {
        builder.setup_coop_taskrun();
    }
    if has.has(Feature::TaskrunFlag) {
        builder.setup_taskrun_flag();
    }
    if has.has(Feature::NoSqarray) {
        builder.setup_no_sqarray();
    }
    if let Some(idle) = options.sqpoll {
        builder.setup_sqpoll(idle.as_millis().clamp(1, u128::from(u32::MAX)) as u32);
    }
    if options.restrict {
        builder.setup_r_disabled();
    }
    let ring = builder.build(sq)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if options.restrict {
        restrict(&ring, &probe)?;
    }
    // A seccomp filter may allow a ring to be made and not to be entered: fail now in that case.
    // SAFETY: no memory is passed: nothing is submitted, and there is no argument.
    unsafe { ring.submitter().enter::<()>(0, 0, 0, None) }?;
    Ok((ring, probe))
}

/// Removes features that exclude each other: deferred task work needs a single issuer, and with a
/// polling kernel thread no task of this process has work to defer.
fn compatible(features: Features, sqpoll: bool) -> Features {
    let mut features = features;
    if sqpoll {
        features = features.without(Feature::DeferTaskrun).without(Feature::TaskrunFlag);
    }
    if !features.has(Feature::SingleIssuer) {
        features = features.without(Feature::DeferTaskrun);
    }
    features
}

/// Tries each set-up feature on the smallest ring, together with the features that worked before.
fn probe_setup(wanted: Features, options: &UringOptions) -> Features {
    const SETUP: [Feature; 5] = [
        Feature::SubmitAll,
        Feature::SingleIssuer,
        Feature::DeferTaskrun,
        Feature::TaskrunFlag,
        Feature::NoSqarray,
    ];
    let others = SETUP.into_iter().fold(wanted, Features::without);
    SETUP.into_iter().filter(|&feature| wanted.has(feature)).fold(others, |working, feature| {
        let candidate = compatible(working.with(feature), options.sqpoll.is_some());
        if try_make((1, 2), candidate, options).is_ok() { candidate } else { working }
    })
}

/// Fails if the ring lacks a feature that the driver needs. All of them are older than Linux 6.1.
fn require(made: &Made) -> io::Result<()> {
    let params = made.0.params();
    if params.is_feature_nodrop() && params.is_feature_ext_arg() && params.is_feature_rw_cur_pos() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this kernel's io_uring is too old for cringle; Linux 6.1 or newer is needed",
    ))
}

/// Removes the features whose ops the kernel lacks. Fails if it lacks an op that every ring needs.
fn without_missing_ops(probe: io_uring::Probe, features: Features) -> io::Result<Features> {
    let is_missing = |code: &u8| !probe.is_supported(*code);
    if let Some((_, name)) = Features::NEEDED_OPS.iter().find(|(code, _)| is_missing(code)) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's io_uring has no {name}; Linux 6.1 or newer is needed"),
        ));
    }
    let lacks = |feature: &Feature| feature.opcodes().iter().any(is_missing);
    Ok(features.iter().filter(lacks).fold(features, Features::without))
}
