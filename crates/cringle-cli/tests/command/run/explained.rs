//! `cringle run --explain`.

use super::*;

/// Returns the report, with joined lines.
fn explained(place: &Path, arguments: &[&str]) -> String {
    let text = printed(&mut cringle_run(place, &[&["--explain"], arguments].concat()), 0);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn threads_of_a_trial_are_counted() {
    let place = place("run-explained");
    let source = THREADS.replace(
        "    int main(void) {",
        "    int main(void) { pthread_mutexattr_t a; \
        pthread_mutexattr_init(&a); pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);",
    );
    if !compiled(&place, "threads", &source, &["-pthread", "-rdynamic"]) {
        return;
    }
    let text = explained(&place, &["./threads"]);
    for part in [
        "Program ./threads Waits on fibers threads ",
        "stdio writes: puts",
        "Gets a thread of its own, or concerns one threads locks that lend priority: \
         pthread_mutexattr_setprotocol",
        "Trial run: it ended with status 7 after ",
        "fiber 50: 50 threads+0x",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = explained(&place, &["sh", "-c", "./threads"]);
    assert!(text.contains("The program created no thread"), "{text}");
    // The program that does the work is explained, too.
    let text = explained(&place, &["sh", "-c", "exec ./threads"]);
    let first = text.find("Trial run:").unwrap();
    assert!(text[first..].contains("threads Waits on fibers threads "), "{text}");
    let text = explained(&place, &["--children", "sh", "-c", "./threads"]);
    assert!(text.contains("fiber 50: 50 threads+0x"), "{text}");
}

#[test]
fn fibers_that_become_threads_are_counted() {
    let place = place("run-explained-own");
    let source = r#"
        #include <pthread.h>
        #include <signal.h>
        #include <stdatomic.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        static int ends[2];
        static atomic_int done;
        void *takes_stack(void *argument) {
            stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };
            sigaltstack(&stack, 0);
            return argument;
        }
        void *spins(void *argument) {
            while (!done) {}
            return argument;
        }
        void *reads(void *argument) {
            getc(fdopen(ends[0], "r"));
            return argument;
        }
        void *releases(void *argument) {
            done = 1;
            write(ends[1], "x", 1);
            return argument;
        }
        int main(void) {
            void *(*starts[])(void *) = { takes_stack, spins, reads, releases };
            pthread_t threads[4];
            if (pipe(ends)) return 1;
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, starts[i], 0);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        }"#;
    if !compiled(&place, "own", source, &["-pthread", "-rdynamic"]) {
        return;
    }
    // On one worker, each that waits for `releases` holds it up.
    let text = explained(&place, &["--workers", "1", "./own"]);
    for part in ["computing 1: 1 own+0x", "signal stack 1: 1 own+0x", "system call 1: 1 libc.so.6+"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    for function in [" spins", " takes_stack"] {
        assert!(text.matches(function).count() >= 2, "{function}: {text}");
    }
}

#[test]
fn system_calls_of_a_library_are_found() {
    let place = place("run-own-calls");
    let source = "
        #if defined(__x86_64__)
        #define CALL(number) \"mov $\" #number \", %eax; syscall; ret;\"
        #else
        #define CALL(number) \"mov x8, \" #number \"; svc #0; ret;\"
        #endif
        asm(\".text; .globl own; own: \" CALL(24) CALL(34) CALL(35));";
    let caller = "void own(void); int main(int count) { if (count > 9) own(); return 0; }";
    if !(compiled(&place, "libown.so", source, &["-shared", "-fPIC"])
        && compiled(&place, "caller", caller, &["libown.so", "-Wl,-rpath,$ORIGIN"]))
    {
        return;
    }
    let text = explained(&place, &["./caller"]);
    assert!(text.contains("libown.so system calls of its own: 3 places"), "{text}");
    let mut doctor = cringle(&place);
    let doctor = doctor.args(["doctor", "--program", "caller"]).output().unwrap();
    assert!(texts(&doctor).0.contains("libown.so: 3 system calls of its own"));
}

#[test]
fn a_trial_ends_after_its_time() {
    let place = place("run-trial");
    let end = "trap 'echo asked to end; exit 0' TERM; while :; do sleep 0.01; done";
    let text = explained(&place, &["--seconds", "0.3", "sh", "-c", end]);
    assert!(text.contains("asked to end Trial run: it was stopped after "), "{text}");
    // The signal is neither blocked nor ignored.
    let text = explained(&place, &["--seconds", "0.3", "sleep", "1000"]);
    assert!(text.contains("Trial run: it was stopped after "), "{text}");
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    let text = explained(&place, &["--seconds", "0.3", "sh", "-c", deaf]);
    assert!(text.contains("it did not end after SIGTERM, and was killed after "), "{text}");
    let text = explained(&place, &["sh", "-c", "kill -ABRT $$"]);
    assert!(text.contains("it was killed by signal 6 after "), "{text}");
}
