//! Processes behave as with std (promise 1), also with invalid programs, arguments and streams.

use cringle_testing::same::Log;
use cringle_testing::{child, disk, same};

same::programs! {
    use it::io::{self, Read, Write};
    use it::os::unix::process::{CommandExt, ExitStatusExt};
    use it::process::{Command, Stdio};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    pub(super) fn start_failures() -> Log {
        let mut log = Log::default();
        let directory = disk::directory();
        let file = directory.path().join("file");
        std::fs::write(&file, "not a program").unwrap();
        let file = file.to_str().unwrap();
        let here = directory.path().to_str().unwrap();
        for program in ["", "no-such-program", "/no/such", file, here, "a\0b", "/dev/null", "sh\0"] {
            let shown = program.replace(here, "HERE");
            let new = || {
                let mut command = Command::new(program);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command
            };
            log.result(format!("spawn {shown:?}"), new().spawn().map(drop));
            log.result(format!("status of {shown:?}"), new().status());
            log.result(format!("output of {shown:?}"), new().output());
        }
        log.result("an argument", shell("true").arg("a\0b").status());
        log.result("a variable", shell("true").env("A\0", "b").status());
        log.result("a value", shell("true").env("A", "b\0").status());
        log.result("a name with =", shell("echo \"$A\"").env("A=B", "c").output());
        log.result("no name", shell("true").env("", "c").status());
        log.result("no directory", shell("true").current_dir("/no/such").status());
        log.result("a file for a directory", shell("true").current_dir(file).status());
        log.result("a NUL in the directory", shell("true").current_dir("a\0").status());
        log.result("a NUL in the name", shell("true").arg0("a\0b").status());
        log.result("an invalid group", shell("true").process_group(-7).status());
        // SAFETY: the hook only returns an error.
        let refused = unsafe { shell("true").pre_exec(|| Err(io::Error::from_raw_os_error(77))).status() };
        log.result("a hook that fails", refused);
        log
    }

    pub(super) fn exits_and_streams() -> Log {
        let mut log = Log::default();
        for script in ["exit 0", "exit 7", "exit 256", "kill -9 $$", "kill -TERM $$"] {
            let status = shell(script).status();
            type Status = it::process::ExitStatus;
            let describe =
                |s: Status| (s, s.to_string(), s.code(), s.signal(), s.success());
            log.result(script, status.map(describe));
            let mut child = shell(script).spawn().unwrap();
            log.result("wait", child.wait());
            log.result("wait again", child.wait());
            log.result("try_wait", child.try_wait());
            log.result("kill", child.kill());
        }
        let mut child = shell("exec sleep 3600").spawn().unwrap();
        log.result("try_wait of a running child", child.try_wait());
        log.result("kill", child.kill());
        log.result("wait after kill", child.wait());
        log.result("output", shell("echo out; echo err >&2; exit 3").output());
        log.result("long output", shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2").output().map(|o| (o.stdout.len(), o.stderr.len(), o.status)));
        let mut child = shell("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let bytes = disk::pattern(300_000);
        let mut stdin = child.stdin.take().unwrap();
        let sent = bytes.clone();
        let writer = thread::spawn(move || stdin.write_all(&sent));
        let mut found = Vec::new();
        log.result("read the copied bytes", child.stdout.as_mut().unwrap().read_to_end(&mut found));
        log.result("write all bytes", writer.join().unwrap());
        log.value("both are equal", found == bytes);
        log.result("wait_with_output", child.wait_with_output());
        let mut child = shell("exit 0").stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        log.result("wait", child.wait());
        log.result("write to an ended child", stdin.write(b"x"));
        log.result("write of no bytes", stdin.write(b""));
        let child = shell("echo a; echo b >&2").stdout(Stdio::piped()).spawn();
        log.result("only stdout", child.and_then(|child| child.wait_with_output()));
        let child = shell("echo b >&2").stderr(Stdio::piped()).spawn();
        log.result("only stderr", child.and_then(|child| child.wait_with_output()));
        let mut command = shell("echo \"$A $0\"");
        command.env("A", "b").env_remove("C").current_dir("/").arg0("name");
        log.value("Debug", format!("{command:?}").contains("echo"));
        log.value("getters", (command.get_program(), command.get_args().collect::<Vec<_>>(), command.get_envs().collect::<Vec<_>>(), command.get_current_dir()));
        log.result("output with changes", command.output());
        log.result("no variables", Command::new("/bin/sh").args(["-c", "echo \"[$HOME]\""]).env_clear().output());
        log
    }
}

/// Each runs in its own process, because a child between `fork` and `exec` holds the pipes of other
/// tests.
macro_rules! the_same_alone {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            child::must_succeed(stringify!($name), || {
                same::compare(with_std::$name, on_threads::$name, on_fibers::$name);
            });
        }
    )*};
}

the_same_alone!(start_failures, exits_and_streams);
