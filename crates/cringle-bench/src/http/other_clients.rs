//! ApacheBench and wrk as the load. Parses their reports.

use super::Sample;
use super::args::{Cell, Client, Extent};
use super::load::Plan;
use crate::experiment::Named;
use cringle_report::interrupt;
use std::io;
use std::process::{Command, Stdio};

impl Client {
    pub(super) fn program(self) -> Option<String> {
        (self != Client::Own).then(|| self.name())
    }

    /// Whether the program can be run.
    pub(super) fn is_installed(self) -> bool {
        let run = |program: String| {
            let nothing = Stdio::null;
            Command::new(program).arg("-h").stdout(nothing()).stderr(nothing()).status().is_ok()
        };
        self.program().is_none_or(run)
    }
}

/// Runs the client, pinned to the processors of the load.
pub(super) fn drive(client: Client, cell: &Cell, plan: &Plan) -> io::Result<Sample> {
    let Plan { addr, extent, cpus, .. } = plan;
    let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
    let mut command = Command::new("taskset");
    command.args(["-c", &list.join(",")]);
    match client {
        Client::Wrk => wrk(&mut command, cell, *extent, cpus.len()),
        _ => ab(&mut command, cell, *extent),
    }
    command.arg(format!("http://{addr}/"));
    let output = output_of(&mut command)?;
    let report = match client {
        Client::Wrk => parse_wrk(&output),
        _ => parse_ab(&output),
    };
    report.ok_or_else(|| {
        let name = client.program().unwrap_or_default();
        io::Error::other(format!("cannot parse the report of {name}: {}", output.trim()))
    })
}

fn output_of(command: &mut Command) -> io::Result<String> {
    let output = interrupt::output_of(command)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let errors = text(&output.stderr);
        return Err(io::Error::other(format!("{}: {}", output.status, errors.trim())));
    }
    Ok(text(&output.stdout))
}

fn wrk(command: &mut Command, cell: &Cell, extent: Extent, threads: usize) {
    let seconds = match extent {
        Extent::Time(time) => time.as_secs().max(1),
        // `HttpArgs::validate` refuses this: wrk has no option for a number of requests.
        Extent::Requests(_) => 1,
    };
    command.args(["wrk", "--latency", &format!("-t{}", threads.min(cell.connections))]);
    command.args([format!("-c{}", cell.connections), format!("-d{seconds}s")]);
    if !cell.keepalive {
        command.args(["-H", "Connection: close"]);
    }
}

fn ab(command: &mut Command, cell: &Cell, extent: Extent) {
    command.args(["ab", "-q", "-c", &cell.connections.to_string()]);
    match extent {
        Extent::Requests(requests) => command.args(["-n", &requests.to_string()]),
        // `-t` also sets a number of requests, which would end the run earlier.
        Extent::Time(time) => {
            command.args(["-t", &time.as_secs().max(1).to_string(), "-n", "1000000000"])
        }
    };
    if cell.keepalive {
        command.arg("-k");
    }
}

fn after<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim)
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn parse_ab(text: &str) -> Option<Sample> {
    let number = |label| after(text, label).and_then(first_number);
    Some(Sample {
        requests: number("Complete requests:")? as u64,
        requests_per_second: number("Requests per second:")?,
        p50_us: number("50%").map(|ms| ms * 1e3),
        p99_us: number("99%").map(|ms| ms * 1e3),
        errors: number("Failed requests:")? as u64,
        ..Sample::default()
    })
}

fn parse_wrk(text: &str) -> Option<Sample> {
    let done = text.lines().find(|line| line.contains(" requests in "))?;
    let errors = after(text, "Socket errors:").map_or(0, numbers)
        + after(text, "Non-2xx or 3xx responses:").map_or(0, numbers);
    Some(Sample {
        requests: first_number(done)? as u64,
        requests_per_second: first_number(after(text, "Requests/sec:")?)?,
        p50_us: after(text, "50%").and_then(time_us),
        p99_us: after(text, "99%").and_then(time_us),
        errors,
        ..Sample::default()
    })
}

/// Returns the sum of all numbers in `connect 0, read 3, …`.
fn numbers(text: &str) -> u64 {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Parses `12.3us`, `4.5ms` or `1.02s` into microseconds.
fn time_us(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_wrk_is_parsed() {
        let text = "Running 1s test @ http://127.0.0.1:1/\n  1 threads and 50 connections\n  \
            Latency Distribution\n     50%  410.00us\n     75%  1.20ms\n     90%    2.00ms\n     \
            99%    1.50s \n  70000 requests in 1.00s, 18.00MB read\n  Socket errors: connect 0, \
            read 2, write 0, timeout 1\n  Non-2xx or 3xx responses: 4\nRequests/sec:  69876.54\n";
        let report = parse_wrk(text).unwrap();
        assert_eq!((report.requests, report.errors), (70000, 7));
        assert_eq!((report.p50_us, report.p99_us), (Some(410.0), Some(1_500_000.0)));
        assert_eq!(report.requests_per_second, 69876.54);
        assert_eq!(parse_wrk("unable to connect"), None);
    }

    #[test]
    fn the_report_of_ab_is_parsed() {
        let text = "Concurrency Level:      50\nComplete requests:      10000\nFailed requests:        \
            3\nRequests per second:    21000.55 [#/sec] (mean)\nPercentage of the requests\n  50%      2\n  99%      5\n";
        let report = parse_ab(text).unwrap();
        assert_eq!((report.requests, report.errors), (10000, 3));
        assert_eq!((report.p50_us, report.p99_us), (Some(2000.0), Some(5000.0)));
        assert_eq!(parse_ab("apr_socket_connect(): Connection refused (111)"), None);
    }
}
