//! What only a build with the detector has.

#[cfg(any(debug_assertions, feature = "detect"))]
mod has {
    /// Whether this build has the detector.
    pub const COMPILED: bool = true;

    /// A value that only such a build has. It has no size in others.
    pub struct Compiled<T>(T);

    impl<T> Compiled<T> {
        pub const fn new(value: T) -> Compiled<T> {
            Compiled(value)
        }

        #[inline(always)]
        pub fn get(&self) -> Option<&T> {
            Some(&self.0)
        }
    }
}

#[cfg(not(any(debug_assertions, feature = "detect")))]
mod has {
    use std::marker::PhantomData;

    pub const COMPILED: bool = false;

    pub struct Compiled<T>(PhantomData<T>);

    impl<T> Compiled<T> {
        pub const fn new(value: T) -> Compiled<T> {
            std::mem::forget(value);
            Compiled(PhantomData)
        }

        #[inline(always)]
        pub fn get(&self) -> Option<&T> {
            None
        }
    }
}

pub use has::{COMPILED, Compiled};
