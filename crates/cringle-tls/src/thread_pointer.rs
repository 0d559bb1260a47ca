//! The register that points to the thread-locals of the running code.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Whether user code may set the register on this machine.
pub(super) fn can_be_set() -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    {
        const FSGSBASE: libc::c_ulong = 1 << 1;
        // SAFETY: I15. The call reads a value of the process.
        if unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE == 0 {
            return Err("the kernel does not let programs set the thread pointer \
                        (FSGSBASE, Linux 5.9, a processor of 2012 or later)"
                .into());
        }
        if has_shadow_stack() {
            return Err("the process has a shadow stack, which a switch of stacks violates".into());
        }
        Ok(())
    }
    #[cfg(target_arch = "aarch64")]
    {
        Ok(())
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        Err("they are built for x86-64 and aarch64 only".into())
    }
}

#[cfg(target_arch = "x86_64")]
fn has_shadow_stack() -> bool {
    use cringle_sys::syscall;
    const ARCH_SHSTK_STATUS: libc::c_long = 0x5005;
    let mut features = 0u64;
    // SAFETY: I15. The kernel writes a `u64`, or refuses the call.
    let result = unsafe { syscall!(SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    result == 0 && features & 1 != 0
}

#[inline(always)]
pub(super) fn get() -> usize {
    let pointer;
    // SAFETY: I15. The first word of a thread's descriptor is its own address, by the ABI.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: I15. The instruction reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        pointer = 0;
    }
    pointer
}

/// Sets the thread pointer.
///
/// # Safety
///
/// I14: it points to a block, and the code that follows touches a thread-local only on frames that
/// run on this block.
#[inline(always)]
pub(super) unsafe fn set(pointer: usize) {
    // The compiler moves no access to memory across these.
    // SAFETY: I14, by the contract; `can_be_set` was checked.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags));
    }
    // SAFETY: I14, by the contract.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("msr tpidr_el0, {}", in(reg) pointer, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = pointer;
        unreachable!("no block was made");
    }
}

/// [`set`], and notes the address of the next instruction where `cringle_marks` asks for it.
///
/// # Safety
///
/// As for [`set`].
#[inline(always)]
pub(super) unsafe fn set_before_switch(pointer: usize) {
    // SAFETY: I14, by the contract. The note is in a section that is not loaded.
    #[cfg(all(cringle_marks, target_arch = "x86_64"))]
    unsafe {
        std::arch::asm!(
            "wrfsbase {}",
            "2:",
            ".pushsection cringle_switches, \"\", @progbits",
            ".quad 2b",
            ".popsection",
            in(reg) pointer,
            options(nostack, preserves_flags)
        );
    }
    // SAFETY: I14, by the contract.
    #[cfg(not(all(cringle_marks, target_arch = "x86_64")))]
    unsafe {
        set(pointer);
    }
}

/// Notes the address of the next instruction, where `cringle_marks` asks for it: [`set`] follows,
/// unless the register was not set.
#[inline(always)]
pub(super) fn mark_end_of_switches() {
    // SAFETY: I14. The note is in a section that is not loaded.
    #[cfg(all(cringle_marks, target_arch = "x86_64"))]
    unsafe {
        std::arch::asm!(
            "2:",
            ".pushsection cringle_switch_ends, \"\", @progbits",
            ".quad 2b",
            ".popsection",
            options(nostack, preserves_flags)
        );
    }
}

/// Calls `f` on a block of thread-locals. A panic of `f` continues in the caller.
///
/// # Safety
///
/// I14: the block is no other code's meanwhile.
pub unsafe fn on_block<R>(block: usize, f: impl FnOnce() -> R) -> R {
    let (mut f, mut result) = (Some(f), None);
    let mut call = || {
        let f = f.take();
        // Caught on the block, because std counts panics in a thread-local.
        result = f.map(|f| catch_unwind(AssertUnwindSafe(f)));
    };
    // SAFETY: I14, by the contract.
    unsafe { call_on_block(block, &mut call) };
    match result {
        Some(Ok(value)) => value,
        Some(Err(payload)) => resume_unwind(payload),
        None => unreachable!("the closure was called"),
    }
}

/// A frame that is on two blocks, as that of the scheduler which [switches](super::Switch). It
/// touches no thread-local.
///
/// # Safety
///
/// As for [`on_block`], and `f` does not unwind.
#[inline(never)]
pub(super) unsafe fn call_on_block(block: usize, f: &mut dyn FnMut()) {
    let before = get();
    // SAFETY: I14. `f` runs in frames of its own.
    unsafe { set(block) };
    f();
    // SAFETY: I14. The caller's frames run on the block of before.
    unsafe { set(before) };
}
