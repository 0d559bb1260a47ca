//! The command line of `bench http`.

use super::program::Program;
use crate::experiment::{Experiment, Named, Report};
use crate::rounds::{self, MOST_ROUNDS, parse_seconds, up_to};
use clap::{Args, ValueEnum, value_parser};
use cringle_report::Outputs;
use cringle_report::failure::Failure;
use cringle_report::units;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cringle bench http
      All servers; 50, 500 and 10,000 connections, then one request for each
  cringle bench http --requests 10000 --connections 50 --no-keepalive
      As in the papers on MIO and URingManager
  cringle bench http --servers fibers,uring --connections 50 --repeat 9
      Compare two servers in more rounds
  cringle bench http --servers fibers,tokio-mt --workers 1,2,4,8 --html report.html
      Compare numbers of workers, and draw plots
  cringle bench http --servers uring --ablate multishot,fixed,bufring,sqpoll
      What is each feature worth?
  cringle bench http --command 'monoio=benches/target/release/servers \\
      monoio {address}'
      Compare with another server (benches/README.md has some)
  cringle bench http --idle 100000 --servers epoll,tokio,uring,fibers
      Measure the memory of idle connections
  cringle bench http --listen 0.0.0.0:8080 --servers fibers
      Run the server alone, for a load such as wrk on another machine
  cringle bench http --json - | jq '.runs[] | {server, requests_per_second}'
      Print the rates

The server responds to each request with the same small page. It runs in a process of its own on \
the first processors, and the load on the others: each connection sends a request, waits for the \
whole response, and sends the next request. CPU time and context switches are those of the \
server. The kernel's work for an incoming packet counts mostly for the sender, which over the \
loopback interface is either side.

The load has one thread for each of its processors, and makes two system calls \
for a request plus a share of an epoll_wait. Its CPU time for a request is in the JSON \
(load_cpu_us_per_request). If that is about as much as the server's, the load is the limit; the \
report says so, and the CPU times are to be compared instead of the rates.

The load is a closed loop: a late response delays the next request of its connection. A pause of \
the server therefore causes one late response for each connection, not one for each request that \
would have arrived during the pause. The latencies cover every request, from the write of the \
request to the read of the last byte of the response, with three significant digits.

Exit status: 0 success, 1 failure (a wrong response, an I/O error), 2 wrong usage, 130 \
interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct HttpArgs {
    /// Servers to compare, as a comma-separated list [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    servers: Vec<Server>,

    /// Another server, repeatable: a program that listens at {address} or {port} and responds to
    /// GET / with status 200. {workers} is its number of threads (without it, only one is
    /// measured), and {connection} is keep-alive or close.
    #[arg(
        long = "command",
        value_name = "NAME=COMMAND",
        value_parser = Program::parse,
        conflicts_with = "listen"
    )]
    pub(super) commands: Vec<Program>,

    /// Simultaneous connections, as a comma-separated list.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = up_to(MOST_CONNECTIONS),
        default_value = "50,500,10000",
        value_name = "N"
    )]
    connections: Vec<usize>,

    /// Threads of a server, or workers of a runtime, as a comma-separated list.
    #[arg(
        long,
        alias = "threads",
        value_delimiter = ',',
        value_parser = up_to(1024),
        default_value = "1",
        value_name = "N"
    )]
    workers: Vec<usize>,

    /// Measure only connections that are reused.
    #[arg(long, conflicts_with = "no_keepalive")]
    keepalive: bool,

    /// Measure only one request per connection, for each number of --connections [default: both,
    /// but one request per connection only with the fewest connections].
    #[arg(long)]
    no_keepalive: bool,

    /// Measure N idle connections instead: the server's memory for each, and the time until all
    /// have been served again. Leaves out `threads`, unless --servers names it.
    #[arg(long, value_parser = up_to(MOST_CONNECTIONS), value_name = "N", conflicts_with_all = [
        "connections", "keepalive", "no_keepalive", "requests", "seconds", "ablate", "listen",
    ])]
    pub(super) idle: Option<usize>,

    /// Requests of a run, instead of a time.
    #[arg(
        long,
        value_parser = value_parser!(u64).range(1..),
        value_name = "N",
        conflicts_with = "seconds"
    )]
    requests: Option<u64>,

    /// Length of a run in seconds.
    #[arg(
        long,
        alias = "runtime",
        value_parser = parse_seconds,
        default_value_t = 1.0,
        value_name = "S"
    )]
    seconds: f64,

    /// Bytes of the page.
    #[arg(long, value_parser = units::parse_size, default_value = "151", value_name = "SIZE")]
    response_bytes: u64,

    /// Measure `uring` without a feature, too, as a comma-separated list: multishot (accept), fixed
    /// (descriptors), bufring (with multishot receives); or with sqpoll, which it lacks by default.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "FEATURE")]
    ablate: Vec<Feature>,

    /// Only run the server that --servers names, at this address, until interrupted.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "html")]
    pub(super) listen: Option<String>,

    /// Rounds to measure; the figures are their medians [default: 5; with --idle: 1].
    #[arg(long, alias = "runs", value_parser = up_to(MOST_ROUNDS), value_name = "N")]
    repeat: Option<usize>,

    #[command(flatten)]
    pub(crate) outputs: Outputs,

    /// Be a server that another `bench http` controls through standard input.
    #[arg(long, hide = true, requires = "listen")]
    pub(super) controlled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Server {
    /// A thread for each connection, with std.
    Threads,
    /// One thread with epoll (through mio) and a table of connections.
    Epoll,
    /// A task for each connection, on tokio's current-thread runtime.
    Tokio,
    /// A task for each connection, on tokio's multi-thread runtime.
    TokioMt,
    /// A hand-written loop on a bare io_uring, for each worker.
    Uring,
    /// A fiber for each connection, by cringle's net::Server.
    Fibers,
}

