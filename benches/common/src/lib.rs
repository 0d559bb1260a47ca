//! The parts that the benchmarks share: clocks, statistics, the bare ring that they compare with,
//! the plan of reads, and the file.

pub mod busy;
pub mod clock;
pub mod file;
pub mod memory;
pub mod plan;
pub mod ring;
pub mod stats;
pub mod table;
