//! What can be asked.

use super::program::Program;
use clap::{Args, ValueEnum};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::units;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cringle bench http                          all servers; 50, 500 and 10,000 connections, then one
                                              request per connection
  cringle bench http --requests 10000 --connections 50 --no-keepalive
                                              as in the papers on MIO and URingManager
  cringle bench http --servers fibers,uring --connections 50 --repeat 9
  cringle bench http --servers fibers,tokio-mt --workers 1,2,4,8 --svg plots
  cringle bench http --servers uring --ablate multishot,fixed,bufring,sqpoll
  cringle bench http --command 'monoio=benches/target/release/servers monoio {address}'
                                              beside any server (benches/README.md has some)
  cringle bench http --idle 100000 --servers epoll,tokio,uring,fibers
  cringle bench http --listen 0.0.0.0:8080 --servers fibers      on one machine, and on the other
  cringle bench http --target server:8080
  cringle bench http --json - | jq '.runs[] | {server, connections, cpu_us_per_request}'

A server answers each request with the same small page. It is a process of its own, on the first
processors; the load comes from the others: each connection sends a request, waits for the whole
answer, and sends the next one. CPU and context switches are the server's. Work that the kernel does
for a connection when a packet comes is mostly the sender's: over the loopback, both sides'.

What limits: the own load is one thread for each of its processors, with two system calls a request and a
share of an epoll_wait; JSON tells its CPU for a request (load_cpu_us_per_request). Where that is as much
as the server's, the load is the limit on two processors, and the table says so: compare CPU then. It is a
closed loop: an answer that is late delays the next request of its connection, so that a pause of the
server is one late answer for each connection, and not one for each request that would have come
meanwhile. Latencies are of every request, in an HdrHistogram of three digits, from the write of the
request to the read of the answer's last byte, what the load keeps waiting included.

Exit status: 0 done, 1 failed (a wrong answer, an I/O error), 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct HttpArgs {
    /// Which servers to compare, as a comma list [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    servers: Vec<Server>,

    /// Another server to compare with, once for each: a program that listens where it is told,
    /// {address} or {port} in its words, and answers GET / with status 200. {workers} is how many threads it
    /// may have (without it: measured with one), {connection} is keep-alive or close.
    #[arg(long = "command", value_name = "NAME=COMMAND", conflicts_with_all = ["listen", "target"])]
    commands: Vec<String>,

    /// Connections at the same time, as a comma list.
    #[arg(long, value_delimiter = ',', default_value = "50,500,10000", value_name = "N")]
    connections: Vec<usize>,

    /// Threads of a server, as a comma list (workers, where there are fibers).
    #[arg(long, alias = "threads", value_delimiter = ',', default_value = "1", value_name = "N")]
    workers: Vec<usize>,

    /// Only connections that are used again and again.
    #[arg(long, conflicts_with = "no_keepalive")]
    keepalive: bool,

    /// Only one request per connection, for each number of --connections. (Without either: both, and
    /// one request per connection only with the fewest connections.)
    #[arg(long)]
    no_keepalive: bool,

    /// Instead of all that: so many connections, kept and idle. What does each cost the server's memory, and
    /// how soon has every one been served again? (Without `threads`, unless --servers names it.)
    #[arg(long, value_name = "N", conflicts_with_all = [
        "connections", "keepalive", "no_keepalive", "requests", "seconds", "ablate", "client", "svg",
        "listen", "target",
    ])]
    pub(super) idle: Option<usize>,

    /// Requests of a run, instead of a time.
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    requests: Option<u64>,

    /// For so long a run sends requests.
    #[arg(long, alias = "runtime", default_value_t = 1.0, value_name = "S")]
    seconds: f64,

    /// Bytes of the page.
    #[arg(long, value_parser = units::parse_size, default_value = "151", value_name = "SIZE")]
    response_bytes: u64,

    /// What makes the load; `ab` and `wrk` must be installed, and have no histogram to tell.
    #[arg(long, value_enum, default_value = "own")]
    pub(super) client: Client,

    /// Measure also without a feature, as a comma list: multishot (accept), fixed (descriptors) and bufring
    /// (and multishot receives) of uring, defer of fibers; and uring with sqpoll, which it is best without.
    #[arg(long, value_delimiter = ',', value_name = "FEATURE")]
    ablate: Vec<String>,

    /// Only be the server that --servers names, at this address, until it is interrupted.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["target", "html"])]
    pub(super) listen: Option<String>,

    /// Only make the load, for a server that listens there; any that answers GET / with status 200.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["servers", "ablate", "workers"])]
    pub(super) target: Option<String>,

    /// Rounds; the figures are medians over them [default: 5; with --idle 1].
    #[arg(long, alias = "runs", value_name = "N")]
    repeat: Option<usize>,

    #[command(flatten)]
    pub(super) outputs: Outputs,

    /// Draw latencies, and rates by workers, into SVG files in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) svg: Option<PathBuf>,

    /// No progress bar.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Be a server that another `bench http` asks through standard input.
    #[arg(long, hide = true, requires = "listen")]
    pub(super) controlled: bool,

    /// Run on these processors alone.
    #[arg(long, hide = true, value_delimiter = ',', value_name = "N")]
    pub(super) cpus: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Server {
    /// A thread for each connection, with std.
    Threads,
    /// One thread with epoll (by mio) and a table of connections.
    Epoll,
    /// A task for each connection, on tokio's current-thread runtime.
    Tokio,
    /// The same on tokio's multi-thread runtime.
    TokioMt,
    /// A hand-written loop on a bare io_uring for each worker.
    Uring,
    /// A fiber for each connection: cringle's net::Server.
    Fibers,
}

