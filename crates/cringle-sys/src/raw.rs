//! System calls by the processor's instruction, without libc (**I14**).
//!
//! A call by this module passes no symbol that a program can define: see [`super`] for the reason.
//! It does not touch `errno`, and is no cancellation point of a thread.
//!
//! On architectures other than x86-64 and aarch64 it calls `libc::syscall`, and programs cannot
//! interpose there.

use std::ffi::c_long;
use std::io;

/// Makes a system call. The arguments are integers or pointers; each is converted to the value of a
/// register. Evaluates to the result, or to `-errno`, as an `isize`.
///
/// It is unsafe: each pointer must be valid for what the call does with it.
#[macro_export]
macro_rules! syscall {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        $crate::raw::call(libc::$number, [$($argument as usize),*])
    };
}
pub use syscall;

/// Makes the system call with this number. Returns its result, or `-errno`.
///
/// # Safety
///
/// Each pointer among the arguments is valid for what the call does with it.
#[inline(always)]
pub unsafe fn call<const N: usize>(number: c_long, arguments: [usize; N]) -> isize {
    const { assert!(N <= 6, "a system call has at most six arguments") };
    let mut six = [0; 6];
    six[..N].copy_from_slice(&arguments);
    // SAFETY: by the contract.
    unsafe { call_with_six(number, six) }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn call_with_six(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result;
    // SAFETY: by the contract of `call`. The kernel keeps all registers but these three, and the
    // instruction does not touch the stack.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn call_with_six(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result;
    // SAFETY: by the contract of `call`. The kernel keeps all registers but `x0`, and the
    // instruction does not touch the stack.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn call_with_six(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: by the contract of `call`.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => -(super::errno() as isize),
        result => result as isize,
    }
}

/// Converts the result of a call: `-errno` to an `io::Error`, and a count to itself.
#[inline]
pub fn result_of(result: isize) -> io::Result<usize> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_arguments_reach_the_kernel() {
        let (length, flags) = (4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let null = std::ptr::null_mut::<u8>();
        // SAFETY: by the contract of `mmap`: the new page is written and unmapped here alone.
        unsafe {
            let page = syscall!(SYS_mmap, null, length, protection, flags, -1i32, 0);
            let page = result_of(page).unwrap() as *mut u8;
            page.write(7);
            assert_eq!(page.read(), 7);
            assert_eq!(syscall!(SYS_munmap, page, length), 0);
        }
    }

    #[test]
    fn an_error_leaves_errno_alone() {
        crate::set_errno(libc::ENOENT);
        // SAFETY: no pointers.
        let result = unsafe { syscall!(SYS_close, -1i32) };
        assert_eq!(result, -(libc::EBADF as isize));
        assert_eq!(crate::errno(), libc::ENOENT);
        assert_eq!(result_of(result).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
