//! Looks up keys in a table on a disk: one at a time, and in batches.
//!
//!     cargo run --release --example lookup -- [KEYS] [DIRECTORY]
//!
//! writes a table of KEYS (default: 200,000) records to DIRECTORY (default: the current one; it
//! must be on a disk, not on tmpfs). The data file has pages of 4 KiB with 16 records each, sorted
//! by the hashes of their keys; the index file has the first hash of each page. A lookup reads one
//! page with `O_DIRECT`, that is, without the page cache.
//!
//! The program looks up keys one at a time, then 64 in a batch, prints both rates, and removes the
//! files.

use cringle::block::{AlignedBuf, Batch};
use cringle::fs::{File, OpenOptions};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

const PAGE: usize = 4096;
const RECORD: usize = 256;
const BATCH: usize = 64;

/// Creates the table and looks up its keys. Returns the lookups per second, one at a time and in
/// batches.
fn run(keys: u64, directory: &Path) -> io::Result<(f64, f64)> {
    let (index, data) = (directory.join("lookup.index"), directory.join("lookup.data"));
    cringle::Builder::new().workers(1).run(|| {
        write_table(keys, &index, &data)?;
        let table = Table::open(keys, &index, &data)?;
        // The open file stays readable.
        std::fs::remove_file(&index).and_then(|()| std::fs::remove_file(&data))?;

        let lookups = keys.min(20_000);
        let start = Instant::now();
        look_up_one_at_a_time(&table, lookups)?;
        let single_rate = lookups as f64 / start.elapsed().as_secs_f64();
        let start = Instant::now();
        look_up_in_batches(&table, lookups)?;
        let batch_rate = lookups as f64 / start.elapsed().as_secs_f64();

        println!("one at a time: {single_rate:8.0} lookups/s");
        println!(
            "batches of {BATCH}: {batch_rate:8.0} lookups/s ({:.1} ×)",
            batch_rate / single_rate
        );
        Ok((single_rate, batch_rate))
    })?
}

/// Waits for each read before it starts the next one.
fn look_up_one_at_a_time(table: &Table, lookups: u64) -> io::Result<()> {
    let mut page = AlignedBuf::new(PAGE);
    for n in 0..lookups {
        let key = table.key(n);
        table.data.read_exact_at(&mut page, table.page_of(key))?;
        table.check(key, &page);
    }
    Ok(())
}

/// Reads up to [`BATCH`] pages at the same time.
fn look_up_in_batches(table: &Table, lookups: u64) -> io::Result<()> {
    let mut pages = AlignedBuf::new(BATCH * PAGE);
    // All batches reuse the memory of the first one.
    let mut spare = Batch::new();
    for first in (0..lookups).step_by(BATCH) {
        let keys = (first..lookups.min(first + BATCH as u64)).map(|n| table.key(n));
        let mut batch = spare;
        for (key, page) in keys.clone().zip(pages.chunks_mut(PAGE)) {
            batch.read_exact(&table.data, page, table.page_of(key));
        }
        let results = batch.submit();
        for ((key, page), count) in keys.zip(pages.chunks(PAGE)).zip(results.iter()) {
            count?;
            table.check(key, page);
        }
        spare = results.recycle();
    }
    Ok(())
}

fn hash_of(key: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(key)
}

/// Returns the value of a key.
fn value_of(key: u64) -> u64 {
    key * 3
}

/// Writes both files. A record is a key, its value, and padding.
fn write_table(keys: u64, index: &Path, data: &Path) -> io::Result<()> {
    let mut sorted: Vec<(u64, u64)> = (0..keys).map(|key| (hash_of(key), key)).collect();
    sorted.sort();
    let mut index = BufWriter::new(File::create(index)?);
    let mut data = BufWriter::with_capacity(1 << 20, File::create(data)?);
    for page in sorted.chunks(PAGE / RECORD) {
        index.write_all(&page[0].0.to_le_bytes())?;
        let mut bytes = [0xff; PAGE];
        for (record, &(_, key)) in bytes.chunks_mut(RECORD).zip(page) {
            record[..8].copy_from_slice(&key.to_le_bytes());
            record[8..16].copy_from_slice(&value_of(key).to_le_bytes());
        }
        data.write_all(&bytes)?;
    }
    index.into_inner()?.close().and(data.into_inner()?.sync_all())
}

struct Table {
    keys: u64,
    /// The first hash of each page.
    first_hashes: Vec<u64>,
    data: File,
}

impl Table {
    fn open(keys: u64, index: &Path, data: &Path) -> io::Result<Table> {
        let mut bytes = Vec::new();
        File::open(index)?.read_to_end(&mut bytes)?;
        let hashes = bytes.chunks_exact(8).map(|hash| u64::from_le_bytes(hash.try_into().unwrap()));
        let data = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(data)?;
        Ok(Table { keys, first_hashes: hashes.collect(), data })
    }

    /// Returns the n-th key to look up. The keys are scattered, and the table has seven of eight.
    fn key(&self, n: u64) -> u64 {
        n * 0x9e37_79b9 % (self.keys + self.keys / 7 + 1)
    }

    /// Checks the result of a lookup.
    fn check(&self, key: u64, page: &[u8]) {
        assert_eq!(find(page, key), (key < self.keys).then(|| value_of(key)));
    }

    /// Returns the offset of the only page that can contain this key.
    fn page_of(&self, key: u64) -> u64 {
        let hash = hash_of(key);
        let next = self.first_hashes.partition_point(|&first| first <= hash);
        next.saturating_sub(1) as u64 * PAGE as u64
    }
}

/// Returns the value of a key in a page.
fn find(page: &[u8], key: u64) -> Option<u64> {
    let record = page.chunks(RECORD).find(|record| record[..8] == key.to_le_bytes())?;
    Some(u64::from_le_bytes(record[8..16].try_into().unwrap()))
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let keys = args.next().map_or(Ok(200_000), |text| text.parse()).map_err(io::Error::other)?;
    let directory = args.next().unwrap_or_else(|| ".".into());
    run(keys, directory.as_ref()).map(drop)
}
