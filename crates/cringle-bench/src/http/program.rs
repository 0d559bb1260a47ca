//! A server that is somebody else's program: started at an address of its own, asked once whether it
//! serves, and measured from outside, with all processes that it has made.

use super::args::Cell;
use super::exchange::{self, Expected, ResponseReader};
use super::process_tree::ProcessTree;
use super::server_process::{Errors, ServerProcess, ServerUse};
use cringle_report::failure::Failure;
use cringle_report::interrupt;
use cringle_report::machine::cpus;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// One that does not listen or answer by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether it listens: nothing tells when somebody else's program does.
const LOOK: Duration = Duration::from_millis(10);

/// What `--command` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: String,
    words: Vec<String>,
}

impl Program {
    /// Of `NAME=COMMAND`.
    pub(super) fn parse(text: &str) -> Result<Program, Failure> {
        let bad = |why: &str| Err(Failure::usage(format!("--command {text}: {why}")));
        let Some((name, command)) = text.split_once('=').filter(|(name, _)| !name.is_empty())
        else {
            return bad("write NAME='PROGRAM ARGUMENTS {address}'");
        };
        let words = match shell_words::split(command) {
            Ok(words) if !words.is_empty() => words,
            Ok(_) => return bad("there is no program"),
            Err(error) => return bad(&error.to_string()),
        };
        if !words.iter().any(|word| word.contains("{address}") || word.contains("{port}")) {
            return bad("it must be told where to listen: write {address} or {port} into it");
        }
        Ok(Program { name: name.into(), words })
    }

    /// It is told how many threads it has.
    pub(super) fn takes(&self, workers: usize) -> bool {
        workers == 1 || self.words.iter().any(|word| word.contains("{workers}"))
    }

    pub(super) fn text(&self) -> String {
        shell_words::join(&self.words)
    }

    fn command(&self, addr: SocketAddr, cell: &Cell) -> Command {
        let fill = |word: &String| {
            word.replace("{address}", &addr.to_string())
                .replace("{port}", &addr.port().to_string())
                .replace("{workers}", &cell.workers.to_string())
                .replace("{connection}", if cell.keepalive { "keep-alive" } else { "close" })
        };
        let mut words = self.words.iter().map(fill);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// Starts it on these processors; it listens, and has answered.
    pub(super) fn start(&self, cell: &Cell, cpus: &[usize]) -> io::Result<Box<dyn ServerProcess>> {
        let addr = free()?;
        let mut process = Process::spawn(self.command(addr, cell), addr, cpus)?;
        process.wait_until_it_listens(PATIENCE)?;
        process.ask(cell.keepalive)?;
        Ok(Box::new(process))
    }
}

/// A port that is nobody's. It could become somebody else's before the program has it: then the program
/// says so and ends.
fn free() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Runs it on a thread that is tied to these: a child inherits that.
fn on<T: Send>(cpus: &[usize], f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let tied = || {
        if !cpus.is_empty() {
            cpus::tie_to(cpus)?;
        }
        f()
    };
    thread::scope(|s| s.spawn(tied).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Process {
    child: std::process::Child,
    tree: ProcessTree,
    errors: Errors,
    addr: SocketAddr,
    ended: Option<ExitStatus>,
}

impl ServerProcess for Process {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn used(&mut self) -> io::Result<ServerUse> {
        self.tree.used()
    }

    fn ids(&self) -> Vec<u32> {
        self.tree.ids()
    }

    fn complaint(&mut self) -> Option<String> {
        if self.ended.is_none() && interrupt::has_ended(self.child.id()) {
            self.end();
        }
        let status = self.ended?;
        Some(self.errors.complaint(status))
    }
}

impl Process {
    fn spawn(mut command: Command, addr: SocketAddr, cpus: &[usize]) -> io::Result<Process> {
        let errors = Errors::new()?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.writer()?);
        let child = on(cpus, || command.process_group(0).spawn()).map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("cannot run `{program}`: {error}"))
        })?;
        interrupt::kill_group_on_interrupt(child.id());
        let tree = ProcessTree::of(child.id());
        Ok(Process { child, tree, errors, addr, ended: None })
    }

    /// Of all that it has made, too.
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
            if let Some(complaint) = self.complaint() {
                return Err(io::Error::other(format!("it ended, {complaint}")));
            }
            match connected {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > patience => {
                    let addr = self.addr;
                    let text = format!("it does not listen at {addr} after {patience:?}: {error}");
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(_) => thread::sleep(LOOK),
            }
        }
    }

    /// Whether it does what the load will rely on; in words, which the load has not.
    fn ask(&mut self, keepalive: bool) -> io::Result<()> {
        let asked = if keepalive { ask_twice(self.addr) } else { ask_once(self.addr) };
        asked.map_err(|error| match self.complaint() {
            Some(complaint) => io::Error::other(format!("it ended, {complaint}")),
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

fn ask_twice(addr: SocketAddr) -> io::Result<()> {
    let mut stream = connect(addr)?;
    exchange(&mut stream, exchange::REQUEST)?;
    exchange(&mut stream, exchange::REQUEST).map_err(|error| {
        let text = "a connection takes no second request (HTTP/1.1 keeps it, and so must the server; or \
                    measure with --no-keepalive)";
        io::Error::new(error.kind(), format!("{text}: {error}"))
    })
}

fn ask_once(addr: SocketAddr) -> io::Result<()> {
    let mut stream = connect(addr)?;
    exchange(&mut stream, exchange::LAST_REQUEST)?;
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, "an answer is longer than it says")),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let text = "it was asked to end the connection by `Connection: close`, and does not \
                        (measure with --keepalive)";
            Err(io::Error::new(ErrorKind::TimedOut, text))
        }
        Err(error) => Err(error),
    }
}

fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<()> {
    stream.write_all(request)?;
    let (mut answer, mut buffer) = (ResponseReader::default(), vec![0; 64 << 10]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => {
                let text = "it ended the connection before its answer was complete";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
            Ok(count) if answer.take(&buffer[..count], &Expected::Good)? => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let text = format!("it did not answer GET / within {} s", PATIENCE.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_its_address_and_threads() {
        let program =
            Program::parse("nginx=nginx -c 'a b' {address} -p{port} -w {workers} {connection}")
                .unwrap();
        let cell = Cell { workers: 3, connections: 1, keepalive: true };
        let command = program.command(([127, 0, 0, 1], 80).into(), &cell);
        assert_eq!(command.get_program(), "nginx");
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words, ["-c", "a b", "127.0.0.1:80", "-p80", "-w", "3", "keep-alive"]);
        assert!(program.takes(3) && !Program::parse("a=b {port}").unwrap().takes(2));
    }

    #[test]
    fn a_command_that_cannot_be_told_is_refused() {
        for (text, word) in [
            ("nginx", "NAME="),
            ("=nginx {port}", "NAME="),
            ("a=", "no program"),
            ("a=nginx", "{address}"),
            ("a=nginx '{port}", "quot"),
        ] {
            let error = Program::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn who_never_listens_is_given_up_and_ended() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut command = Command::new("sh");
        command.args(["-c", "(sleep 20; echo alive) > \"$0\" & wait"]).arg(&pipe);
        let mut process = Process::spawn(command, free().unwrap(), &[]).unwrap();
        let mut alive = std::fs::File::open(&pipe).unwrap();
        let error = process.wait_until_it_listens(Duration::from_millis(30)).unwrap_err();
        assert!(error.to_string().contains("does not listen at 127.0.0.1:"), "{error}");
        drop(process);
        let mut said = String::new();
        alive.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
    }

    #[test]
    fn who_ends_is_asked_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such luck >&2; exit 3"]);
        let mut process = Process::spawn(command, free().unwrap(), &[]).unwrap();
        let error = process.wait_until_it_listens(PATIENCE).unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no such luck"), "{error}");
    }

    /// What is said of one that answers with these bytes, whatever it is asked.
    fn said(answers: &'static [&'static str], keepalive: bool) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.extend(byte);
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let asked = if keepalive { ask_twice(addr) } else { ask_once(addr) };
        server.join().unwrap();
        asked.map_or_else(|error| error.to_string(), |()| "good".into())
    }

    #[test]
    fn an_answer_that_the_load_could_not_take_is_explained() {
        const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(said(&[GOOD, GOOD], true), "good");
        assert_eq!(said(&[GOOD], false), "good");
        assert!(said(&[GOOD], true).contains("takes no second request"));
        const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert!(said(&[MISSING], true).contains("status 404"));
        assert!(said(&["HTTP/1.1 200 OK\r\n\r\nab"], false).contains("how long"));
        assert!(
            said(&["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"], false).contains("complete")
        );
        assert!(said(&["220 mail\r\n"], true).contains("no HTTP"));
    }
}
