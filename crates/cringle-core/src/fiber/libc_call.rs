//! The state of a fiber that interposed calls of libc need.

use super::Fiber;
use crate::region::Region;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

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

    /// The state of the fiber's cancellation as a thread, if it is one.
    #[inline(always)]
    pub fn thread_word(&self) -> Option<&AtomicU32> {
        // SAFETY: I2, by the contract of `set_thread_word`.
        unsafe { self.thread_word.get().as_ref() }
    }

    /// Makes the fiber a thread with this word, or none.
    ///
    /// # Safety
    ///
    /// I2: the word exists until another one is set, or the fiber has ended.
    pub unsafe fn set_thread_word(&self, word: *const AtomicU32) {
        self.thread_word.set(word);
    }

    pub(crate) fn point(&self) -> Option<&Region> {
        // SAFETY: I3. `Current::in_point` takes it back before the region's frame goes.
        self.point.get().map(|region| unsafe { region.as_ref() })
    }

    pub(crate) fn set_point(&self, region: Option<&Region>) {
        self.point.set(region.map(NonNull::from));
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
