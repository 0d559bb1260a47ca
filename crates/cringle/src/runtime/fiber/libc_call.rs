//! Whether a fiber is in an interposed call of libc.

use super::Fiber;

impl Fiber {
    /// Whether it is in an interposed call of libc.
    #[inline(always)]
    pub(crate) fn is_in_libc_call(&self) -> bool {
        self.in_libc_call.get()
    }

    #[cfg(feature = "interpose")]
    #[inline(always)]
    pub(crate) fn set_in_libc_call(&self, is_in: bool) {
        self.in_libc_call.set(is_in);
    }
}
