//! Bugs to be made on purpose: a checker that has never failed proves nothing.

use super::{Core, Cqe, Flight, Sim};
use crate::driver::Op;

/// What the driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Sabotage {
    /// A completion comes twice.
    TwiceCompleted,
    /// A completion does not come, unless the op is cancelled.
    NeverCompleted,
    /// Somebody writes to a buffer while the op has it.
    TouchedBefore,
    /// Somebody writes to a buffer after the op and before its completion is taken.
    TouchedAfter,
    /// A buffer that is to be written is changed meanwhile.
    WriteChanged,
    /// A descriptor is opened and nobody told.
    LeakedDescriptor,
    /// A sync answers and does nothing.
    SyncIgnored,
    /// The interpreter starts a scope's fiber outside of it.
    ScopeNotJoined,
    /// A read returns another file's bytes.
    WrongBytes,
    /// Somebody writes to what a send without a copy has sent, while the network has it.
    SentChanged,
}

/// Before an op is performed.
pub(super) fn before(core: &mut Core, flight: &Flight) {
    let reads = matches!(flight.op, Op::Read { .. });
    let writes = matches!(flight.op, Op::Write { .. });
    if reads && core.is_sabotaged(Sabotage::TouchedBefore)
        || writes && core.is_sabotaged(Sabotage::WriteChanged)
    {
        flight.lent.touch();
    }
}

/// An op was performed, and its memory is still its own.
pub(super) fn performed(core: &mut Core, flight: &Flight) {
    if matches!(flight.op, Op::Read { .. }) && core.is_sabotaged(Sabotage::WrongBytes) {
        flight.lent.touch();
    }
}

/// After an op was performed; whether its completion is to be lost.
pub(super) fn after(core: &mut Core, flight: &Flight) -> bool {
    let reads = matches!(flight.op, Op::Read { .. });
    if reads && core.is_sabotaged(Sabotage::TouchedAfter) {
        flight.lent.touch();
    }
    reads && core.is_sabotaged(Sabotage::NeverCompleted)
}

/// An op has its result, and its memory is still lent.
pub(super) fn noted(core: &mut Core, flight: &Flight) {
    if core.is_sabotaged(Sabotage::SentChanged) {
        flight.lent.touch();
    }
}

/// A completion was taken.
pub(super) fn ended(core: &mut Core, sim: &mut Sim, number: u64) {
    if core.is_sabotaged(Sabotage::TwiceCompleted) {
        core.sabotage = None;
        sim.completions.push_back(Cqe::Op { flight: number, result: 0 });
    }
}

/// A cancel came for an op whose completion was lost: it comes now, for the run to end.
pub(super) fn deliver_lost(core: &mut Core, sim: &mut Sim, number: u64) -> bool {
    let lost = core.is_sabotaged(Sabotage::NeverCompleted) && sim.flights.contains_key(&number);
    if lost {
        sim.post(core, Cqe::Op { flight: number, result: -libc::ECANCELED });
    }
    lost
}
