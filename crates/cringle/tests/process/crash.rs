//! A crash on a fiber prints the fiber, its stack and its frames, and then ends the process as it
//! would have without a text.

use cringle::{Builder, fiber};
use cringle_testing::child;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Runs the test in a child that must die by this signal, and returns its output.
#[track_caller]
fn dies_by(signal: i32, test: &str, body: impl FnOnce()) -> String {
    let Some(output) = child::run(test) else {
        body();
        unreachable!("the child must die");
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.signal(), Some(signal), "{text}");
    text
}

/// Runs `f` on a fiber with a name, on the second worker.
fn on_a_fiber(f: impl FnOnce() + Send + 'static) {
    let run = || {
        let builder = fiber::Builder::new().name("unlucky".into()).worker(1);
        builder.spawn(f).unwrap().join().unwrap();
    };
    Builder::new().workers(2).run(run).unwrap();
}

#[inline(never)]
fn fault_at(address: usize) {
    // SAFETY: none, by intent: the fault is under test (no contract).
    unsafe { std::ptr::without_provenance_mut::<u8>(address).write_volatile(1) }
}

#[inline(never)]
fn aborts() {
    std::process::abort();
}

fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + frame[depth as usize % 32] }
}

fn raise(signal: i32) {
    // SAFETY: no pointers are passed.
    unsafe { libc::raise(signal) };
}

/// The text must be there once, with all its parts.
#[track_caller]
fn assert_names_the_fiber(text: &str, cause: &str) {
    let head = format!("cringle: {cause} on fiber 'unlucky' (number 1), worker 1\n");
    assert_eq!(text.matches(&head).count(), 1, "{head}{text}");
    assert!(text.contains("    spawned at crates/cringle/tests/process/crash.rs:"), "{text}");
    let program = std::env::current_exe().unwrap();
    let frame = format!("    {}+0x", program.display());
    assert!(text.matches(&frame).count() > 3, "{text}");
}

/// The addresses of the text must have these functions, by `addr2line`.
#[track_caller]
fn assert_frames_have(text: &str, function: &str) {
    let command = text.split_once("names and lines: ").expect(text).1.lines().next().unwrap();
    let mut words = command.split(' ');
    match Command::new(words.next().unwrap()).args(words).output() {
        Ok(output) => {
            let names = String::from_utf8_lossy(&output.stdout);
            assert!(names.contains(function), "{text}{names}");
        }
        Err(e) => eprintln!("skipped: addr2line: {e}"),
    }
}

#[test]
fn segfault_names_its_fiber_and_frames() {
    let name = "segfault_names_its_fiber_and_frames";
    let text = dies_by(libc::SIGSEGV, name, || on_a_fiber(|| fault_at(0x10)));
    assert_names_the_fiber(&text, "SIGSEGV (access to 0x10)");
    assert!(text.contains(" KiB are unused"), "{text}");
    assert_frames_have(&text, "fault_at");
}

#[test]
fn abort_names_its_fiber_and_frames() {
    let text = dies_by(libc::SIGABRT, "abort_names_its_fiber_and_frames", || on_a_fiber(aborts));
    assert_names_the_fiber(&text, "SIGABRT");
    assert_frames_have(&text, "crash::aborts");
}

