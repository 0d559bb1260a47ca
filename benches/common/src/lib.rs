//! What the benchmarks share: clocks, statistics, the bare ring they all measure against, the
//! reads they do, and the file they do them on.

pub mod buffer;
pub mod busy;
pub mod clock;
pub mod file;
pub mod memory;
pub mod plan;
pub mod ring;
pub mod stats;
pub mod table;