impl Server {
    /// Whether the server can run with this number of workers.
    pub(super) fn supports(self, workers: usize) -> bool {
        workers == 1 || matches!(self, Server::TokioMt | Server::Uring | Server::Fibers)
    }
}

/// A server, possibly without one of its features, or with one that it lacks by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) server: Server,
    pub(super) changed: Option<Feature>,
}

impl Variant {
    /// Whether the server on a bare ring uses the feature.
    pub(super) fn has(self, feature: Feature) -> bool {
        feature.is_on() != (self.changed == Some(feature))
    }

    pub(super) fn label(self) -> String {
        match self.changed {
            None => self.server.name(),
            Some(feature) => {
                let how = if feature.is_on() { "without" } else { "with" };
                format!("{} {how} {}", self.server.name(), feature.name())
            }
        }
    }
}

/// A feature that `--ablate` switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Feature {
    /// One submission accepts all connections.
    Multishot,
    /// The ring's file table holds the connections.
    Fixed,
    /// The kernel selects the buffers, and one submission receives all data of a connection.
    Bufring,
    /// A kernel thread submits.
    Sqpoll,
}

impl Feature {
    /// Whether its server has the feature by default.
    fn is_on(self) -> bool {
        self != Feature::Sqpoll
    }
}

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Extent {
    Requests(u64),
    Time(Duration),
}

/// The parameters of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HttpCase {
    pub(super) workers: usize,
    pub(super) connections: usize,
    pub(super) keepalive: bool,
}

const MOST_CONNECTIONS: u64 = 1_000_000;

impl Experiment for HttpArgs {
    fn validate(&self) -> Result<(), Failure> {
        if self.idle.is_some() && self.workers.len() > 1 {
            return Err(Failure::usage("--idle allows only one number of --workers"));
        }
        if self.response_bytes > 16 << 20 {
            return Err(Failure::usage("--response-bytes must be at most 16 MiB"));
        }
        self.validate_servers()
    }

    /// Is a server, for a load of another process.
    fn assist(&self) -> Option<Result<(), Failure>> {
        Some(super::listen::run(self, self.listen.as_deref()?))
    }

    fn measure(&self) -> Result<Report, Failure> {
        super::measure(self)
    }
}

