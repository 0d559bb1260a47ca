//! Looks up keys in a file, one at a time and in batches, and prints both rates.
//!
//!     cargo run --release --example lookup -- [KEYS] [DIRECTORY]
//!
//! First it writes KEYS (default: 200,000) records into DIRECTORY (default: here; it must be on a
//! disk and not in a tmpfs). A data file has pages of 4 KiB with 16 records each, sorted by their
//! hash. An index file has the first hash of each page. A lookup reads one page with `O_DIRECT`,
//! first one after the other, then in batches of 64. Both files are removed.

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

/// Returns the lookups per second, one at a time and in batches.
pub(crate) fn run(keys: u64, directory: &Path) -> io::Result<(f64, f64)> {
    let (index, data) = (directory.join("lookup.index"), directory.join("lookup.data"));
    cringle::Builder::new().workers(1).run(|| {
        make(keys, &index, &data)?;
        let table = Table::open(&index, &data)?;
        std::fs::remove_file(&index).and_then(|()| std::fs::remove_file(&data))?;

        // Scattered keys, of which one in eight does not exist.
        let lookups = keys.min(20_000);
        let wanted = |n: u64| n * 0x9e37_79b9 % (keys + keys / 7 + 1);
        let check = |n: u64, page: &[u8]| {
            assert_eq!(find(page, wanted(n)), (wanted(n) < keys).then(|| wanted(n) * 3));
        };
        let mut pages = AlignedBuf::new(BATCH * PAGE);
        let start = Instant::now();
        for n in 0..lookups {
            table.data.read_exact_at(&mut pages[..PAGE], table.page_of(wanted(n)))?;
            check(n, &pages[..PAGE]);
        }
        let one_by_one = lookups as f64 / start.elapsed().as_secs_f64();

        let (start, mut spare) = (Instant::now(), Batch::new());
        for first in (0..lookups).step_by(BATCH) {
            let round = first..lookups.min(first + BATCH as u64);
            let mut batch = spare;
            for (n, page) in round.clone().zip(pages.chunks_mut(PAGE)) {
                batch.read_exact(&table.data, page, table.page_of(wanted(n)));
            }
            let results = batch.submit();
            for ((n, page), count) in round.zip(pages.chunks(PAGE)).zip(results.iter()) {
                count?;
                check(n, page);
            }
            spare = results.recycle();
        }
        let batched = lookups as f64 / start.elapsed().as_secs_f64();
        println!("one at a time: {one_by_one:8.0} lookups/s");
        println!("batches of {BATCH}: {batched:8.0} lookups/s ({:.1} ×)", batched / one_by_one);
        Ok((one_by_one, batched))
    })?
}

fn hash_of(key: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(key)
}

/// Writes both files. A record is its key, its value (three times the key), and padding.
fn make(keys: u64, index: &Path, data: &Path) -> io::Result<()> {
    let mut sorted: Vec<(u64, u64)> = (0..keys).map(|key| (hash_of(key), key)).collect();
    sorted.sort();
    let mut index = BufWriter::new(File::create(index)?);
    let mut data = BufWriter::with_capacity(1 << 20, File::create(data)?);
    for page in sorted.chunks(PAGE / RECORD) {
        index.write_all(&page[0].0.to_le_bytes())?;
        let mut bytes = [0xff; PAGE];
        for (record, &(_, key)) in bytes.chunks_mut(RECORD).zip(page) {
            record[..8].copy_from_slice(&key.to_le_bytes());
            record[8..16].copy_from_slice(&(key * 3).to_le_bytes());
        }
        data.write_all(&bytes)?;
    }
    index.into_inner()?.close().and(data.into_inner()?.sync_all())
}

struct Table {
    first_hashes: Vec<u64>,
    data: File,
}

impl Table {
    fn open(index: &Path, data: &Path) -> io::Result<Table> {
        let mut bytes = Vec::new();
        File::open(index)?.read_to_end(&mut bytes)?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let data = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(data)?;
        Ok(Table { first_hashes: words.collect(), data })
    }

    /// Returns the offset of the only page that may have this key.
    fn page_of(&self, key: u64) -> u64 {
        let after = self.first_hashes.partition_point(|&first| first <= hash_of(key));
        after.saturating_sub(1) as u64 * PAGE as u64
    }
}

fn find(page: &[u8], key: u64) -> Option<u64> {
    let record = page.chunks(RECORD).find(|record| record[..8] == key.to_le_bytes())?;
    Some(u64::from_le_bytes(record[8..16].try_into().unwrap()))
}

#[allow(dead_code, reason = "the tests call `run`")]
fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let keys = args.next().map_or(Ok(200_000), |text| text.parse()).map_err(io::Error::other)?;
    let directory = args.next().unwrap_or_else(|| ".".into());
    run(keys, directory.as_ref()).map(drop)
}
