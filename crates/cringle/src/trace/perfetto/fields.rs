//! Numbers of fields and constants of Perfetto's `.proto` files, as far as they are used.

/// `Trace`.
pub(super) const PACKET: u32 = 1;

/// `TracePacket`.
pub(super) mod packet {
    pub(in super::super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in super::super) const TIMESTAMP: u32 = 8;
    pub(in super::super) const SEQUENCE: u32 = 10;
    pub(in super::super) const TRACK_EVENT: u32 = 11;
    pub(in super::super) const INTERNED: u32 = 12;
    pub(in super::super) const FLAGS: u32 = 13;
    pub(in super::super) const PREVIOUS_DROPPED: u32 = 42;
    pub(in super::super) const DEFAULTS: u32 = 59;
    pub(in super::super) const TRACK: u32 = 60;

    /// `SEQ_INCREMENTAL_STATE_CLEARED`, `SEQ_NEEDS_INCREMENTAL_STATE`.
    pub(in super::super) const CLEARED: u64 = 1;
    pub(in super::super) const NEEDED: u64 = 2;
}

/// `ClockSnapshot` and its `Clock`.
pub(super) mod clock {
    pub(in super::super) const CLOCKS: u32 = 1;
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const TIMESTAMP: u32 = 2;
    pub(in super::super) const IS_INCREMENTAL: u32 = 3;

    pub(in super::super) const BOOTTIME: u64 = 6;
    /// The first number that a sequence may use as it likes.
    pub(in super::super) const OURS: u64 = 64;
}

/// `TracePacketDefaults` and `TrackEventDefaults`.
pub(super) mod defaults {
    pub(in super::super) const TRACK_EVENT: u32 = 11;
    pub(in super::super) const CLOCK: u32 = 58;
    pub(in super::super) const TRACK: u32 = 11;
}

/// `TrackDescriptor` and what is in it.
pub(super) mod track {
    pub(in super::super) const UUID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const PROCESS: u32 = 3;
    pub(in super::super) const THREAD: u32 = 4;
    pub(in super::super) const PARENT: u32 = 5;
    pub(in super::super) const COUNTER: u32 = 8;
    /// Of `ThreadDescriptor` and `ProcessDescriptor`.
    pub(in super::super) const PID: u32 = 1;
    pub(in super::super) const TID: u32 = 2;
    pub(in super::super) const THREAD_NAME: u32 = 5;
    pub(in super::super) const PROCESS_NAME: u32 = 6;
}

/// `TrackEvent`.
pub(super) mod event {
    pub(in super::super) const ANNOTATION: u32 = 4;
    pub(in super::super) const TYPE: u32 = 9;
    pub(in super::super) const NAME: u32 = 10;
    pub(in super::super) const TRACK: u32 = 11;
    pub(in super::super) const COUNTER_VALUE: u32 = 30;
    pub(in super::super) const FLOW: u32 = 47;
    pub(in super::super) const LAST_FLOW: u32 = 48;

    pub(in super::super) const BEGIN: u64 = 1;
    pub(in super::super) const END: u64 = 2;
    pub(in super::super) const INSTANT: u64 = 3;
    pub(in super::super) const COUNTER: u64 = 4;
}

/// `DebugAnnotation`.
pub(super) mod annotation {
    pub(in super::super) const NAME: u32 = 1;
    pub(in super::super) const UINT: u32 = 3;
    pub(in super::super) const INT: u32 = 4;
    pub(in super::super) const TEXT: u32 = 17;
}

/// `InternedData` and its entries.
pub(super) mod interned {
    pub(in super::super) const EVENT_NAMES: u32 = 2;
    pub(in super::super) const ANNOTATION_NAMES: u32 = 3;
    pub(in super::super) const TEXTS: u32 = 29;
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
}
