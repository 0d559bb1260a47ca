//! Panics that the tests ask for, in builds with debug assertions: a bug must end no wait for ever.

/// Panics if `CRINGLE_PYTHON_SABOTAGE` in the environment names the place.
#[inline]
pub(crate) fn at(place: &str) {
    if cfg!(debug_assertions)
        && std::env::var_os("CRINGLE_PYTHON_SABOTAGE").is_some_and(|it| it == place)
    {
        panic!("sabotaged {place}");
    }
}