#[test]
fn bus_error_names_its_fiber() {
    let text = dies_by(libc::SIGBUS, "bus_error_names_its_fiber", || {
        on_a_fiber(|| {
            let file = tempfile::tempfile().unwrap();
            let (start, fd) = (std::ptr::null_mut(), std::os::fd::AsRawFd::as_raw_fd(&file));
            // SAFETY: a new mapping, at an address of the kernel's choice, replaces none.
            let page =
                unsafe { libc::mmap(start, 4096, libc::PROT_WRITE, libc::MAP_SHARED, fd, 0) };
            eprintln!("the page is at {:#x}", page.addr());
            fault_at(page.addr());
        });
    });
    let page = text.split_once("the page is at ").expect(&text).1.lines().next().unwrap();
    assert_names_the_fiber(&text, &format!("SIGBUS (access to {page})"));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn address_of_no_memory_is_not_called_null() {
    let name = "address_of_no_memory_is_not_called_null";
    let text = dies_by(libc::SIGSEGV, name, || on_a_fiber(|| fault_at(1 << 63)));
    assert_names_the_fiber(&text, "SIGSEGV (an address or instruction that the processor refuses)");
}

#[test]
fn wild_write_to_the_guard_is_no_overflow() {
    let name = "wild_write_to_the_guard_is_no_overflow";
    let text = dies_by(libc::SIGSEGV, name, || {
        on_a_fiber(|| {
            let local = 0_u8;
            // The stack has 1 MiB, and this frame is near its top.
            fault_at((&raw const local).addr() - (1 << 20) - (32 << 10));
        });
    });
    assert!(!text.contains("has overflowed"), "{text}");
    assert!(text.contains(", in the guard of the stack) on fiber 'unlucky'"), "{text}");
}

#[test]
fn jump_to_no_code_names_the_caller() {
    #[inline(never)]
    fn jumps(address: usize) {
        // SAFETY: none, by intent: the fault is under test (no contract).
        let function = unsafe { std::mem::transmute::<usize, extern "C" fn()>(address) };
        function();
        std::hint::black_box(address);
    }
    let name = "jump_to_no_code_names_the_caller";
    let text = dies_by(libc::SIGSEGV, name, || on_a_fiber(|| jumps(0x10)));
    assert!(text.contains("\n    0x10\n"), "{text}");
    assert_frames_have(&text, "jumps");
}

#[test]
fn number_of_a_timer_is_no_sender() {
    let name = "number_of_a_timer_is_no_sender";
    let text = dies_by(libc::SIGABRT, name, || {
        on_a_fiber(|| {
            // SAFETY: by the contract of the call, which reads the structure; all-zero is valid.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                (info.si_signo, info.si_code) = (libc::SIGABRT, libc::SI_TIMER);
                let (process, thread) = (libc::getpid(), libc::gettid());
                let call = libc::SYS_rt_tgsigqueueinfo;
                libc::syscall(call, process, thread, libc::SIGABRT, &raw const info);
            }
        });
    });
    assert_names_the_fiber(&text, "SIGABRT");
}

/// The process ends as it would have without the text: also with its core file.
#[test]
fn crash_leaves_its_core_file() {
    let name = "crash_leaves_its_core_file";
    let causes: [(&str, fn()); 3] =
        [("fault", || fault_at(0x10)), ("abort", aborts), ("signal", || raise(libc::SIGBUS))];
    let of = |text: &str| causes.iter().find(|(cause, _)| *cause == text).unwrap().1;
    if let Ok(cause) = std::env::var("CRINGLE_TEST_CAUSE") {
        return on_a_fiber(of(&cause));
    }
    if !child::kernel_writes_cores() {
        return;
    }
    for (cause, _) in causes {
        let directory = tempfile::tempdir().unwrap();
        let output = child::run_with(name, |command| {
            child::keep_core(command, directory.path()).env("CRINGLE_TEST_CAUSE", cause)
        });
        let output = output.expect("the child has returned above");
        let text = child::transcript(&output);
        assert!(text.contains(" on fiber 'unlucky'"), "{text}");
        assert!(output.status.core_dumped(), "{text}");
        assert!(child::core_in(directory.path()).is_some(), "{text}");
    }
}

/// std's handler would let the first such signal pass without effect.
#[test]
fn sent_signals_end_the_process_at_once() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT] {
        let name = "sent_signals_end_the_process_at_once";
        let prepare =
            |command: &mut Command| _ = command.env("CRINGLE_TEST_SIGNAL", signal.to_string());
        let Some(output) = child::run_with(name, |command| {
            prepare(command);
            command
        }) else {
            let signal = std::env::var("CRINGLE_TEST_SIGNAL").unwrap().parse().unwrap();
            on_a_fiber(move || raise(signal));
            unreachable!("the child must die");
        };
        let text = child::transcript(&output);
        assert_eq!(output.status.signal(), Some(signal), "{text}");
        assert!(text.contains(" on fiber 'unlucky'"), "{text}");
    }
}

#[test]
fn crash_outside_of_fibers_prints_no_fiber() {
    let text = dies_by(libc::SIGSEGV, "crash_outside_of_fibers_prints_no_fiber", || {
        cringle::run(|| fiber::unblock(|| fault_at(8)));
    });
    assert!(!text.contains("on fiber"), "{text}");
}

#[test]
fn crash_text_can_be_turned_off() {
    let text = dies_by(libc::SIGABRT, "crash_text_can_be_turned_off", || {
        Builder::new().crash_text(false).run(aborts).unwrap();
    });
    assert!(!text.contains("on fiber"), "{text}");
}

