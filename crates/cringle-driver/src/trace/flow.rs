//! The flows of a trace: the numbers by which it connects two events.

/// The bits that tell the flows of spawns and of wake-ups from the flows of operations, which have
/// none of them. [`LOCAL_FLOW`] marks a spawn or wake-up within one worker.
pub const LOCAL_FLOW: u64 = 1 << 61;
pub const SPAWN_FLOW: u64 = 1 << 62;
pub const WAKE_FLOW: u64 = 1 << 63;

/// The bits of the flow from a fiber's departure to its arrival at another worker.
pub const MOVE_FLOW: u64 = SPAWN_FLOW | WAKE_FLOW;

/// Returns the flow from a departure: the number of the departing worker's sequence, and a number
/// that is unique there.
pub const fn move_flow(sequence: u32, number: u32) -> u64 {
    MOVE_FLOW | (sequence as u64) << 32 | number as u64
}

/// Returns the sequence from which the flow of a move leads.
pub const fn departed_from(flow: u64) -> u32 {
    ((flow & !(MOVE_FLOW | LOCAL_FLOW)) >> 32) as u32
}

/// Returns whether a flow leads from an operation's queueing to its completion. 0 is no flow.
#[inline]
pub fn is_op_flow(flow: u64) -> bool {
    flow != 0 && flow & (LOCAL_FLOW | SPAWN_FLOW | WAKE_FLOW) == 0
}
