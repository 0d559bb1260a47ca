//! The library's example `metrics` serves the counters in the format of Prometheus.

#[path = "../../../crates/cringle/examples/metrics.rs"]
mod metrics;

use cringle::net::{Server, TcpStream};
use cringle::{Builder, fiber, runtime};
use prometheus_parse::{Sample, Scrape, Value};
use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::SocketAddr;

fn request(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

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

#[test]
fn scrape_agrees_with_counters() {
    let scrapes = Builder::new()
        .workers(2)
        .run(|| {
            let server = Server::bind("127.0.0.1:0").unwrap();
            let (address, stopper) = (server.local_addr().unwrap(), server.stopper());
            fiber::scope(|s| {
                let serves = s.spawn_local(|| server.run(|stream, _| metrics::answer(stream)));
                let fibers: Vec<_> = (0..50).map(|_| s.spawn_local(fiber::park)).collect();
                let get = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
                let answers = [request(address, get), request(address, get)];
                let stats = runtime::stats().unwrap().total();
                assert!(request(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
                assert!(
                    request(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 ")
                );
                stopper.stop();
                serves.join().unwrap().unwrap();
                fibers.iter().for_each(|fiber| fiber.thread().unpark());
                (answers, stats)
            })
        })
        .unwrap();
    let (answers, later) = scrapes;
    let bodies = answers.each_ref().map(|answer| {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("version=0.0.4"),
            "{head}"
        );
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        body
    });
    for body in bodies {
        check_headers(body);
    }
    let [first, second] = bodies.map(parse);
    let sum = |scrape: &Scrape, name: &str| numbers(scrape, name, "worker").values().sum::<u64>();
    for scrape in [&first, &second] {
        assert_eq!(numbers(scrape, "cringle_turns_total", "worker").len(), 2);
        assert!(sum(scrape, "cringle_fibers_waiting") >= 50);
        assert!(sum(scrape, "cringle_stacks_high_water") >= 51);
        assert_eq!(numbers(scrape, "cringle_pool_queue", "pool")["unblock"], 0);
    }
    for (name, now) in
        [("cringle_fibers_started_total", later.started), ("cringle_enters_total", later.enters)]
    {
        let (first, second) = (sum(&first, name), sum(&second, name));
        assert!(0 < first && first < second && second <= now, "{name}: {first}, {second}, {now}");
    }
    let histograms: Vec<_> = second
        .samples
        .iter()
        .filter_map(|sample| match &sample.value {
            Value::Histogram(buckets) => Some(buckets),
            _ => None,
        })
        .collect();
    assert_eq!(histograms.len(), 2, "one for each worker");
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
