//! What cannot be served, or cannot be run.

use super::*;
use crate::doctor::support::{SETUP, filter, filtered, limited, without_inherited_files};
use seccompiler::SeccompAction;

const EMPTY: &str = "int main(void) { return 0; }";

/// The status and the error of `cringle run` with this program.
fn refused(place: &Path, program: &str) -> (i32, String) {
    refusal(&cringle_run(place, &[program]).output().unwrap())
}

#[test]
fn programs_that_cannot_be_served_are_refused() {
    let place = place("run-refused");
    let go =
        "__attribute__((section(\".go.buildinfo\"))) int info = 1; int main(void) { return info; }";
    let other = "-Wl,--dynamic-linker=/lib/other.so";
    let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    if !(compiled(&place, "static", EMPTY, &["-static"])
        && compiled(&place, "go", go, &[])
        && compiled(&place, "musl", EMPTY, &[musl])
        && compiled(&place, "other", EMPTY, &[other])
        && compiled(&place, "library.so", "int nothing;", &["-shared", "-fPIC", "-nostdlib"]))
    {
        return;
    }
    let mut foreign = std::fs::read(place.join("static")).unwrap();
    foreign[18] = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    std::fs::write(place.join("foreign"), &foreign).unwrap();
    foreign[4] = 1;
    std::fs::write(place.join("bits32"), &foreign).unwrap();
    for name in ["foreign", "bits32"] {
        assert!(Command::new("chmod").arg("755").arg(place.join(name)).status().unwrap().success());
    }
    write_script(&place, "script", "#!./static\n");
    write_script(&place, "lost", "#!/nowhere/sh\n");
    for (name, why) in [
        ("static", "it is linked statically, so nothing can be preloaded; link it dynamically"),
        ("go", "it is written in Go, whose threads make their system calls themselves"),
        ("musl", "it uses musl; build it for a target with glibc"),
        ("library.so", "it is a shared library, not a program"),
        ("foreign", "it is built for another architecture; use the cringle of that"),
        ("bits32", "it is not a 64-bit ELF file"),
        ("script", "its interpreter ./static: it is linked statically"),
        ("lost", "its interpreter /nowhere/sh: cannot open it: No such file"),
    ] {
        let (status, text) = refused(&place, &format!("./{name}"));
        assert_eq!(status, 126, "{name}: {text}");
        assert!(text.starts_with(&format!("cringle: ./{name}: ")) && text.contains(why), "{text}");
    }
}

#[test]
fn programs_with_more_rights_are_refused() {
    let place = place_in_memory("run-rights");
    let place = place.path();
    if !is_root() {
        eprintln!("skipped: only root gives a file away");
        return;
    }
    if !compiled(place, "program", EMPTY, &[]) {
        return;
    }
    let change = |command: &str| {
        let mut change = Command::new("sh");
        assert!(change.args(["-c", command]).current_dir(place).status().unwrap().success());
    };
    for (change_to, what) in [
        ("chown 60001 program; chmod 4755 program", "it is setuid, so the system preloads nothing"),
        ("chown 0:60001 program; chmod 2755 program", "it is setgid"),
    ] {
        change(change_to);
        let (status, text) = refused(place, "./program");
        assert!(status == 126 && text.contains(what), "{text}");
        assert_eq!(
            printed(&mut cringle_run(place, &["setpriv", "--no-new-privs", "./program"]), 0),
            ""
        );
    }
    // The rights are the caller's own.
    change("chown 0:0 program; chmod 6755 program");
    assert_eq!(printed(&mut cringle_run(place, &["./program"]), 0), "");
}

#[test]
fn programs_that_cannot_be_run_have_the_status_of_env() {
    let place = place("run-absent");
    std::fs::write(place.join("data"), "no program").unwrap();
    std::fs::create_dir(place.join("directory")).unwrap();
    for (name, status, why) in [
        ("cringle-no-such-program", 127, "No such file or directory"),
        ("./absent", 127, "No such file or directory"),
        ("./data/below", 126, "Not a directory"),
        ("", 127, "No such file or directory"),
        ("./data", 126, "Permission denied"),
        ("./directory", 126, "Permission denied"),
    ] {
        let by_env = Command::new("env").arg(name).current_dir(&place).output().unwrap();
        let (found, text) = refused(&place, name);
        assert_eq!((found, by_env.status.code()), (status, Some(status)), "{name}: {text}");
        assert!(text.contains(why), "{name}: {text}");
    }
}

/// The program must not have started.
#[test]
fn demands_that_cannot_be_met_are_refused() {
    let place = place("run-demands");
    for (name, value, why) in [
        ("CRINGLE_WORKERS", "0", "must be 1 to 1024"),
        ("CRINGLE_DRIVER", "plain", "must be `uring` or `epoll`"),
        ("CRINGLE_THREADS", "green", "must be `system` or `fibers`"),
        ("CRINGLE_RESTRICT", "yes", "must be `on` or `off`"),
        ("CRINGLE_WATCHDOG", "long", "CRINGLE_WATCHDOG is"),
    ] {
        let mut command = cringle_run(&place, &["echo", "started"]);
        let (status, text) = refusal(&command.env(name, value).output().unwrap());
        assert_eq!(status, 125, "{name}: {text}");
        assert!(text.contains(&format!("{name} is \"{value}\"")) && text.contains(why), "{text}");
        // In such a program no runtime starts.
        command.env("CRINGLE_THREADS", "system");
        assert_eq!(printed(&mut command, 0), "started\n");
    }
    let mut traced = cringle(&place);
    traced.args(["--trace", "absent/trace", "run", "echo", "started"]);
    let (status, text) = refusal(&traced.output().unwrap());
    assert!(status == 125 && text.contains("absent"), "{text}");
    let without_rings = |options: &[&str]| {
        let mut command = cringle_run(&place, &[options, &["echo", "started"]].concat());
        filtered(&mut command, filter(&[SETUP], SeccompAction::Errno(libc::EPERM as u32)));
        command
    };
    let by_variable = without_rings(&[]).env("CRINGLE_DRIVER", "uring").output().unwrap();
    for output in [by_variable, without_rings(&["--driver", "uring"]).output().unwrap()] {
        let (status, text) = refusal(&output);
        assert!(status == 125 && text.starts_with("cringle: cannot make an io_uring: "), "{text}");
        assert!(text.ends_with("leave --driver and CRINGLE_DRIVER out\n"), "{text}");
    }
    for options in [&[][..], &["--driver", "epoll"], &["--workers", "2"]] {
        assert_eq!(printed(&mut without_rings(options), 0), "started\n", "{options:?}");
    }
    // No descriptor is left for the trial.
    let mut few = cringle_run(&place, &["--driver", "uring", "echo", "started"]);
    without_inherited_files(&mut few);
    limited(&mut few, libc::RLIMIT_NOFILE, 4);
    let (status, text) = refusal(&few.output().unwrap());
    assert!(status == 125 && text.starts_with("cringle: cannot try to start: "), "{text}");
}

#[test]
fn wrong_options_are_status_2() {
    let place = place("run-usage");
    for arguments in [
        &[][..],
        &["--workers", "0", "true"],
        &["--workers", "1025", "true"],
        &["--driver", "plain", "true"],
        &["--seconds", "0", "true"],
        &["--library", "true"],
        &["--no-such-option", "true"],
    ] {
        let (status, text) = refusal(&cringle_run(&place, arguments).output().unwrap());
        assert_eq!(status, 2, "{arguments:?}: {text}");
    }
}
