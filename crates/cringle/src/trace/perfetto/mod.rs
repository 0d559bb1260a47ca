//! The file, as Perfetto reads it: a row of packets in protobuf's encoding, without an end mark, so that a
//! file is whole after each of them.
//!
//! Each worker has a sequence of its own, with its own clock (differences, of nanoseconds) and its own
//! table of names. Only what Perfetto needs of the format is written, which a hundred lines can; reading it
//! back is tested with a parser that others made.

mod fibers;
mod output;
mod sequence;
mod track;

pub(super) use output::Output;
pub(super) use track::Track;
