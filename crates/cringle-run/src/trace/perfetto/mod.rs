//! The file format of Perfetto: a series of packets in protobuf's encoding, without an end mark, so
//! that a file is complete after each packet.
//!
//! Each worker has a sequence of packets, with its own clock (differences in nanoseconds) and its
//! own table of names. The code writes only the parts of the format that Perfetto needs. A test
//! reads the file with an independent parser.

mod fibers;
mod output;
mod sequence;
mod track;

pub(super) use fibers::OnTheWay;
pub(super) use output::Output;
pub(super) use track::Track;
