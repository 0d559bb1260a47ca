//! The example serves the counters in the format of Prometheus.

use crate::program::{Server, with};
use prometheus_parse::{Sample, Scrape, Value};
use std::collections::{BTreeMap, HashSet};
use std::net::TcpStream;

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

fn parse(body: &str) -> Scrape {
    Scrape::parse(body.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

/// Returns the samples of a family, by this label.
fn numbers(scrape: &Scrape, metric: &str, label: &str) -> BTreeMap<String, u64> {
    let samples = scrape.samples.iter().filter(|sample| sample.metric == metric);
    let number = |sample: &Sample| match sample.value {
        Value::Counter(value) | Value::Gauge(value) => value as u64,
        ref other => panic!("{metric} is {other:?}"),
    };
    samples.map(|sample| (sample.labels[label].to_owned(), number(sample))).collect()
}

fn sum(scrape: &Scrape, name: &str) -> u64 {
    numbers(scrape, name, "worker").values().sum()
}

/// Checks the form of an answer, and returns its samples.
fn scrape_of(answer: &str) -> Scrape {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    check_headers(body);
    parse(body)
}

#[test]
fn scrape_agrees_with_counters() {
    let server = Server::start_endless(with("metrics", &[&"127.0.0.1:0"]));
    let request = |text: &str| server.exchange(text.as_bytes());
    // The fiber of a connection waits for its request, and gives up after some time.
    let mut silent: Vec<TcpStream> = Vec::new();
    while sum(&scrape_of(&request(GET)), "cringle_fibers_waiting") < 50 {
        silent.push(server.connect());
        assert!(silent.len() < 5_000, "no fiber of {} connections waits", silent.len());
    }
    let scrapes = [(); 3].map(|()| scrape_of(&request(GET)));
    assert!(request("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(request("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    let [first, second, third] = &scrapes;
    let workers = std::thread::available_parallelism().unwrap().get();
    for scrape in &scrapes {
        assert_eq!(numbers(scrape, "cringle_turns_total", "worker").len(), workers);
        assert!(sum(scrape, "cringle_stacks_high_water") >= 51);
        assert_eq!(numbers(scrape, "cringle_pool_queue", "pool")["unblock"], 0);
    }
    // Each answer above was written by a fiber of its own.
    assert!(sum(first, "cringle_fibers_started_total") >= silent.len() as u64 + 2);
    for name in ["cringle_fibers_started_total", "cringle_enters_total"] {
        let [first, second, third] = [first, second, third].map(|scrape| sum(scrape, name));
        assert!(
            0 < first && first < second && second < third,
            "{name}: {first}, {second}, {third}"
        );
    }
    let histograms: Vec<_> = second
        .samples
        .iter()
        .filter_map(|sample| match &sample.value {
            Value::Histogram(buckets) => Some(buckets),
            _ => None,
        })
        .collect();
    assert_eq!(histograms.len(), workers, "one for each worker");
    for buckets in histograms {
        assert!(
            buckets.is_sorted_by_key(|bucket| bucket.count as u64),
            "each bucket includes the smaller ones"
        );
        assert_eq!(buckets.last().unwrap().less_than, f64::INFINITY);
    }
}

/// Checks that each family has one `# HELP` and one `# TYPE` before its samples, which are
/// adjacent.
fn check_headers(body: &str) {
    let (mut helped, mut typed, mut families) = (HashSet::new(), HashSet::new(), Vec::new());
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name) && !help.is_empty(), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name) && typed.insert(name), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            families.push(name);
        } else {
            assert!(
                line.starts_with(families.last().unwrap()),
                "{line} is not below its own headers"
            );
        }
    }
    assert!(families.len() > 20 && helped == typed);
}
