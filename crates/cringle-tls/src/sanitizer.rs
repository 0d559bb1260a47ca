//! Whether the program is built with a sanitizer.
//!
//! The runtime of a sanitizer keeps its state of a thread in that thread's own thread-locals, and
//! sets it only when the thread starts. On a block it finds none. AddressSanitizer then asks libc
//! for the stack of the calling thread, which fails because the kernel does not know the thread's
//! id, and ends the process: at each call of a function that does not return, so at each panic.

/// The address of a symbol, or 0 where no part of the program defines it.
macro_rules! weak_symbol {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: I15. The instructions load a word that the linker fills.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly)
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            address = 0;
        }
        address
    }};
}

/// An error if the program is built with a sanitizer that cannot bear blocks.
pub(super) fn check() -> Result<(), String> {
    let sanitizers = [
        ("AddressSanitizer", weak_symbol!("__asan_init")),
        ("HWAddressSanitizer", weak_symbol!("__hwasan_init")),
        ("MemorySanitizer", weak_symbol!("__msan_init")),
        ("ThreadSanitizer", weak_symbol!("__tsan_init")),
    ];
    match sanitizers.into_iter().find(|(_, address)| *address != 0) {
        None => Ok(()),
        Some((name, _)) => Err(format!(
            "the program is built with {name}, which does not know the thread-locals of fibers as \
             those of a thread"
        )),
    }
}
