//! Fetches URLs, 64 at the same time, by HTTP or HTTPS, and prints the size of each body:
//!
//!     cargo run --no-default-features --features ureq --example fetch -- URL…
//!
//! ureq waits in libc's calls, which `cringle_interpose::main!` replaces. So the client needs no
//! adapter, and each wait suspends only its fiber. (`par_map` would fetch one URL after the other:
//! its fibers are one thread to ureq. Those of `par_map_workers` are a thread each.)

// ANCHOR: program
use cringle::fiber;
use std::time::Duration;
use ureq::{Agent, Error};

cringle_interpose::main! {
    fn main() {
        let limit = Some(Duration::from_secs(10));
        let agent: Agent = Agent::config_builder().timeout_global(limit).build().into();
        let urls = std::env::args().skip(1);
        for (size, url) in fiber::par_map_workers(urls, 64, |url| (fetch(&agent, &url), url)) {
            match size {
                Ok(size) => println!("{size:8} {url}"),
                Err(error) => eprintln!("fetch: {url}: {error}"),
            }
        }
    }
}

fn fetch(agent: &Agent, url: &str) -> Result<usize, Error> {
    Ok(agent.get(url).call()?.into_body().read_to_vec()?.len())
}
// ANCHOR_END: program