pub(super) const ALL: [Server; 6] =
    [Server::Threads, Server::Epoll, Server::Tokio, Server::TokioMt, Server::Uring, Server::Fibers];

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Server::Threads => "threads",
            Server::Epoll => "epoll",
            Server::Tokio => "tokio",
            Server::TokioMt => "tokio-mt",
            Server::Uring => "uring",
            Server::Fibers => "fibers",
        }
    }

    /// It has as many threads as it is told to.
    pub(super) fn takes(self, workers: usize) -> bool {
        workers == 1 || matches!(self, Server::TokioMt | Server::Uring | Server::Fibers)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Client {
    /// This program.
    Own,
    /// ApacheBench.
    Ab,
    Wrk,
}

/// A server, perhaps without one of its features, or with one that it does better without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) server: Server,
    pub(super) changed: Option<Feature>,
}

impl Variant {
    pub(super) fn label(self) -> String {
        match self.changed {
            None => self.server.name().into(),
            Some(feature) => {
                let how = if feature.is_on() { "without" } else { "with" };
                format!("{} {how} {}", self.server.name(), feature.name())
            }
        }
    }
}

/// What a server can do with and without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// One submission for all connections that come.
    Multishot,
    /// Connections in the ring's table of files.
    Fixed,
    /// Buffers that the kernel chooses, and one submission for all that a connection receives.
    Bufring,
    /// A thread of the kernel that submits.
    Sqpoll,
    /// Completions run when the ring is entered, and no earlier.
    Defer,
}

impl Feature {
    const ALL: [Feature; 5] =
        [Feature::Multishot, Feature::Fixed, Feature::Bufring, Feature::Sqpoll, Feature::Defer];

