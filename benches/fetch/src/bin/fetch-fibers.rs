//! The memory of a client of HTTP on fibers: ureq, unmodified.
//!
//!     [FETCH_ON=threads] [FETCH_BUFFER_BYTES=N] fetch-fibers URL COUNT LIMIT [CERTIFICATE]

use cringle::fiber;
use fetch::{Job, variable};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

cringle_interpose::install!();

fn agent(job: &Job) -> Agent {
    let mut config = Agent::config_builder()
        .max_idle_connections(job.limit)
        .max_idle_connections_per_host(job.limit);
    if let Some(bytes) = variable("FETCH_BUFFER_BYTES") {
        let bytes = bytes.parse().expect("a number");
        config = config.input_buffer_size(bytes).output_buffer_size(bytes);
    }
    if let Some(pem) = &job.certificate {
        let certificate = Certificate::from_pem(pem).expect("a certificate");
        let roots = RootCerts::new_with_certs(&[certificate]);
        config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
    }
    config.build().into()
}

fn fetch(agent: &Agent, url: &str) -> usize {
    let response = agent.get(url).call().expect("an answer");
    response.into_body().read_to_vec().expect("a whole body").len()
}

fn on_threads(job: &Job, agent: &Agent) -> usize {
    let (next, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while next.fetch_add(1, Relaxed) < job.count {
            bytes.fetch_add(fetch(agent, &job.url), Relaxed);
        }
    };
    thread::scope(|s| (0..job.limit).for_each(|_| drop(s.spawn(work))));
    bytes.into_inner()
}

fn main() {
    let job = Job::from_args();
    let agent = agent(&job);
    let on_fibers = || {
        let lengths = fiber::par_map_workers(0..job.count, job.limit, |_| fetch(&agent, &job.url));
        lengths.into_iter().sum()
    };
    job.report(match variable("FETCH_ON").as_deref() {
        Some("threads") => on_threads(&job, &agent),
        _ => cringle::run(on_fibers),
    });
}
