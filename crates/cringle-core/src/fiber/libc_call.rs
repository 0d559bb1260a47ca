//! The state of a fiber that interposed calls of libc need.

use super::Fiber;

impl Fiber {
    /// Whether it is in an interposed call of libc.
    #[inline(always)]
    pub fn is_in_libc_call(&self) -> bool {
        self.in_libc_call.get()
    }

    #[inline(always)]
    pub fn set_in_libc_call(&self, is_in: bool) {
        self.in_libc_call.set(is_in);
    }

    /// Whether it is a thread of the program, and in no code of the library: then it may continue
    /// on another thread anywhere.
    #[inline(always)]
    pub fn is_in_program(&self) -> bool {
        self.in_program.get()
    }

    #[inline(always)]
    pub fn set_in_program(&self, is_in: bool) {
        self.in_program.set(is_in);
    }

    /// The lowest address of the fiber's stack, and its size.
    pub fn stack_area(&self) -> (usize, usize) {
        self.stack().area()
    }

    /// Names a fiber that has begun without a name.
    pub(crate) fn rename(&self, name: std::sync::Arc<str>) {
        if let Some(meta) = self.meta() {
            meta.rename(name);
            self.cold.label.set(meta);
        }
    }
}
