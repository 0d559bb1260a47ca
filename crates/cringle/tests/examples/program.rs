//! The built programs of `examples/`: starts them, and ends their servers.
//!
//! `cargo test` builds the examples before it runs the tests, but `cargo test --test examples` does
//! not. An example that is missing, or older than a file that it is made of, fails the test.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::SystemTime;

/// Returns the path of the built example.
pub(crate) fn path(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().with_file_name("examples").join(name);
    let remedy = "run `cargo test -p cringle --all-features`, or first `cargo build -p cringle \
                  --all-features --examples`";
    assert!(path.exists(), "{} does not exist: {remedy}", path.display());
    if let Some(newer) = newer_source(&path) {
        panic!("{} is older than {newer}: {remedy}", path.display());
    }
    path
}

/// Returns a file that has changed since the program was built, by the list that cargo writes
/// beside the program. A program without its list was copied, for example to another machine.
fn newer_source(program: &Path) -> Option<String> {
    let time = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let list = std::fs::read_to_string(program.with_extension("d")).ok()?;
    // "PROGRAM: FILE FILE…", in which a backslash precedes the blanks of a name.
    let files = list.split_once(": ")?.1.replace("\\ ", "\0");
    let built = time(program)?;
    let mut names = files.split_whitespace().map(|name| name.replace('\0', " "));
    names.find(|name| time(name.as_ref()).is_none_or(|changed| changed > built))
}

/// Returns the command that runs an example. It is killed when this thread ends, also by a signal
/// that ends the process of the tests.
pub(crate) fn command(name: &str) -> Command {
    let mut command = Command::new(path(name));
    // On a busy machine the watchdog would report fibers that had no time.
    command.env_remove("RUST_BACKTRACE").env("CRINGLE_WATCHDOG", "off");
    let end_with_parent = || {
        // SAFETY: no pointers are passed.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // A shell's background job ignores this signal, and its children would inherit that.
            libc::signal(libc::SIGINT, libc::SIG_DFL);
        }
        Ok(())
    };
    // SAFETY: both calls are async-signal-safe: the child may make them between `fork` and `exec`.
    unsafe { command.pre_exec(end_with_parent) };
    command
}

/// The result of an example that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended {
            status: output.status.code(),
            out: text(output.stdout),
            errors: text(output.stderr),
        }
    }
}

/// Runs an example to its end.
#[track_caller]
pub(crate) fn run(mut command: Command) -> Ended {
    command.stdin(Stdio::null()).output().unwrap().into()
}

/// Runs an example that must succeed without a message, and returns its output.
#[track_caller]
pub(crate) fn out(name: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let ended = run(with(name, arguments));
    assert!(ended.status == Some(0) && ended.errors.is_empty(), "{name}: {ended:?}");
    ended.out
}

/// Runs an example that must fail, and returns its message.
#[track_caller]
pub(crate) fn error(name: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let ended = run(with(name, arguments));
    assert!(ended.status == Some(1) && !ended.errors.is_empty(), "{name}: {ended:?}");
    ended.errors
}

/// Returns the command that runs an example with arguments.
pub(crate) fn with(name: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = command(name);
    for argument in arguments {
        command.arg(argument);
    }
    command
}

/// An example that serves. It is stopped when this is dropped, and must end well then.
pub(crate) struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    pub(crate) addr: SocketAddr,
    /// The signal at which the example ends by itself.
    pub(crate) signal: Option<libc::c_int>,
    is_signalled: bool,
}

impl Server {
    /// Starts an example that ends by itself at Ctrl-C, and waits until it listens.
    #[track_caller]
    pub(crate) fn start(command: Command) -> Server {
        let mut server = Server::start_endless(command);
        server.signal = Some(libc::SIGINT);
        server
    }

    /// Starts an example that serves until it is killed, and waits until it listens.
    #[track_caller]
    pub(crate) fn start_endless(mut command: Command) -> Server {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut before = Vec::new();
        let addr = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("the server does not listen: {:?}: {before:?}", child.wait());
            };
            match address(&line) {
                Some(addr) => break addr,
                None => before.push(line),
            }
        };
        Server { child, lines, addr, signal: None, is_signalled: false }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).unwrap()
    }

    /// Stops the server's threads until [`Server::resume`]. The kernel still connects clients.
    pub(crate) fn pause(&self) {
        self.kill(libc::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.kill(libc::SIGCONT);
    }

    fn kill(&self, signal: libc::c_int) {
        // SAFETY: no pointers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Sends the bytes, and returns the answer up to the end of the connection.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        rest(&mut stream)
    }

    /// Sends the signal that stops the server, once: a second one would kill it.
    pub(crate) fn signal(&mut self) {
        let signal = self.signal.expect("the example ends by itself");
        if !std::mem::replace(&mut self.is_signalled, true) {
            self.kill(signal);
        }
    }

    /// Stops the server, and returns the last line that it has printed.
    #[track_caller]
    pub(crate) fn stop(mut self) -> String {
        self.ended()
    }

    #[track_caller]
    fn ended(&mut self) -> String {
        self.signal();
        let printed: Vec<String> = self.lines.by_ref().map(Result::unwrap).collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the server ended with {status}: {printed:?}");
        printed.last().cloned().unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if self.signal.is_some() && !std::thread::panicking() {
            self.ended();
        } else {
            let killed = self.child.kill().and_then(|()| self.child.wait());
            assert!(killed.is_ok() || std::thread::panicking(), "{killed:?}");
        }
    }
}

/// Returns the address that a line names.
fn address(line: &str) -> Option<SocketAddr> {
    let start = line.find("127.0.0.1:")?;
    let end = line[start..].find(|c: char| !matches!(c, '0'..='9' | '.' | ':'));
    line[start..end.map_or(line.len(), |end| start + end)].parse().ok()
}

pub(crate) fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
