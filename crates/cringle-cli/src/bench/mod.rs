//! `cringle bench`: measurements that say what they measure.

pub(crate) mod all;
pub(crate) mod batch;
mod checks;
mod content;
pub(crate) mod cp;
pub(crate) mod disk;
pub(crate) mod file;
pub(crate) mod http;
pub(crate) mod job;
pub(crate) mod latency;
pub(crate) mod meter;
pub(crate) mod plan;
mod progress;
pub(crate) mod results;
mod schedule;
pub(crate) mod strategies;
pub(crate) mod sum;
mod verify;
mod wal;

/// For `--verbose`: how fibers do their I/O here, and why.
fn driver_words() -> String {
    use cringle::runtime::{Driver, Feature};
    let names = |chosen: Vec<Feature>| {
        chosen.iter().map(|feature| format!("{feature:?}")).collect::<Vec<_>>().join(", ")
    };
    match cringle::Builder::new().workers(1).run(cringle::runtime::driver) {
        Ok(Driver::Uring(features)) => {
            let missing = Feature::ALL.into_iter().filter(|feature| !features.has(*feature));
            let there = names(features.iter().collect());
            match names(missing.collect()) {
                none if none.is_empty() => format!("driver: io_uring, with {there}"),
                some => format!("driver: io_uring, with {there}; this kernel refuses {some}"),
            }
        }
        Ok(Driver::Epoll(why)) => format!("driver: epoll and threads; {why}"),
        Ok(other) => format!("driver: {other:?}"),
        Err(error) => format!("driver: none; {error}"),
    }
}
