//! Panics that the tests ask for, in builds with debug assertions: to see that none leaves the
//! library.

/// Panics if `CRINGLE_C_SABOTAGE` in the environment names the place.
#[inline]
pub(crate) fn at(place: &str) {
    if cfg!(debug_assertions)
        && std::env::var_os("CRINGLE_C_SABOTAGE").is_some_and(|it| it == place)
    {
        panic!("sabotaged {place}");
    }
}
