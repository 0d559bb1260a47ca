//! Runs queries over Parquet files with DataFusion, through `cringle-object-store` and through
//! `LocalFileSystem`, and compares the times.
//!
//!     cargo run --release -p cringle-ecosystem-datafusion --example queries -- DIRECTORY
//!
//! in the folder `ecosystem`. An empty directory is filled with files first. Options: `--rows N`
//! of each of the 16 files (1,000,000), `--rounds N` (5), `--partitions N` that DataFusion scans
//! at once (the number of processors), `--workers N` of the object store (1, as by default). Each
//! round runs each query with each store in turn: cold, after the files have left the page cache,
//! then warm. A time is from the registration of the table, which reads the footers, to the last
//! row.

use cringle::block::BlockIo;
use cringle_ecosystem_datafusion::Store;
use cringle_object_store::LocalStore;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const FILES: u64 = 16;

/// Events: 16 columns, of which queries use few. Users and devices are spread over all files.
const EVENTS: &str = "SELECT value AS event, 1700000000 + value / 50 AS time,
    (value * 7919) % 999983 AS user, (value * 104729) % 4999999 AS device,
    'host-' || ((value * 31) % 5003) AS host, '/item/' || ((value * 613) % 1000003) AS page,
    (value * 37) % 97 AS country, (value * 7349) % 1000 AS price, (value * 613) % 65537 AS bytes,
    (value * 911) % 30011 AS latency, (value * 193) % 601 AS status, (value * 6151) % 100003 AS a,
    (value * 3571) % 1000003 AS b, (value * 2459) % 10007 AS c, (value * 8191) % 524287 AS d,
    'agent ' || ((value * 127) % 2003) || ' of ' || ((value * 17) % 509) AS agent";

/// The queries, with their names.
pub(crate) const QUERIES: [(&str, &str); 4] = [
    ("one user's events", "SELECT * FROM events WHERE user = 0 ORDER BY event LIMIT 20"),
    (
        "an hour by country",
        "SELECT country, count(*) AS events, sum(price) AS paid FROM events
         WHERE time BETWEEN 1700003600 AND 1700007199 GROUP BY country ORDER BY country LIMIT 5",
    ),
    ("sums of three columns", "SELECT sum(price), sum(latency), max(bytes) FROM events"),
    (
        "all columns",
        "SELECT count(event), max(time), max(user), max(device), max(host), max(page),
         max(country), max(price), max(bytes), max(latency), max(status), max(a), max(b), max(c),
         max(d), max(agent) FROM events",
    ),
];

/// Two stores of one directory, and the workers of the first.
type Stores = (Arc<BlockIo>, [Arc<dyn ObjectStore>; 2]);

pub(crate) fn stores(directory: &Path, workers: usize) -> Result<Stores> {
    let io = Arc::new(BlockIo::builder().workers(workers).build()?);
    let ours = LocalStore::builder().prefix(directory).block_io(Arc::clone(&io)).build();
    let ours = ours.map_err(std::io::Error::from)?;
    let theirs = LocalFileSystem::new_with_prefix(directory)?;
    Ok((io, [Arc::new(Store::new(ours, theirs.clone())), Arc::new(theirs)]))
}

fn context(store: &Arc<dyn ObjectStore>, partitions: usize) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(partitions);
    // Filters first, and then only the pages with matching rows.
    config.options_mut().execution.parquet.pushdown_filters = true;
    let context = SessionContext::new_with_config(config);
    let url = ObjectStoreUrl::parse("cringle://files").expect("it is a URL");
    context.register_object_store(url.as_ref(), Arc::clone(store));
    context
}

/// Writes the files.
pub(crate) async fn write(store: &Arc<dyn ObjectStore>, rows: u64) -> Result<()> {
    let context = context(store, 1);
    for file in 0..FILES {
        let (first, last) = (file * rows, (file + 1) * rows - 1);
        let events = format!("{EVENTS} FROM generate_series({first}, {last})");
        let to = format!("cringle://files/events/{file:02}.parquet");
        let copy = format!("COPY ({events}) TO '{to}' STORED AS PARQUET");
        context.sql(&copy).await?.collect().await?;
    }
    Ok(())
}

/// Runs a query in a new session, and returns the rows as text.
pub(crate) async fn run(
    store: &Arc<dyn ObjectStore>,
    query: &str,
    partitions: usize,
) -> Result<String> {
    let context = context(store, partitions);
    let files = "cringle://files/events/";
    context.register_parquet("events", files, ParquetReadOptions::default()).await?;
    let rows = context.sql(query).await?.collect().await?;
    Ok(pretty_format_batches(&rows)?.to_string())
}

/// Removes the files from the page cache.
fn forget(directory: &Path) -> std::io::Result<()> {
    for entry in directory.join("events").read_dir()? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

async fn measure(
    directory: &Path,
    rows: u64,
    rounds: usize,
    partitions: usize,
    workers: usize,
) -> Result<()> {
    let (io, stores) = stores(directory, workers)?;
    if !directory.join("events").exists() {
        write(&stores[1], rows).await?;
    }
    for (name, query) in QUERIES {
        println!("{name}\n{}", run(&stores[0], query, partitions).await?);
        let mut seconds = [(); 4].map(|()| Vec::new());
        for round in 0..rounds {
            for which in [round % 2, 1 - round % 2] {
                forget(directory)?;
                for warm in 0..2 {
                    let begin = Instant::now();
                    run(&stores[which], query, partitions).await?;
                    seconds[2 * warm + which].push(begin.elapsed().as_secs_f64());
                }
            }
        }
        for (sides, cache) in seconds.chunks(2).zip(["cold", "warm"]) {
            let ratios = sides[0].iter().zip(&sides[1]).map(|(ours, theirs)| ours / theirs);
            println!(
                "{cache}: LocalStore {:.4} s, LocalFileSystem {:.4} s, ratio {:.2}",
                median(sides[0].clone()),
                median(sides[1].clone()),
                median(ratios.collect()),
            );
        }
    }
    let stats = io.stats().total();
    println!("{} entries of the ring in {} calls", stats.entries.sum(), stats.enters);
    Ok(())
}

#[allow(dead_code, reason = "the test calls the functions above")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: queries DIRECTORY [--rows N] [--rounds N] [--partitions N] [--workers N]";
    let directory = args.next().ok_or(usage)?;
    let (mut rows, mut rounds) = (1_000_000, 5);
    let mut partitions = std::thread::available_parallelism()?.get();
    let mut workers = 1;
    while let Some(option) = args.next() {
        let number: usize = args.next().ok_or(usage)?.parse()?;
        match option.as_str() {
            "--rows" => rows = number as u64,
            "--rounds" => rounds = number,
            "--partitions" => partitions = number,
            "--workers" => workers = number,
            _ => return Err(usage.into()),
        }
    }
    let runtime = tokio::runtime::Runtime::new()?;
    Ok(runtime.block_on(measure(Path::new(&directory), rows, rounds, partitions, workers))?)
}
