//! The alternate signal stacks of the workers' threads.

use cringle_sys::mapping::page_bytes;
use std::ffi::c_void;

/// An alternate signal stack for a worker's thread. std's has little more than 8 KiB, and a thread
/// that C code made has none. A stack of the program that is large enough remains, because the
/// program's handlers may need all of it. When this is dropped, the thread has the stack before
/// again.
pub(crate) struct SignalStack(Option<Replaced>);

struct Replaced {
    /// The lowest address of the mapping, which begins with an inaccessible page.
    mapping: *mut c_void,
    before: libc::stack_t,
}

impl SignalStack {
    /// What the unwinder and the report need.
    pub(super) const BYTES: usize = 64 << 10;

    /// Replaces a stack that is missing or smaller than [`BYTES`](Self::BYTES), if there is memory.
    pub(crate) fn replace() -> SignalStack {
        let before = current();
        let is_enabled = before.ss_flags & libc::SS_DISABLE == 0;
        if is_enabled && before.ss_size >= SignalStack::BYTES {
            return SignalStack(None);
        }
        let Some(mapping) = map() else { return SignalStack(None) };
        let new = libc::stack_t { ss_sp: usable(mapping), ss_flags: 0, ss_size: Self::BYTES };
        // SAFETY: by the contract of `sigaltstack`. The structure lives for the call, and the
        // memory until `drop` has restored the stack before.
        if unsafe { libc::sigaltstack(&new, std::ptr::null_mut()) } != 0 {
            unmap(mapping);
            return SignalStack(None);
        }
        SignalStack(Some(Replaced { mapping, before }))
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let Some(Replaced { mapping, before }) = &self.0 else { return };
        // The program may have set another one meanwhile.
        if current().ss_sp == usable(*mapping) {
            // SAFETY: by the contract of `sigaltstack`. The call only reads the structure.
            unsafe { libc::sigaltstack(before, std::ptr::null_mut()) };
        }
        unmap(*mapping);
    }
}

/// The signal stack of the calling thread.
pub(super) fn current() -> libc::stack_t {
    // SAFETY: by the contract of `sigaltstack`. All-zero is a valid value, and the structure is
    // borrowed for the call.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &mut stack);
        stack
    }
}

/// Maps a stack above a page that no code can access: a handler that needs more than the stack ends
/// the process instead of writing to other memory.
fn map() -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
    let (protection, bytes) = (libc::PROT_READ | libc::PROT_WRITE, mapped_bytes());
    // SAFETY: by the contract of `mmap`: a new mapping at an address of the kernel's choice
    // replaces none.
    let mapping = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if mapping == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: by the contract of `mprotect`: the page belongs to the new mapping, which no code
    // uses yet.
    if unsafe { libc::mprotect(mapping, page_bytes(), libc::PROT_NONE) } != 0 {
        unmap(mapping);
        return None;
    }
    Some(mapping)
}

fn unmap(mapping: *mut c_void) {
    // SAFETY: by the contract of `munmap`: the mapping is one of `map`, and no thread has it as its
    // signal stack any more.
    unsafe { libc::munmap(mapping, mapped_bytes()) };
}

fn usable(mapping: *mut c_void) -> *mut c_void {
    mapping.wrapping_byte_add(page_bytes())
}

fn mapped_bytes() -> usize {
    page_bytes() + SignalStack::BYTES
}
