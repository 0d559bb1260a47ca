//! Prints the ring features that this kernel lacks, or why there is no ring.
//!
//!     cargo run --example driver
//!
//! The status is 1 if no runtime starts.

use cringle::runtime::{Driver, Feature};
use std::process::ExitCode;

fn main() -> ExitCode {
    let driver = cringle::Builder::new().workers(1).run(cringle::runtime::driver);
    match &driver {
        Ok(Driver::Uring(features)) => {
            let missing = Feature::ALL.into_iter().filter(|feature| !features.has(*feature));
            let missing: Vec<String> = missing.map(|feature| format!("{feature:?}")).collect();
            let names = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
            println!("ring features missing: {names}");
        }
        Ok(Driver::Epoll(why)) => println!("epoll: {why}"),
        Ok(other) => println!("no ring; driver: {other:?}"),
        Err(error) => println!("no ring: {error}"),
    }
    if driver.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
