//! Deliberate bugs, to prove that the checkers find them.

use super::{Core, Cqe, Flight, Sim};

/// The bug that the driver simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Sabotage {
    /// A completion arrives twice.
    TwiceCompleted,
    /// A completion does not arrive unless the op is cancelled.
    NeverCompleted,
    /// Other code writes to a buffer while the op has it.
    TouchedBefore,
    /// Other code writes to a buffer after the op and before its completion is reaped.
    TouchedAfter,
    /// Other code changes a buffer while the op writes it to a file.
    WriteChanged,
    /// A descriptor is opened and never returned.
    LeakedDescriptor,
    /// A sync succeeds and does nothing.
    SyncIgnored,
    /// The interpreter repeats a sync that has failed, without the writes before it.
    SyncRepeated,
    /// The interpreter starts a scope's fiber outside of it.
    ScopeNotJoined,
    /// A read returns another file's bytes.
    WrongBytes,
    /// Other code writes to the buffer of a send without a copy before the network is done with it.
    SentChanged,
    /// The wake-up of a sleeping worker does not arrive.
    WakeUpLost,
}

/// Runs before an op is performed.
pub(super) fn before(core: &mut Core, flight: &Flight) {
    let reads = flight.op.is_read();
    let writes = flight.op.is_write();
    if reads && core.is_sabotaged(Sabotage::TouchedBefore)
        || writes && core.is_sabotaged(Sabotage::WriteChanged)
    {
        flight.lent.touch();
    }
}

/// Runs after an op was performed, before its memory is sealed.
pub(super) fn performed(core: &mut Core, flight: &Flight) {
    if flight.op.is_read() && core.is_sabotaged(Sabotage::WrongBytes) {
        flight.lent.touch();
    }
}

/// Runs after an op was performed. Returns whether its completion is lost.
pub(super) fn after(core: &mut Core, flight: &Flight) -> bool {
    let reads = flight.op.is_read();
    if reads && core.is_sabotaged(Sabotage::TouchedAfter) {
        flight.lent.touch();
    }
    reads && core.is_sabotaged(Sabotage::NeverCompleted)
}

/// Runs when an op has its result and its memory is still lent.
pub(super) fn early_result(core: &mut Core, flight: &Flight) {
    if core.is_sabotaged(Sabotage::SentChanged) {
        flight.lent.touch();
    }
}

/// Runs after a completion was reaped.
pub(super) fn ended(core: &mut Core, sim: &mut Sim, number: u64) {
    if core.is_sabotaged(Sabotage::TwiceCompleted) {
        core.sabotage = None;
        sim.completions.push_back(Cqe::Op { flight: number, result: 0 });
    }
}

/// Delivers a lost completion when its op is cancelled, so that the run ends.
pub(super) fn deliver_lost(core: &mut Core, sim: &mut Sim, number: u64) -> bool {
    let lost = core.is_sabotaged(Sabotage::NeverCompleted) && sim.flights.contains_key(&number);
    if lost {
        sim.post(core, Cqe::Op { flight: number, result: -libc::ECANCELED });
    }
    lost
}