    pub(super) fn name(self) -> &'static str {
        match self {
            Feature::Multishot => "multishot",
            Feature::Fixed => "fixed",
            Feature::Bufring => "bufring",
            Feature::Sqpoll => "sqpoll",
            Feature::Defer => "defer",
        }
    }

    /// Whether its server has it: what measures best.
    pub(super) fn is_on(self) -> bool {
        self != Feature::Sqpoll
    }

    fn server(self) -> Server {
        match self {
            Feature::Defer => Server::Fibers,
            _ => Server::Uring,
        }
    }

    fn parse(name: &str) -> Result<Feature, Failure> {
        let found = Feature::ALL.into_iter().find(|feature| feature.name() == name);
        found.ok_or_else(|| {
            let have =
                "there are multishot, fixed, bufring and sqpoll (of uring), and defer (of fibers)";
            Failure::usage(format!("--ablate {name}: no such feature; {have}"))
        })
    }
}

/// How long a run goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Extent {
    Requests(u64),
    Time(Duration),
}

/// What one table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) workers: usize,
    pub(super) connections: usize,
    pub(super) keepalive: bool,
}

const MOST_CONNECTIONS: usize = 1_000_000;
const MOST_WORKERS: usize = 1024;

impl HttpArgs {
    pub(super) fn servers(&self) -> Vec<Server> {
        let chosen = match (self.servers.is_empty(), self.idle) {
            (true, None) => &ALL[..],
            // A hundred thousand threads are more than most systems allow.
            (true, Some(_)) => &ALL[1..],
            (false, _) => &self.servers[..],
        };
        // In the order of the table, whatever the order that they were named in.
        ALL.into_iter().filter(|server| chosen.contains(server)).collect()
    }

    pub(super) fn programs(&self) -> Result<Vec<Program>, Failure> {
        self.commands.iter().map(|text| Program::parse(text)).collect()
    }

    pub(super) fn variants(&self, workers: usize) -> Result<Vec<Variant>, Failure> {
        let mut all = Vec::new();
        for server in self.servers().into_iter().filter(|server| server.takes(workers)) {
            all.push(Variant { server, changed: None });
            for feature in self.features()? {
                if feature.server() == server {
                    all.push(Variant { server, changed: Some(feature) });
                }
            }
        }
        Ok(all)
    }

    pub(super) fn features(&self) -> Result<Vec<Feature>, Failure> {
        self.ablate.iter().map(|name| Feature::parse(name)).collect()
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let (workers, connections) = (distinct(&self.workers), distinct(&self.connections));
        let fewest = connections.iter().copied().min();
        let mut cells = Vec::new();
        for &workers in &workers {
            let of =
                |keepalive| move |&connections: &usize| Cell { workers, connections, keepalive };
            if !self.no_keepalive {
                cells.extend(connections.iter().map(of(true)));
            }
            if self.no_keepalive {
                cells.extend(connections.iter().map(of(false)));
            } else if !self.keepalive {
                cells.extend(fewest.iter().map(of(false)));
            }
        }
        cells
    }

    pub(super) fn repeat(&self) -> usize {
        self.repeat.unwrap_or(if self.idle.is_some() { 1 } else { 5 })
    }

    /// The experiment has one table.
    pub(super) fn idle_workers(&self) -> usize {
        self.workers[0]
    }

    pub(super) fn extent(&self) -> Extent {
        match self.requests {
            Some(requests) => Extent::Requests(requests),
            None => Extent::Time(Duration::from_secs_f64(self.seconds)),
        }
    }

    pub(super) fn response_bytes(&self) -> usize {
        self.response_bytes as usize
    }