impl HttpArgs {
    /// The chosen servers, in the order of the table.
    pub(super) fn servers(&self) -> Vec<Server> {
        if self.servers.is_empty() && self.idle.is_some() {
            // Most systems do not allow a hundred thousand threads.
            return Server::value_variants()[1..].to_vec();
        }
        rounds::selected(Server::value_variants(), &self.servers)
    }

    pub(super) fn variants(&self, workers: usize) -> Vec<Variant> {
        let mut all = Vec::new();
        for server in self.servers().into_iter().filter(|server| server.supports(workers)) {
            all.push(Variant { server, changed: None });
            let features = self.ablate.iter().filter(|_| server == Server::Uring);
            all.extend(features.map(|feature| Variant { server, changed: Some(*feature) }));
        }
        all
    }

    pub(super) fn cases(&self) -> Vec<HttpCase> {
        let workers = rounds::distinct(self.workers.iter().copied());
        let connections = rounds::distinct(self.connections.iter().copied());
        let fewest = connections.iter().copied().min();
        let mut cases = Vec::new();
        for &workers in &workers {
            let of = |keepalive| {
                move |&connections: &usize| HttpCase { workers, connections, keepalive }
            };
            if !self.no_keepalive {
                cases.extend(connections.iter().map(of(true)));
            }
            if self.no_keepalive {
                cases.extend(connections.iter().map(of(false)));
            } else if !self.keepalive {
                cases.extend(fewest.iter().map(of(false)));
            }
        }
        cases
    }

    pub(super) fn repeat(&self) -> usize {
        self.repeat.unwrap_or(if self.idle.is_some() { 1 } else { 5 })
    }

    /// The number of workers with `--idle`, which has one table.
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

    fn validate_servers(&self) -> Result<(), Failure> {
        let bad = |text: String| Err(Failure::usage(text));
        if self.listen.is_some() && (self.servers.len(), self.workers.len()) != (1, 1) {
            return bad("--listen runs one server: name it with --servers".into());
        }
        if !self.ablate.is_empty() && !self.servers().contains(&Server::Uring) {
            return bad("--ablate needs uring, which --servers leaves out".into());
        }
        let programs = &self.commands;
        for (n, one) in programs.iter().enumerate() {
            let taken = Server::value_variants().iter().any(|server| server.name() == one.name)
                || programs[..n].iter().any(|other| other.name == one.name);
            if taken {
                let name = &one.name;
                return bad(format!("--command {name}=…: the name is in use; choose another"));
            }
        }
        for &workers in &self.workers {
            let ours = self.servers().iter().any(|one| one.supports(workers));
            let others = programs.iter().any(|one| one.supports(workers));
            if !ours && !others {
                return bad(format!(
                    "--workers {workers}: none of --servers can have more than one thread"
                ));
            }
        }
        Ok(())
    }
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

    fn cell(connections: usize, keepalive: bool) -> HttpCase {
        HttpCase { workers: 1, connections, keepalive }
    }

    #[test]
    fn closing_connections_use_the_fewest() {
        let cases = http(&["--connections", "500,50"]).cases();
        assert_eq!(cases, [cell(500, true), cell(50, true), cell(50, false)]);
        let cases = http(&["--connections", "500,50", "--no-keepalive"]).cases();
        assert_eq!(cases, [cell(500, false), cell(50, false)]);
        assert_eq!(http(&["--connections", "5", "--keepalive"]).cases(), [cell(5, true)]);
    }

    #[test]
    fn single_threaded_servers_have_one_worker() {
        let args = http(&["--servers", "fibers,epoll,threads"]);
        let names = |workers| {
            let all = args.variants(workers);
            all.iter().map(|one| one.label()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["threads", "epoll", "fibers"]);
        assert_eq!(names(2), ["fibers"]);
    }

    #[test]
    fn variants_follow_their_server() {
        let all = http(&["--ablate", "multishot,sqpoll"]).variants(2);
        let labels: Vec<_> = all.iter().map(|one| one.label()).collect();
        let of_ring = ["uring", "uring without multishot", "uring with sqpoll"];
        assert_eq!(labels, [&["tokio-mt"][..], &of_ring, &["fibers"]].concat());
    }
}
