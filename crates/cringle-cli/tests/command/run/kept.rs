//! What a program has as without the command, and what it has by the options.

use super::*;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;

#[test]
fn threads_of_the_program_are_fibers() {
    let place = place("run-threads");
    if !has_threads(&place) {
        return;
    }
    assert_eq!(printed(&mut Command::new(place.join("threads")), STATUS), "threads\n");
    assert_eq!(printed(&mut cringle_run(&place, &["./threads"]), STATUS), "fibers\n");
    let two = ["--workers", "2", "--driver", "epoll", "./threads"];
    assert_eq!(printed(&mut cringle_run(&place, &two), STATUS), "fibers\n");
}

#[test]
fn options_after_the_program_are_its_own() {
    let place = place("run-arguments");
    let arguments =
        ["sh", "-c", r#"echo "$0 $*"; exit 9"#, "-v", "--trace", "x", "--help", "--", ""];
    assert_eq!(printed(&mut cringle_run(&place, &arguments), 9), "-v --trace x --help -- \n");
    assert!(is_empty(&place));
}

#[test]
fn a_signal_ends_the_program() {
    let place = place("run-signal");
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV] {
        let kill = format!("kill -{signal} $$");
        let output = cringle_run(&place, &["sh", "-c", &kill]).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal));
        assert_eq!(texts(&output), (String::new(), String::new()));
    }
}

/// The lines of `env`, without the variable that the test sets.
fn environment(command: &mut Command) -> Vec<String> {
    let text = printed(command, 0);
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.retain(|line| !line.starts_with("CRINGLE_PRELOAD="));
    lines.sort();
    lines
}

#[test]
fn the_environment_is_the_callers() {
    let place = place("run-environment");
    let mut plain = Command::new("env");
    plain.env_remove("LD_PRELOAD").current_dir(&place);
    let plain = environment(&mut plain);
    assert!(plain.len() > 3, "{plain:?}");
    assert_eq!(environment(&mut cringle_run(&place, &["env"])), plain);
    let given =
        ["--workers", "3", "--watchdog", "off", "--dump", "./d", "--driver", "uring", "env"];
    let mut added = environment(&mut cringle_run(&place, &given));
    added.retain(|line| !plain.contains(line));
    let of_options =
        ["CRINGLE_DRIVER=uring", "CRINGLE_DUMP=./d", "CRINGLE_WATCHDOG=off", "CRINGLE_WORKERS=3"];
    assert_eq!(added, of_options);
    let mut traced = cringle(&place);
    traced.args(["--trace", "t", "run", "env"]).env("CRINGLE_PRELOAD", library());
    let trace = format!("CRINGLE_TRACE={}", place.join("t").display());
    assert!(environment(&mut traced).contains(&trace));
}

#[test]
fn children_are_served_on_request() {
    let place = place("run-children");
    if !has_threads(&place) {
        return;
    }
    let started = ["sh", "-c", "./threads; echo $?"];
    assert_eq!(printed(&mut cringle_run(&place, &started), 0), "threads\n7\n");
    let started = ["--children", "sh", "-c", "./threads; echo $?"];
    assert_eq!(printed(&mut cringle_run(&place, &started), 0), "fibers\n7\n");
}

#[test]
fn a_program_that_replaces_the_first_is_served() {
    let place = place("run-replaced");
    if !has_threads(&place) {
        return;
    }
    write_script(&place, "script", "#!/bin/sh\nexec \"$@\"\n");
    for before in [&["env", "A=1"][..], &["nice", "-n", "1"], &["./script"], &["setsid", "env"]] {
        let arguments = [before, &["./threads"]].concat();
        assert_eq!(printed(&mut cringle_run(&place, &arguments), STATUS), "fibers\n", "{before:?}");
    }
}

#[test]
fn what_the_caller_preloads_is_kept() {
    let place = place("run-preload");
    if !compiled(&place, "other.so", "int other;", &["-shared", "-fPIC"]) {
        return;
    }
    let other = place.join("other.so");
    let script = "grep -c other.so /proc/$$/maps >/dev/null && echo \"$LD_PRELOAD\"; \
                  env | grep ^LD_PRELOAD=; exec env";
    let run = |arguments: &[&str]| {
        let mut command = cringle_run(&place, &[arguments, &["sh", "-c", script]].concat());
        printed(command.env("LD_PRELOAD", &other), 0)
    };
    let shown = other.display().to_string();
    let expected = format!("{shown}\nLD_PRELOAD={shown}\n");
    let text = run(&[]);
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains(&format!("\nLD_PRELOAD={shown}\n")), "{text}");
    let both = format!("{}:{shown}", library().canonicalize().unwrap().display());
    let text = run(&["--children"]);
    assert!(text.starts_with(&format!("{both}\nLD_PRELOAD={both}\n")), "{text}");
}

#[test]
fn standard_input_is_the_programs() {
    let place = place("run-stdin");
    let mut command = cringle_run(&place, &["cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"a line\n"[..]));
}

/// Prints which of the standard descriptors are open, and the blocked and ignored signals.
const STATE: &str = r#"
    for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && open=$open$fd; done
    echo "open $open" >&3
    while read name value; do
        case $name in SigBlk: | SigIgn:) echo "$name $value" >&3 ;; esac
    done 4</proc/$$/status <&4"#;

#[test]
fn descriptors_and_signals_are_the_callers() {
    let place = place("run-state");
    let by_shell = |script: &str, program: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec 3>&1; {script}")).current_dir(&place);
        command.args([program, STATE]).env("CRINGLE_PRELOAD", library()).env_remove("LD_PRELOAD");
        printed(&mut command, 0)
    };
    let cringle = env!("CARGO_BIN_EXE_cringle");
    for closed in ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        for trap in ["", "trap '' PIPE; ", "trap '' INT HUP; "] {
            let plain = by_shell(&format!("{trap}exec sh -c \"$1\" {closed}"), "-");
            let run = by_shell(&format!("{trap}exec \"$0\" run sh -c \"$1\" {closed}"), cringle);
            assert_eq!(run, plain, "{trap}{closed}");
            assert_eq!(plain.lines().count(), 3, "{plain}");
        }
    }
}
