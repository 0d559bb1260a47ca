//! Servers of the distribution, started on loopback with a data folder of their own, and ended by
//! process id.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The kinds of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    Redis,
    Mariadb,
    Postgres,
}

/// A running server. Dropping it ends the process and removes its data.
pub struct Server {
    child: Child,
    port: u16,
    _data: TempDir,
}

/// A server that does not answer within this time has failed.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Another program may take the port between the test and the server.
const PORTS: usize = 5;

impl Server {
    /// Starts a server that accepts this many connections. Returns `None`, and prints so, if it is
    /// not installed.
    pub fn start(kind: Database, connections: usize) -> Option<Server> {
        let Some(program) = kind.program() else {
            eprintln!("SKIPPED, NOTHING WAS TESTED: {kind:?} is not installed");
            return None;
        };
        let data = tempfile::Builder::new().prefix("cringle-ecosystem-").tempdir().unwrap();
        let user = Unprivileged::own(data.path());
        kind.prepare(&program, data.path(), &user);
        for _ in 0..PORTS {
            let port = free_port();
            let command = kind.command(&program, data.path(), port, connections);
            if let Some(child) = started(kind, command, &user, data.path(), port) {
                return Some(Server { child, port, _data: data });
            }
        }
        let log = fs::read_to_string(data.path().join("log")).unwrap_or_default();
        panic!("{kind:?} does not start: {log}");
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A quick end: nothing of its data is needed. postgres ends its children at SIGQUIT.
        // SAFETY: a system call without pointers. The child is not reaped, so the id is its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGQUIT) };
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Database {
    /// The path of the server's program.
    fn program(self) -> Option<PathBuf> {
        let found = |names: &[&str]| names.iter().map(PathBuf::from).find(|path| path.exists());
        match self {
            // One program with several names: Debian's redis-tools has it, too, without a service.
            Database::Redis => found(&[
                "/usr/bin/redis-server",
                "/usr/local/bin/redis-server",
                "/usr/bin/redis-check-rdb",
            ]),
            Database::Mariadb => {
                found(&["/usr/sbin/mariadbd", "/usr/libexec/mariadbd", "/usr/sbin/mysqld"])
            }
            Database::Postgres => newest_postgres(),
        }
    }

    /// Creates the files that the server needs before it starts.
    fn prepare(self, program: &Path, data: &Path, user: &Unprivileged) {
        if self == Database::Postgres {
            let mut initdb = Command::new(program.with_file_name("initdb"));
            initdb.args(["--no-sync", "-A", "trust", "-U", "postgres", "-D"]).arg(data.join("db"));
            let output = user.become_by(&mut initdb).current_dir(data).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn is_ready(self, data: &Path, port: u16) -> bool {
        // postgres listens before it has read its log.
        let status = || fs::read_to_string(data.join("db/postmaster.pid")).unwrap_or_default();
        TcpStream::connect(("127.0.0.1", port)).is_ok()
            && (self != Database::Postgres || status().trim_end().ends_with("ready"))
    }

    fn command(self, program: &Path, data: &Path, port: u16, connections: usize) -> Command {
        let mut command = Command::new(program);
        let directory = data.display();
        match self {
            Database::Redis => {
                command.arg0("redis-server");
                command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command.args(["--port", &port.to_string(), "--dir"]).arg(data);
                command.args(["--maxclients", &(connections + 20).to_string()]);
                command.args(["--tcp-backlog", &BACKLOG.to_string()]);
            }
            Database::Mariadb => {
                // Without tables of users: whoever connects is root.
                command.args(["--no-defaults", "--skip-grant-tables", "--skip-networking=0"]);
                command.args(["--bind-address=127.0.0.1", "--innodb=OFF"]);
                command.args(["--default-storage-engine=MyISAM", "--skip-log-bin"]);
                command.arg(format!("--port={port}")).arg(format!("--datadir={directory}"));
                command.arg(format!("--socket={directory}/socket"));
                command.arg(format!("--pid-file={directory}/pid"));
                command.arg(format!("--max-connections={}", connections + 20));
                command.arg(format!("--back-log={BACKLOG}"));
            }
            Database::Postgres => {
                command.arg("-D").arg(data.join("db")).args(["-p", &port.to_string()]);
                for setting in ["fsync=off", "listen_addresses=127.0.0.1"] {
                    command.args(["-c", setting]);
                }
                command.args(["-c", "unix_socket_directories=", "-c", "shared_buffers=16MB", "-c"]);
                command.arg(format!("max_connections={}", connections + 20));
            }
        }
        command
    }
}

fn newest_postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let programs = versions.map(|version| version.path().join("bin/postgres"));
    programs.filter(|path| path.with_file_name("initdb").exists()).max()
}

/// The user `nobody`, if this process is root's: postgres refuses to run as root.
struct Unprivileged(Option<(u32, u32)>);

impl Unprivileged {
    /// Gives a directory to that user.
    fn own(directory: &Path) -> Unprivileged {
        // SAFETY: a system call without arguments.
        if unsafe { libc::geteuid() } != 0 {
            return Unprivileged(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let nobody = users.lines().find(|line| line.starts_with("nobody:"));
        let ids: Vec<u32> = nobody
            .map(|line| line.split(':').skip(2).take(2).filter_map(|id| id.parse().ok()).collect())
            .unwrap_or_default();
        let [user, group] = ids[..] else { panic!("/etc/passwd has no user `nobody`") };
        std::os::unix::fs::chown(directory, Some(user), Some(group)).unwrap();
        Unprivileged(Some((user, group)))
    }

    fn become_by<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }
}

/// Starts a server and returns when it is ready. Returns `None` if it ends instead.
fn started(
    kind: Database,
    mut command: Command,
    user: &Unprivileged,
    data: &Path,
    port: u16,
) -> Option<Child> {
    let log = fs::File::create(data.join("log")).unwrap();
    command.current_dir(data).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    user.become_by(&mut command);
    let die_with_the_test = || {
        // SAFETY: a system call without pointers, between fork and exec.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: the closure only makes a system call.
    unsafe { command.pre_exec(die_with_the_test) };
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + START_LIMIT;
    while !kind.is_ready(data, port) {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(Instant::now() < deadline, "{command:?} is not ready after {START_LIMIT:?}");
        thread::sleep(Duration::from_millis(10));
    }
    Some(child)
}

/// The connections that a listener keeps until the server accepts them. If there are more, the
/// kernel drops the last packet of a handshake: a client that expects the server to speak first
/// then waits for minutes, or for ever.
const BACKLOG: i32 = 4096;

/// Listens on loopback for a crowd.
pub fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: a system call without pointers, on a descriptor that is open.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) }, 0);
    listener
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
