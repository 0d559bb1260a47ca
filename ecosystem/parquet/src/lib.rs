//! The example is in `examples/`, its tests are in `tests/`.
