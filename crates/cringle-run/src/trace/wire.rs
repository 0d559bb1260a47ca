//! The numbers of Perfetto's wire format that traces use, shared by the writer here and by the
//! reader of `cringle trace`. Not a stable API.
//!
//! Each module is a message of Perfetto's `.proto` files, and its `u32` constants are field
//! numbers; `u64` constants are values of such a field.

/// The wire types of Protobuf's encoding, the low three bits of a field's tag.
pub mod wire_type {
    pub const VARINT: u32 = 0;
    pub const FIXED64: u32 = 1;
    pub const BYTES: u32 = 2;
    pub const FIXED32: u32 = 5;
}

/// The tag of a field: its number and its wire type.
#[inline(always)]
pub const fn tag(field: u32, wire_type: u32) -> u64 {
    (field << 3 | wire_type) as u64
}

/// From this number on, names are of fibers that the library itself has spawned, such as the
/// acceptors of a server.
pub const LIBRARY_NAMES: u64 = 1 << 20;

pub use cringle_driver::trace::flow::*;

/// Fibers have consecutive numbers, in each sequence from 1. A fiber that has moved keeps its
/// number, and the number of the sequence that has numbered it is above this bit there.
pub const HOME_BIT: u32 = 32;

/// Names of events that the reader looks for.
pub mod event_name {
    /// A call that was answered without the driver.
    pub const INLINE: &str = "inline";
    /// A call that would have blocked inline, and was queued instead.
    pub const INLINE_MISS: &str = "inline miss";
    /// The kernel is entered without waiting.
    pub const ENTER: &str = "enter";
    /// The kernel is entered, and the worker sleeps there.
    pub const WAIT: &str = "wait";
    pub const CANCEL: &str = "cancel";
    /// A fiber leaves for another worker.
    pub const DEPART: &str = "depart";
    /// A fiber has arrived from another worker.
    pub const ARRIVE: &str = "arrive";
    /// A fiber that another worker could have taken has not left.
    pub const TAKE_BACK: &str = "take back";
    /// What a fiber that returns waits for.
    pub const END: &str = "end";
}

/// An annotation of an event. Its discriminant is the number under which each sequence interns its
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Note {
    Fiber = 1,
    ReadyNs,
    WaitsFor,
    Result,
    Queued,
    Lost,
    DueNs,
    Reason,
    Of,
}

impl Note {
    /// Every annotation, with its name in the file.
    pub const NAMES: [(Note, &str); 9] = [
        (Note::Fiber, "fiber"),
        (Note::ReadyNs, "ready_ns"),
        (Note::WaitsFor, "waits_for"),
        (Note::Result, "result"),
        (Note::Queued, "queued"),
        (Note::Lost, "lost"),
        (Note::DueNs, "due_ns"),
        (Note::Reason, "reason"),
        (Note::Of, "of"),
    ];
}

/// `Trace`.
pub const PACKET: u32 = 1;

/// The ID of the track of the process. The IDs of tracks are unique and not 0.
pub const PROCESS_TRACK: u64 = 1;

/// `TracePacket`.
pub mod packet {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const FLAGS: u32 = 13;
    pub const PREVIOUS_DROPPED: u32 = 42;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK: u32 = 60;

    /// `SEQ_INCREMENTAL_STATE_CLEARED`, `SEQ_NEEDS_INCREMENTAL_STATE`.
    pub const CLEARED: u64 = 1;
    pub const NEEDED: u64 = 2;
}

/// `ClockSnapshot` and its `Clock`.
pub mod clock {
    pub const CLOCKS: u32 = 1;
    pub const ID: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const IS_INCREMENTAL: u32 = 3;

    pub const BOOTTIME: u64 = 6;
    /// The first clock that a sequence defines for itself.
    pub const OURS: u64 = 64;
}

/// `TracePacketDefaults` and `TrackEventDefaults`.
pub mod defaults {
    pub const TRACK_EVENT: u32 = 11;
    pub const CLOCK: u32 = 58;
    pub const TRACK: u32 = 11;
}

/// `TrackDescriptor` and the messages in it.
pub mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    /// Fields of `ThreadDescriptor` and `ProcessDescriptor`.
    pub const PID: u32 = 1;
    pub const TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
    pub const PROCESS_NAME: u32 = 6;
}

/// `TrackEvent`.
pub mod event {
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER_VALUE: u32 = 30;
    pub const FLOW: u32 = 47;
    pub const LAST_FLOW: u32 = 48;

    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
}

/// `DebugAnnotation`.
pub mod annotation {
    pub const NAME: u32 = 1;
    pub const UINT: u32 = 3;
    pub const INT: u32 = 4;
    pub const TEXT: u32 = 17;
}

/// `InternedData` and its entries.
pub mod interned {
    pub const EVENT_NAMES: u32 = 2;
    pub const ANNOTATION_NAMES: u32 = 3;
    pub const TEXTS: u32 = 29;
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
}

/// Returns whether a file that begins with these bytes was written as a trace by this library: its
/// first packet describes the process.
pub fn is_trace(start: &[u8]) -> bool {
    /// Returns the bytes after a number.
    fn after_varint(bytes: &[u8]) -> &[u8] {
        let length = bytes.iter().position(|&byte| byte < 0x80).map_or(bytes.len(), |at| at + 1);
        &bytes[length..]
    }
    const NUMBER: u8 = tag(packet::SEQUENCE, wire_type::VARINT) as u8;
    // The tag of `TRACK` takes two bytes.
    const TRACK: u64 = tag(packet::TRACK, wire_type::BYTES);
    const TRACK_TAG: [u8; 2] = [TRACK as u8 | 0x80, (TRACK >> 7) as u8];
    const PROCESS: [u8; 3] = [
        tag(track::UUID, wire_type::VARINT) as u8,
        PROCESS_TRACK as u8,
        tag(track::PROCESS, wire_type::BYTES) as u8,
    ];
    let packet = start.strip_prefix(&[tag(PACKET, wire_type::BYTES) as u8]).map(after_varint);
    let sequence = packet.and_then(|packet| packet.strip_prefix(&[NUMBER])).map(after_varint);
    let track = sequence.and_then(|bytes| bytes.strip_prefix(&TRACK_TAG)).map(after_varint);
    track.is_some_and(|track| track.starts_with(&PROCESS))
}