    /// What clap cannot check alone.
    pub(super) fn validate(&self) -> Result<(), Failure> {
        let bad = |text: String| Err(Failure::usage(text));
        let within = |all: &[usize], most| all.iter().all(|one| (1..=most).contains(one));
        if !within(&self.connections, MOST_CONNECTIONS) {
            return bad(format!("--connections are 1 to {MOST_CONNECTIONS}"));
        }
        if self.idle.is_some_and(|idle| !within(&[idle], MOST_CONNECTIONS)) {
            return bad(format!("--idle is 1 to {MOST_CONNECTIONS}"));
        }
        if self.idle.is_some() && self.workers.len() > 1 {
            return bad("--idle is for one number of --workers".into());
        }
        if !within(&self.workers, MOST_WORKERS) {
            return bad(format!("--workers are 1 to {MOST_WORKERS}"));
        }
        if self.repeat == Some(0) || self.requests == Some(0) {
            return bad("--repeat and --requests count from 1".into());
        }
        if !self.seconds.is_finite() || self.seconds <= 0.0 || self.seconds > 86_400.0 {
            return bad("--seconds must be more than 0, and a day at most".into());
        }
        if self.response_bytes > 16 << 20 {
            return bad("--response-bytes is 16 MiB at most".into());
        }
        if self.listen.is_some() && (self.servers.len(), self.workers.len()) != (1, 1) {
            return bad("--listen is for one server: name it with --servers".into());
        }
        if self.client != Client::Own && self.svg.is_some() {
            return bad("--svg needs the latency of each request, which --client own has".into());
        }
        if self.client == Client::Wrk && self.requests.is_some() {
            return bad("--client wrk runs for a time: use --seconds instead of --requests".into());
        }
        if self.client != Client::Own && self.target.is_some() {
            return bad("--target is for the own client: ab and wrk need no help there".into());
        }
        let features = self.features()?;
        if let Some(one) = features.iter().find(|one| !self.servers().contains(&one.server())) {
            let (name, server) = (one.name(), one.server().name());
            return bad(format!("--ablate {name} is of {server}, which --servers leaves out"));
        }
        let programs = self.programs()?;
        for (n, one) in programs.iter().enumerate() {
            let taken = ALL.iter().any(|server| server.name() == one.name)
                || programs[..n].iter().any(|other| other.name == one.name);
            if taken {
                return bad(format!("--command {}=…: that name is taken", one.name));
            }
        }
        for &workers in &self.workers {
            let ours = self.servers().iter().any(|one| one.takes(workers));
            let others = programs.iter().any(|one| one.takes(workers));
            if self.target.is_none() && !ours && !others {
                return bad(format!(
                    "none of --servers has more than one thread: --workers {workers}"
                ));
            }
        }
        Ok(())
    }
}

/// In the order in which they were named, each once.
fn distinct(all: &[usize]) -> Vec<usize> {
    let mut distinct = Vec::new();
    for &one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bench;

    fn http(arguments: &[&str]) -> HttpArgs {
        match Bench::parse(&[&["http"], arguments].concat()).unwrap_or_else(|e| panic!("{e}")) {
            Bench::Http(args) => *args,
            _ => unreachable!("it is bench http"),
        }
    }

    fn cell(connections: usize, keepalive: bool) -> Cell {
        Cell { workers: 1, connections, keepalive }
    }

    #[test]
    fn one_request_per_connection_is_measured_with_the_fewest() {
        let cells = http(&["--connections", "500,50"]).cells();
        assert_eq!(cells, [cell(500, true), cell(50, true), cell(50, false)]);
        let cells = http(&["--connections", "500,50", "--no-keepalive"]).cells();
        assert_eq!(cells, [cell(500, false), cell(50, false)]);
        assert_eq!(http(&["--connections", "5", "--keepalive"]).cells(), [cell(5, true)]);
    }

    #[test]
    fn a_server_of_one_thread_is_measured_with_one_worker() {
        let args = http(&["--servers", "fibers,epoll,threads"]);
        let names = |workers| {
            let all = args.variants(workers).unwrap();
            all.iter().map(|one| one.label()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["threads", "epoll", "fibers"]);
        assert_eq!(names(2), ["fibers"]);
    }

    #[test]
    fn an_ablated_server_stands_below_the_whole_one() {
        let all = http(&["--ablate", "multishot,sqpoll"]).variants(2).unwrap();
        let labels: Vec<_> = all.iter().map(|one| one.label()).collect();
        let of_ring = ["uring", "uring without multishot", "uring with sqpoll"];
        assert_eq!(labels, [&["tokio-mt"][..], &of_ring, &["fibers"]].concat());
    }
}