#[test]
fn environment_turns_the_crash_text_off() {
    let name = "environment_turns_the_crash_text_off";
    let Some(output) = child::run_with(name, |child| child.env("CRINGLE_CRASH_TEXT", "off")) else {
        return cringle::run(|| fault_at(8));
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
    assert!(!text.contains("on fiber"), "{text}");
}

#[test]
fn overflow_is_reported_without_a_crash_text() {
    let name = "overflow_is_reported_without_a_crash_text";
    let text = dies_by(libc::SIGABRT, name, || on_a_fiber(|| assert_eq!(recurse(0), 0)));
    assert!(text.contains("fiber 'unlucky' has overflowed its stack"), "{text}");
    assert!(!text.contains("on fiber"), "{text}");
}

/// A handler that the program has installed before is called, and nothing is printed after it.
#[test]
fn earlier_handlers_win() {
    extern "C" fn own(_: i32) {
        // SAFETY: by the contract of a signal handler, in which both calls are allowed.
        unsafe {
            libc::write(2, b"own handler\n".as_ptr().cast(), 12);
            libc::_exit(7);
        }
    }
    let name = "earlier_handlers_win";
    let Some(output) = child::run(name) else {
        // SAFETY: by the contract of `signal`. The handler makes only calls that a handler may
        // make.
        unsafe { libc::signal(libc::SIGABRT, own as extern "C" fn(i32) as usize) };
        return on_a_fiber(aborts);
    };
    let text = child::transcript(&output);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("own handler") && !text.contains("on fiber"), "{text}");
}

/// As a fault that std's handler has not caused.
#[test]
fn handler_that_repairs_the_fault_prints_nothing() {
    extern "C" fn repair(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: by the contract of a signal handler, the information is that of a fault. The page
        // is the test's.
        unsafe {
            let page = (*info).si_addr().map_addr(|address| address & !4095);
            libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE);
        }
    }
    child::must_succeed("handler_that_repairs_the_fault_prints_nothing", || {
        // SAFETY: by the contracts of the calls. The structures live for them, and a new mapping at
        // an address of the kernel's choice replaces none.
        let page = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = repair as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0).addr()
        };
        on_a_fiber(move || fault_at(page));
    });
}

/// The first line of the text is in the file, and the rest follows, when another thread crashes.
#[test]
fn second_crash_leaves_the_text_of_the_first_whole() {
    let name = "second_crash_leaves_the_text_of_the_first_whole";
    let seconds: [(&str, fn()); 4] = [
        ("fiber", || fault_at(0x20)),
        ("overflow", || assert_eq!(recurse(0), 0)),
        ("abort", aborts),
        ("fault", || fault_at(0x20)),
    ];
    if let Ok(second) = std::env::var("CRINGLE_TEST_SECOND") {
        let f = seconds.iter().find(|(name, _)| *name == second).unwrap().1;
        return crash_twice(matches!(&*second, "fiber" | "overflow"), f);
    }
    // The moment varies.
    for (second, _) in seconds.repeat(8) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stderr = file.reopen().unwrap();
        let output =
            child::run_with(name, |it| it.env("CRINGLE_TEST_SECOND", second).stderr(stderr));
        let output = output.expect("the child has returned above");
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{second}: {text}");
        assert_names_the_fiber(&text, "SIGSEGV (access to 0x10)");
        let last = text.lines().last().unwrap();
        assert!(last.contains("names and lines: ") && text.ends_with('\n'), "{second}: {text}");
        assert!(!text.contains("overflowed"), "{second}: {text}");
    }
}

/// Crashes on the fiber 'unlucky'; and by `second` on another one, or on a thread, as soon as
/// standard error, a file, has the first line of that crash.
fn crash_twice(is_on_fiber: bool, second: fn()) {
    let crashes = move || {
        let has_begun = || {
            // SAFETY: all-zero is a valid value, and the structure is borrowed for the call.
            unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                assert_eq!(libc::fstat(2, &mut stat), 0);
                stat.st_size > 0
            }
        };
        while !has_begun() {
            std::hint::spin_loop();
        }
        second();
    };
    let run = move || {
        if is_on_fiber {
            let _other = fiber::Builder::new().worker(0).spawn(crashes).unwrap();
            start_first();
        }
        std::thread::spawn(crashes);
        start_first();
    };
    Builder::new().workers(2).run(run).unwrap();
}

fn start_first() {
    let first = fiber::Builder::new().name("unlucky".into()).worker(1);
    first.spawn(|| fault_at(0x10)).unwrap().join().unwrap();
}

/// Standard error is a pipe that is full, and whose reader waits for the end of the process.
#[test]
fn full_standard_error_does_not_keep_the_process() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    let (reader, writer) = std::io::pipe().unwrap();
    let set = |flags: i32| {
        // SAFETY: no pointers are passed.
        assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) }, 0);
    };
    set(libc::O_NONBLOCK);
    while (&writer).write(&[b' '; 4096]).is_ok() {}
    set(0);
    let stderr = std::process::Stdio::from(writer.try_clone().unwrap());
    let test = "full_standard_error_does_not_keep_the_process";
    let Some(output) = child::run_with(test, |command| command.stderr(stderr)) else {
        return on_a_fiber(|| fault_at(0x10));
    };
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", child::transcript(&output));
    drop(reader);
}
