//! `cringle run`, on the programs of this machine and on small ones that the tests compile with
//! `cc`.

mod explained;
mod found;
mod kept;
mod refused;

use crate::common::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The library, which cargo has built beside this program.
fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libcringle_preload.so");
    assert!(path.exists(), "{}: it was not built", path.display());
    path
}

/// `cringle run` with these arguments, in the directory `place`.
fn cringle_run<S: AsRef<std::ffi::OsStr>>(place: &Path, arguments: &[S]) -> Command {
    let mut command = cringle(place);
    command.arg("run").args(arguments).env("CRINGLE_PRELOAD", library()).env_remove("LD_PRELOAD");
    command
}

/// Returns what the program prints, if it ends with this status and has no errors.
fn printed(command: &mut Command, status: i32) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = texts(&output);
    assert_eq!((output.status.code(), &*err), (Some(status), ""), "{out}");
    out
}

/// The status and the error of a command that prints nothing else.
fn refusal(output: &Output) -> (i32, String) {
    let (out, err) = texts(output);
    assert_eq!(out, "", "{err}");
    (output.status.code().unwrap(), err)
}

/// Creates 50 threads that all read from a pipe, and prints whether they are threads of the system.
const THREADS: &str = r#"
    #include <dirent.h>
    #include <pthread.h>
    #include <stdatomic.h>
    #include <stdio.h>
    #include <unistd.h>
    static int ends[2];
    static atomic_int begun;
    static void *wait_for_end(void *argument) {
        char byte;
        begun++;
        read(ends[0], &byte, 1);
        return argument;
    }
    int main(void) {
        enum { COUNT = 50 };
        pthread_t threads[COUNT];
        if (pipe(ends)) return 1;
        for (int i = 0; i < COUNT; i++) pthread_create(&threads[i], 0, wait_for_end, 0);
        while (begun < COUNT) usleep(1000);
        DIR *tasks = opendir("/proc/self/task");
        int count = -2;
        while (readdir(tasks)) count++;
        close(ends[1]);
        for (int i = 0; i < COUNT; i++) pthread_join(threads[i], 0);
        puts(count > COUNT ? "threads" : "fibers");
        return 7;
    }"#;
const STATUS: i32 = 7;

/// Compiles [`THREADS`].
fn has_threads(place: &Path) -> bool {
    compiled(place, "threads", THREADS, &["-pthread"])
}

fn write_script(place: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = place.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
