//! A `fork` on a fiber, of a thread whose area for restartable sequences has the length of Linux
//! 7.0. There glibc 2.41 and later register 33 bytes; this test registers them on each kernel.

use super::{in_child, on_workers};
use cringle::fiber;
use cringle_testing::child;
use std::process::Command;

const REGISTER: u32 = 0;
const UNREGISTER: u32 = 1;

/// Makes the call for glibc's area of the thread with this thread pointer. Returns whether the
/// kernel did it.
fn rseq(thread_pointer: usize, flags: u32) -> bool {
    const BYTES: u32 = 33;
    const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };
    // SAFETY: the variable is glibc's. The area is as old as the thread, and glibc does not use it
    // in this test.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if offset.is_null() {
            return false;
        }
        let area = thread_pointer.wrapping_add_signed(offset.read());
        libc::syscall(libc::SYS_rseq, area, BYTES, flags, SIGNATURE) == 0
    }
}

fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the first word of a thread's descriptor is its own address, by the ABI.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly));
    }
    // SAFETY: the instruction reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem));
    }
    pointer
}

fn without_glibcs(command: &mut Command) -> &mut Command {
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
}

#[test]
fn the_area_of_the_workers_thread_is_forgotten() {
    child::must_succeed_with("the_area_of_the_workers_thread_is_forgotten", without_glibcs, || {
        let own = thread_pointer();
        if !rseq(own, REGISTER) {
            return println!("skipped: no area of this length (glibc 2.35, Linux 6.3)");
        }
        on_workers(1, || {
            let is_forgotten = move || !rseq(own, UNREGISTER);
            assert_eq!(fiber::spawn(move || in_child(is_forgotten)).join().unwrap(), 0);
        });
        assert!(rseq(own, UNREGISTER));
    });
}
