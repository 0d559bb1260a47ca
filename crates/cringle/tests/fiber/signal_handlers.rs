//! Signal stacks and handlers of the program remain as they are beside those of the library.

use cringle::Builder;
use cringle_testing::child;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};

const LARGE: usize = 256 << 10;
const NEEDED: usize = 64 << 10;

/// Returns the signal stack of the calling thread.
fn signal_stack() -> libc::stack_t {
    // SAFETY: by the contract of `sigaltstack`. All-zero is a valid value, and the structure is
    // borrowed for the call.
    unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(std::ptr::null(), &mut stack), 0);
        stack
    }
}

/// Gives the calling thread a signal stack, which is never freed. Returns its address.
fn set_signal_stack(bytes: usize) -> usize {
    let ss_sp = vec![0_u8; bytes].leak().as_mut_ptr().cast();
    let new = libc::stack_t { ss_sp, ss_flags: 0, ss_size: bytes };
    // SAFETY: by the contract of `sigaltstack`. The structure lives for the call, and the memory
    // for ever.
    assert_eq!(unsafe { libc::sigaltstack(&new, std::ptr::null_mut()) }, 0);
    ss_sp.addr()
}

/// Installs a handler with three arguments.
fn install(
    signal: i32,
    handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void),
    blocked: Option<i32>,
) {
    // SAFETY: by the contract of `sigaction`. The structures live for the calls, and the handlers
    // make only calls that a handler may make.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        blocked.map(|signal| libc::sigaddset(&mut action.sa_mask, signal));
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn handler_of(signal: i32) -> usize {
    // SAFETY: by the contract of `sigaction`. All-zero is a valid value, and the structure is
    // borrowed for the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
        action.sa_sigaction
    }
}

#[inline(never)]
fn fault_at(address: usize) {
    // SAFETY: none, by intent: the fault is under test (no contract).
    unsafe { std::ptr::without_provenance_mut::<u8>(address).write_volatile(1) }
}

fn map_inaccessible_page() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: by the contract of `mmap`: a new mapping at an address of the kernel's choice
    // replaces none.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.addr()
}

fn make_accessible(info: *mut libc::siginfo_t) {
    // SAFETY: by the contract of a signal handler, the information is that of a fault. The page is
    // the test's.
    unsafe {
        let page = (*info).si_addr().map_addr(|address| address & !4095);
        libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE);
    }
}

#[test]
fn large_signal_stack_of_program_remains() {
    child::must_succeed("large_signal_stack_of_program_remains", || {
        let own = set_signal_stack(LARGE);
        let within = || {
            let stack = signal_stack();
            (stack.ss_sp.addr(), stack.ss_size)
        };
        assert_eq!(Builder::new().workers(1).run(within).unwrap(), (own, LARGE));
        assert_eq!(within(), (own, LARGE));
    });
}

#[test]
fn small_signal_stack_is_replaced_by_guarded_one() {
    child::must_succeed("small_signal_stack_is_replaced_by_guarded_one", || {
        let own = set_signal_stack(16 << 10);
        let within = || {
            let stack = signal_stack();
            assert!(stack.ss_size >= NEEDED && stack.ss_sp.addr() != own);
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let below = format!("-{:x} ", stack.ss_sp.addr());
            let guard = maps.lines().find(|line| line.contains(&below));
            assert!(guard.is_some_and(|line| line.contains(" ---p ")), "{guard:?} in\n{maps}");
        };
        Builder::new().workers(1).run(within).unwrap();
        assert_eq!(signal_stack().ss_sp.addr(), own);
    });
}

#[test]
fn signal_stack_that_is_set_within_run_remains() {
    child::must_succeed("signal_stack_that_is_set_within_run_remains", || {
        let set = Builder::new().workers(1).run(|| set_signal_stack(LARGE)).unwrap();
        assert_eq!(signal_stack().ss_sp.addr(), set);
    });
}

/// The handler is called as the kernel would call it.
#[test]
fn earlier_handler_runs_with_its_signals_blocked() {
    extern "C" fn exits(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: by the contracts of the calls, which a handler may make.
        unsafe {
            let mut blocked = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked);
            let is_blocked = |signal| libc::sigismember(&blocked, signal) == 1;
            let are_blocked = is_blocked(libc::SIGSEGV) && is_blocked(libc::SIGUSR2);
            libc::_exit(if are_blocked { 7 } else { 8 });
        }
    }
    let Some(output) = child::run("earlier_handler_runs_with_its_signals_blocked") else {
        install(libc::SIGSEGV, exits, Some(libc::SIGUSR2));
        return Builder::new().workers(1).run(|| fault_at(8)).unwrap();
    };
    assert_eq!(output.status.code(), Some(7), "{}", child::transcript(&output));
}

#[test]
fn handler_that_an_earlier_handler_installs_remains() {
    extern "C" fn later(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
    extern "C" fn repairs(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        make_accessible(info);
        install(libc::SIGABRT, later, None);
    }
    child::must_succeed("handler_that_an_earlier_handler_installs_remains", || {
        install(libc::SIGSEGV, repairs, None);
        Builder::new().workers(1).run(|| ()).unwrap();
        set_signal_stack(32 << 10);
        fault_at(map_inaccessible_page());
        assert_eq!(handler_of(libc::SIGABRT), later as *const () as usize);
    });
}

/// As one that leaves by a jump.
#[test]
fn abort_text_survives_handler_that_does_not_return() {
    static IS_CALLED: AtomicBool = AtomicBool::new(false);
    extern "C" fn stays(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        IS_CALLED.store(true, Ordering::Relaxed);
        loop {
            // SAFETY: the call has no contract.
            unsafe { libc::pause() };
        }
    }
    let Some(output) = child::run("abort_text_survives_handler_that_does_not_return") else {
        install(libc::SIGSEGV, stays, None);
        Builder::new().workers(1).run(|| ()).unwrap();
        std::thread::spawn(|| {
            set_signal_stack(32 << 10);
            fault_at(8);
        });
        while !IS_CALLED.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        return Builder::new().workers(1).run(|| std::process::abort()).unwrap();
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("SIGABRT on fiber 'main'"), "{text}");
}
