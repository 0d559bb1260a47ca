//! A foreign server (`--command`): starts the program with an address, checks that it responds, and
//! measures it from outside, including all processes that it starts.

use super::args::HttpCase;
use super::exchange::{Expected, LAST_REQUEST, REQUEST, TOO_LONG, exchange, wrong};
use super::process_tree::ProcessTree;
use super::server_process::{ServerProcess, spawn};
use crate::child::Stderr;
use crate::meter::Usage;
use cringle_report::interrupt;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long the program has to listen and to respond.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two attempts to connect: a foreign program does not report that it listens.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The value of `--command`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: String,
    words: Vec<String>,
}

impl Program {
    /// Parses `NAME=COMMAND`.
    pub(super) fn parse(text: &str) -> Result<Program, String> {
        let bad = |why: &str| Err(why.into());
        let Some((name, command)) = text.split_once('=').filter(|(name, _)| !name.is_empty())
        else {
            return bad("write NAME='PROGRAM ARGUMENTS {address}'");
        };
        let words = match shell_words::split(command) {
            Ok(words) if !words.is_empty() => words,
            Ok(_) => return bad("no program is given"),
            Err(error) => return bad(&error.to_string()),
        };
        if !words.iter().any(|word| word.contains("{address}") || word.contains("{port}")) {
            return bad("it needs an address to listen at: write {address} or {port} into it");
        }
        Ok(Program { name: name.into(), words })
    }

    /// Whether the program can run with this number of workers.
    pub(super) fn supports(&self, workers: usize) -> bool {
        workers == 1 || self.words.iter().any(|word| word.contains("{workers}"))
    }

    pub(super) fn text(&self) -> String {
        shell_words::join(&self.words)
    }

    fn command(&self, addr: SocketAddr, case: &HttpCase) -> Command {
        let fill = |word: &String| {
            word.replace("{address}", &addr.to_string())
                .replace("{port}", &addr.port().to_string())
                .replace("{workers}", &case.workers.to_string())
                .replace("{connection}", if case.keepalive { "keep-alive" } else { "close" })
        };
        let mut words = self.words.iter().map(fill);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Starts the program on these processors, and waits until it has responded to a request.
    pub(super) fn start(
        &self,
        case: &HttpCase,
        cpus: &[usize],
    ) -> io::Result<Box<dyn ServerProcess>> {
        let addr = free_address()?;
        let mut process = Process::spawn(self.command(addr, case), addr, cpus)?;
        process.wait_until_it_listens(PATIENCE)?;
        process.probe(case.keepalive)?;
        Ok(Box::new(process))
    }
}

/// Returns a free port. If another process takes it first, the program reports that and ends.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

struct Process {
    child: std::process::Child,
    tree: ProcessTree,
    errors: Stderr,
    addr: SocketAddr,
    ended: Option<ExitStatus>,
}

impl ServerProcess for Process {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn used(&mut self) -> io::Result<Usage> {
        self.tree.used()
    }

    fn ids(&self) -> Vec<u32> {
        self.tree.ids()
    }

