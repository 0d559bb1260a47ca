//! Rings that can do only what the driver asks of them (`IORING_REGISTER_RESTRICTIONS`, Linux
//! 5.10).
//!
//! Such a ring is made disabled. The kernel gets the rows of [`ring_use`](crate::ring_use) whose
//! ops it has, and enables the ring for good. From then on it refuses every other op, flag and
//! request with `EACCES`.

use crate::ring_use::{OPS, REQUESTS, entry_flags};
use cringle_sys as sys;
use io_uring::register::Restriction;
use io_uring::{IoUring, Probe};
use std::io;

/// Restricts and enables a ring that was made disabled.
pub(super) fn restrict(ring: &IoUring, probe: &Probe) -> io::Result<()> {
    // The kernel refuses to allow an op that it does not know.
    let known = OPS.iter().map(|(code, _)| *code).filter(|code| probe.is_supported(*code));
    let requests = REQUESTS.iter().filter(|request| !request.at_setup);
    let mut all: Vec<_> = known
        .map(Restriction::sqe_op)
        .chain(requests.map(|request| Restriction::register_op(request.number)))
        .chain([Restriction::sqe_flags_allowed(entry_flags().bits())])
        .collect();
    let ring = ring.submitter();
    ring.register_restrictions(&mut all)
        .and_then(|()| ring.register_enable_rings())
        .map_err(explain)
}

fn explain(error: io::Error) -> io::Error {
    let text = format!(
        "cannot restrict an io_uring: {error}; allow the requests RESTRICTIONS (11) and \
         ENABLE_RINGS (12) of io_uring_register, or do without Builder::restrict_rings and \
         CRINGLE_RESTRICT"
    );
    sys::explained(error, text)
}
