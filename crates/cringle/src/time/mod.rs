//! Time, as the runtime that the caller is in counts it.

mod clock;

pub use clock::now;