    fn failure(&mut self) -> Option<String> {
        if self.ended.is_none() && interrupt::has_ended(self.child.id()) {
            self.end();
        }
        let status = self.ended?;
        Some(self.errors.describe(status))
    }
}

impl Process {
    fn spawn(mut command: Command, addr: SocketAddr, cpus: &[usize]) -> io::Result<Process> {
        let errors = Stderr::new()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.writer()?);
        let child = spawn(&mut command, cpus).map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("cannot run `{program}`: {error}"))
        })?;
        let tree = ProcessTree::of(child.id());
        Ok(Process { child, tree, errors, addr, ended: None })
    }

    /// Kills the program and all processes of its group.
    fn end(&mut self) {
        if self.ended.is_none() {
            interrupt::kill_group(self.child.id());
            interrupt::forget_child();
            self.ended = self.child.wait().ok();
        }
    }

    fn wait_until_it_listens(&mut self, patience: Duration) -> io::Result<()> {
        let started = Instant::now();
        loop {
            let connected = TcpStream::connect_timeout(&self.addr, patience);
            if let Some(failure) = self.failure() {
                return Err(io::Error::other(format!("it ended, {failure}")));
            }
            match connected {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > patience => {
                    let addr = self.addr;
                    let text = format!("it does not listen at {addr} after {patience:?}: {error}");
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(_) => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Checks that the program behaves as the load expects, and explains what is wrong.
    fn probe(&mut self, keepalive: bool) -> io::Result<()> {
        let result = if keepalive { probe_twice(self.addr) } else { probe_once(self.addr) };
        result.map_err(|error| match self.failure() {
            Some(failure) => io::Error::other(format!("it ended, {failure}")),
            None => error,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends two requests on one connection.
fn probe_twice(addr: SocketAddr) -> io::Result<()> {
    let mut stream = connect(addr)?;
    exchange(&mut stream, REQUEST, &Expected::Good)?;
    exchange(&mut stream, REQUEST, &Expected::Good).map_err(|error| {
        let text = "a connection accepts no second request, which HTTP/1.1 requires (or measure \
                    with --no-keepalive)";
        io::Error::new(error.kind(), format!("{text}: {error}"))
    })
}

/// Sends a request that ends its connection.
fn probe_once(addr: SocketAddr) -> io::Result<()> {
    let mut stream = connect(addr)?;
    exchange(&mut stream, LAST_REQUEST, &Expected::Good)?;
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(wrong(TOO_LONG)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let text = "it does not end the connection after a request with `Connection: close` \
                        (measure with --keepalive)";
            Err(io::Error::new(ErrorKind::TimedOut, text))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_command_gets_its_address_and_threads() {
        let program =
            Program::parse("nginx=nginx -c 'a b' {address} -p{port} -w {workers} {connection}")
                .unwrap();
        let case = HttpCase { workers: 3, connections: 1, keepalive: true };
        let command = program.command(([127, 0, 0, 1], 80).into(), &case);
        assert_eq!(command.get_program(), "nginx");
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words, ["-c", "a b", "127.0.0.1:80", "-p80", "-w", "3", "keep-alive"]);
        assert!(program.supports(3) && !Program::parse("a=b {port}").unwrap().supports(2));
    }

    #[test]
    fn a_command_without_an_address_is_refused() {
        for (text, word) in [
            ("nginx", "NAME="),
            ("=nginx {port}", "NAME="),
            ("a=", "no program is given"),
            ("a=nginx", "{address}"),
            ("a=nginx '{port}", "quot"),
        ] {
            let error = Program::parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_program_that_never_listens_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut command = Command::new("sh");
        command.args(["-c", "(sleep 3600; echo alive) > \"$0\" & wait"]).arg(&pipe);
        let mut process = Process::spawn(command, free_address().unwrap(), &[]).unwrap();
        let mut alive = std::fs::File::open(&pipe).unwrap();
        let error = process.wait_until_it_listens(Duration::from_millis(30)).unwrap_err();
        assert!(error.to_string().contains("does not listen at 127.0.0.1:"), "{error}");
        drop(process);
        let mut text = String::new();
        alive.read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
    }

    #[test]
    fn a_program_that_ends_is_quoted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such luck >&2; exit 3"]);
        let mut process = Process::spawn(command, free_address().unwrap(), &[]).unwrap();
        let error =
            process.wait_until_it_listens(Duration::from_secs(3600)).unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no such luck"), "{error}");
    }

    /// Returns the result of probing a server that sends these responses.
    fn probed(responses: &'static [&'static str], keepalive: bool) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for response in responses {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.extend(byte);
                }
                stream.write_all(response.as_bytes()).unwrap();
            }
        });
        let result = if keepalive { probe_twice(addr) } else { probe_once(addr) };
        server.join().unwrap();
        result.map_or_else(|error| error.to_string(), |()| "good".into())
    }

    #[test]
    fn an_unusable_response_is_explained() {
        const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        const SHORT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab";
        const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(probed(&[GOOD, GOOD], true), "good");
        assert_eq!(probed(&[GOOD], false), "good");
        assert!(probed(&[GOOD], true).contains("accepts no second request"));
        assert!(probed(&[MISSING], true).contains("status 404"));
        assert!(probed(&["HTTP/1.1 200 OK\r\n\r\nab"], false).contains("no Content-Length"));
        assert!(probed(&[SHORT], false).contains("complete"));
        assert!(probed(&["220 mail\r\n"], true).contains("not HTTP"));
    }
}
