//! Traces of real programs, read back.
