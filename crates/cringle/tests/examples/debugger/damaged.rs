//! The script for debuggers where something is wrong: damaged memory, full disks, bad arguments.

use super::{dump_and_stop, gdb, has_gdb, named, part, run_until_stop, with_waiting_fibers};
use cringle::{Builder, fiber};
use cringle_testing::child;
use std::os::unix::process::CommandExt;

/// `damage.py` replaces each word that the script reads of some fibers, and of the workers. The
/// script must list the other fibers, and never fail with an exception or end the debugger.
#[test]
fn gdb_lists_the_other_fibers_when_one_is_damaged() {
    let name = "gdb_lists_the_other_fibers_when_one_is_damaged";
    let Some(child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    if !has_gdb() {
        return;
    }
    let source = format!("source {}/tests/examples/debugger/damage.py", env!("CARGO_MANIFEST_DIR"));
    let (text, _) = run_until_stop(gdb(&["run", &source, "kill"]), "--args", &child);
    let answers = part(&text, &source);
    assert!(answers.contains(" damages, 0 wrong answers"), "{text}");
}

/// A limit of the size of files is a full disk that needs no root.
#[test]
fn gdb_leaves_no_core_that_is_incomplete() {
    let name = "gdb_leaves_no_core_that_is_incomplete";
    let Some(child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    if !has_gdb() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let before = directory.path().join("before");
    std::fs::write(&before, "what was here").unwrap();
    let file = |name: &str| format!("cringle core {}", directory.path().join(name).display());
    let commands = ["run", &file("before"), &file("new"), "cringle core /dev/full", "kill"];
    let mut gdb = gdb(&commands);
    // SAFETY: both functions may be called between `fork` and `exec`.
    unsafe {
        gdb.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            child::limit(libc::RLIMIT_FSIZE, 1 << 20)
        })
    };
    let (text, _) = run_until_stop(gdb, "--args", &child);
    assert!(!text.contains("wrote"), "{text}");
    assert_eq!(text.matches("\ncringle: cannot write ").count(), 3, "{text}");
    assert_eq!(text.matches("\ncringle: ").count(), 3, "{text}");
    assert_eq!(std::fs::read_to_string(&before).unwrap(), "what was here");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn gdb_reports_bad_arguments_in_one_line() {
    let name = "gdb_reports_bad_arguments_in_one_line";
    let Some(child) = child::command(name) else { return with_waiting_fibers(dump_and_stop) };
    if !has_gdb() {
        return;
    }
    let wrong = [
        ("cringle core", "into which file?"),
        ("cringle core /nonexistent/core", "Failed to open '/nonexistent/core"),
        ("cringle core /tmp", "cannot write /tmp: it is no regular file"),
        ("cringle fiber", "which fiber?"),
        ("cringle fiber nobody", "no fiber has the number or name nobody"),
        ("cringle fiber 'reader' nosuchcommand", "Undefined command: "),
        ("cringle fiber 'reader' print no_such_variable", "No symbol "),
        ("kill", ""),
        ("cringle fibers", "no process: start the program"),
    ];
    let commands: Vec<&str> = std::iter::once("run").chain(wrong.map(|(name, _)| name)).collect();
    let (text, _) = run_until_stop(gdb(&commands), "--args", &child);
    for (command, words) in wrong.iter().filter(|(command, _)| *command != "kill") {
        assert!(text.contains(&format!("\ncringle: {words}")), "{command}: {text}");
    }
    assert_eq!(text.matches("\ncringle: ").count(), wrong.len() - 1, "{text}");
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stop() {
    // The second instruction is where the debugger shows the thread.
    // SAFETY: the debugger takes the trap.
    unsafe { std::arch::asm!("int3", "nop") };
}

/// Where the thread stops in a function that is inlined, frame 1 is still the thread's.
#[test]
#[cfg(target_arch = "x86_64")]
fn gdb_selects_the_fiber_behind_inlined_frames() {
    let Some(child) = child::command("gdb_selects_the_fiber_behind_inlined_frames") else {
        let waits = || {
            drop(named("waits").spawn_local(fiber::park).unwrap());
            fiber::yield_now();
            std::fs::write(std::env::var_os("CRINGLE_TEST_DUMP").unwrap(), "").unwrap();
            stop();
        };
        return Builder::new().workers(1).run(waits).unwrap();
    };
    if !has_gdb() {
        return;
    }
    let select = "cringle fiber 'waits'";
    let (text, _) = run_until_stop(gdb(&["run", "frame", select, "kill"]), "--args", &child);
    assert!(part(&text, "frame").contains(" in stop () at"), "{text}");
    assert!(!part(&text, select).contains("damaged.rs"), "{text}");
}

/// The number of the main thread is also that of the process.
#[test]
fn gdb_selects_the_main_thread_of_a_running_fiber() {
    let Some(child) = child::command("gdb_selects_the_main_thread_of_a_running_fiber") else {
        // The thread that forks is the main thread of the child.
        // SAFETY: by the contract of `fork`. No other thread holds a lock that the child needs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            with_waiting_fibers(dump_and_stop);
            std::process::exit(0);
        }
        // SAFETY: by the contract of `waitpid`, which accepts a null pointer.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        return;
    };
    if !has_gdb() {
        return;
    }
    let stack = "cringle fiber main bt";
    let commands = ["set follow-fork-mode child", "run", "info threads", stack, "kill"];
    let (text, _) = run_until_stop(gdb(&commands), "--args", &child);
    assert!(part(&text, "info threads").contains("\"cringle-1\""), "{text}");
    assert!(part(&text, stack).contains("dump_and_stop"), "{text}");
}
