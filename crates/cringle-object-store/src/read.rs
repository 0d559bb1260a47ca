//! Reads of an open object, on a fiber.

use crate::error::Error;
use crate::memory::{Memory, Spares};
use crate::meta::Metadata;
use crate::plan::{Fetch, Plan};
use bytes::Bytes;
use cringle::block::Batch;
use cringle::fiber;
use cringle::fs::{File, ReadFlags};
use object_store::GetRange;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The length of the longest operation.
const PIECE_BYTES: usize = 512 << 10;
/// The limits of one batch: while it is prepared, and while the kernel copies what is in memory,
/// the worker serves no other caller. They also limit the memory that is not the results'.
const BATCH_OPS: usize = 1024;
const BATCH_BYTES: usize = 8 << 20;
/// The length of the shortest read that is tried without the ring.
const LONG_BYTES: usize = 64 << 10;
/// The length of the longest buffer that several reads share.
const SHARED_BYTES: u64 = 64 << 10;
/// The length of the longest read whose memory is allocated before the file's length is known.
const UNCHECKED_BYTES: u64 = 16 << 20;

/// The errno of an invalid argument, on every architecture.
const EINVAL: i32 = 22;

/// Limits of the reads that fetch several ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest number of bytes between two ranges that one read fetches.
    pub(crate) gap: u64,
    /// The length of the longest read of several ranges.
    pub(crate) longest: u64,
}

/// Returns whether a read is still wanted.
pub(crate) type IsWanted<'f> = &'f dyn Fn() -> bool;

/// Reads a range that lies within the object.
pub(crate) fn read_range(
    file: &File,
    path: &Path,
    range: Range<u64>,
    spares: &Spares,
    is_wanted: IsWanted<'_>,
) -> Result<Bytes, Error> {
    let bytes = range.end - range.start;
    let mut memory = spares.take(bytes as usize).map_err(Error::memory(path, bytes))?;
    let buf = memory.as_mut();
    let outcome = match buf.len() {
        // Without the ring if it is in memory.
        0..=PIECE_BYTES => file.read_exact_at(buf, range.start).map_err(Stopped::Failed),
        _ => {
            let pieces = pieces(buf, range.start);
            read_pieces(file, pieces, Batch::new(), is_wanted).map(drop)
        }
    };
    match outcome {
        Ok(()) => Ok(memory.into_bytes()),
        Err(stopped) => Err(explain(file, path, std::slice::from_ref(&range), stopped)),
    }
}

/// Reads the ranges, in batches. The results are in the order of the ranges.
///
/// Beyond the results, it holds at most `BATCH_BYTES` and the bookkeeping of one batch.
pub(crate) fn read_ranges(
    file: &File,
    path: &Path,
    ranges: &[Range<u64>],
    limits: Limits,
    spares: &Spares,
    is_wanted: IsWanted<'_>,
) -> Result<Vec<Bytes>, Error> {
    let plan = Plan::new(ranges, limits.gap, limits.longest);
    check_long_reads(file, path, ranges, &plan)?;
    check_memory(path, bytes_of_results(ranges, &plan))?;
    let mut results = vec![Bytes::new(); ranges.len()];
    let mut left = plan.fetches.as_slice();
    let mut spare = Batch::new();
    while !left.is_empty() {
        let (now, later) = left.split_at(count_of_next(left));
        left = later;
        let bytes = now.iter().map(Fetch::len).sum();
        let mut buffers = allocate(now, spares).map_err(Error::memory(path, bytes))?;
        let pieces = buffers.iter_mut().flat_map(Buffer::pieces);
        spare = read_pieces(file, pieces, spare, is_wanted)
            .map_err(|stopped| explain(file, path, ranges, stopped))?;
        for buffer in buffers {
            buffer.distribute(ranges, &plan.order, &mut results);
        }
    }
    Ok(results)
}

/// Returns the bytes that the results hold. The bytes of reads with gaps are copied.
fn bytes_of_results(ranges: &[Range<u64>], plan: &Plan) -> u128 {
    let len = |&n: &usize| u128::from(ranges[n].end - ranges[n].start);
    let held = |fetch: &Fetch| match fetch.has_gaps {
        true => plan.order[fetch.members.clone()].iter().map(len).sum(),
        false => u128::from(fetch.len()),
    };
    plan.fetches.iter().map(held).sum()
}

/// Why not all pieces were read.
enum Stopped {
    Failed(io::Error),
    Unwanted,
}

/// Fills the buffers from their offsets, in batches. Returns the memory of the last batch.
///
/// Long reads of what is in memory are copied here, one after the other. In a batch, the kernel
/// would copy those of all callers in one call, and none would have a result before the last copy.
fn read_pieces<'b>(
    file: &'b File,
    pieces: impl Iterator<Item = (&'b mut [u8], u64)>,
    mut spare: Batch<'static>,
    is_wanted: IsWanted<'_>,
) -> Result<Batch<'static>, Stopped> {
    let mut pieces = pieces.peekable();
    while pieces.peek().is_some() {
        if !is_wanted() {
            return Err(Stopped::Unwanted);
        }
        let mut batch: Batch<'b> = spare;
        let mut bytes = 0;
        while batch.len() < BATCH_OPS
            && bytes < BATCH_BYTES
            && let Some((piece, offset)) = pieces.next()
        {
            bytes += piece.len();
            let done = if piece.len() >= LONG_BYTES { copy_cached(file, piece, offset) } else { 0 };
            if done < piece.len() {
                batch.read_exact(file, &mut piece[done..], offset + done as u64);
            }
        }
        if batch.is_empty() && pieces.peek().is_some() {
            fiber::yield_now();
        }
        let outcomes = batch.submit();
        outcomes.iter().find_map(Result::err).map_or(Ok(()), |e| Err(Stopped::Failed(e)))?;
        spare = outcomes.recycle();
    }
    Ok(spare)
}

/// Reads what the page cache has, without a wait, and returns the number of bytes.
fn copy_cached(file: &File, buf: &mut [u8], offset: u64) -> usize {
    // The batch returns the error.
    file.read_at_with(buf, offset, ReadFlags::NOWAIT).unwrap_or(0)
}

/// Splits a buffer for the file's bytes from `start` into pieces with their offsets.
fn pieces(buf: &mut [u8], start: u64) -> impl Iterator<Item = (&mut [u8], u64)> {
    buf.chunks_mut(PIECE_BYTES).zip((start..).step_by(PIECE_BYTES))
}

/// Returns the number of reads for the next batch: at least one.
fn count_of_next(left: &[Fetch]) -> usize {
    let mut bytes = 0;
    let fits = |fetch: &&Fetch| {
        bytes += fetch.len();
        bytes <= BATCH_BYTES as u64
    };
    left[..left.len().min(BATCH_OPS)].iter().take_while(fits).count().max(1)
}

/// Memory for one read, or for several short ones that follow one another.
struct Buffer<'p> {
    fetches: &'p [Fetch],
    memory: Memory,
}

/// Allocates the memory of the reads. Each allocation takes longer than the kernel takes for a
/// short read, so these share a buffer, unless it will be copied.
fn allocate<'p>(fetches: &'p [Fetch], spares: &Spares) -> io::Result<Vec<Buffer<'p>>> {
    let mut bytes = 0;
    let shares = move |this: &Fetch, next: &Fetch| {
        bytes += this.len();
        let shares = !this.has_gaps && !next.has_gaps && bytes + next.len() <= SHARED_BYTES;
        if !shares {
            bytes = 0;
        }
        shares
    };
    fetches.chunk_by(shares).map(|fetches| Buffer::new(fetches, spares)).collect()
}

impl<'p> Buffer<'p> {
    fn new(fetches: &'p [Fetch], spares: &Spares) -> io::Result<Buffer<'p>> {
        let bytes: u64 = fetches.iter().map(Fetch::len).sum();
        Ok(Buffer { fetches, memory: spares.take(bytes as usize)? })
    }

    /// Returns its pieces, with their offsets in the file.
    fn pieces(&mut self) -> impl Iterator<Item = (&mut [u8], u64)> {
        let mut rest = self.memory.as_mut();
        self.fetches.iter().flat_map(move |fetch| {
            let (this, after) = std::mem::take(&mut rest).split_at_mut(fetch.len() as usize);
            rest = after;
            pieces(this, fetch.range.start)
        })
    }

    /// Hands the bytes to the ranges. They share the buffer if each byte belongs to one; otherwise
    /// they are copied, so that no result keeps unwanted bytes in memory.
    fn distribute(self, ranges: &[Range<u64>], order: &[usize], results: &mut [Bytes]) {
        let has_gaps = self.fetches.iter().any(|fetch| fetch.has_gaps);
        let whole = self.memory.into_bytes();
        let mut begin = 0;
        for fetch in self.fetches {
            for &n in &order[fetch.members.clone()] {
                let from = |offset: u64| begin + (offset - fetch.range.start) as usize;
                let within = from(ranges[n].start)..from(ranges[n].end);
                results[n] = match has_gaps {
                    true => Bytes::copy_from_slice(&whole[within]),
                    false => whole.slice(within),
                };
            }
            begin += fetch.len() as usize;
        }
    }
}

/// Refuses reads for which there is no memory: an allocation that fails would end the process.
fn check_memory(path: &Path, bytes: u128) -> Result<(), Error> {
    if bytes <= UNCHECKED_BYTES.into() {
        return Ok(());
    }
    let has_space = |len| Vec::<u8>::new().try_reserve_exact(len).is_ok();
    match usize::try_from(bytes).is_ok_and(has_space) {
        true => Ok(()),
        false => Err(Error::Memory { path: path.into(), bytes }),
    }
}

/// Refuses long reads that a regular file cannot satisfy before memory is allocated for them.
fn check_long_reads(
    file: &File,
    path: &Path,
    ranges: &[Range<u64>],
    plan: &Plan,
) -> Result<(), Error> {
    if plan.fetches.iter().all(|fetch| fetch.len() <= UNCHECKED_BYTES) {
        return Ok(());
    }
    let metadata = Metadata::of(file).map_err(Error::open(path))?;
    if metadata.is_dir() {
        // The kernel's error.
        return read_range(file, path, 0..1, &Spares::default(), &|| true).map(drop);
    }
    let end = plan.fetches.last().map_or(0, |fetch| fetch.range.end);
    if metadata.is_file() && end > metadata.len() {
        return Err(beyond_the_end(path, ranges, metadata.len()));
    }
    Ok(())
}

/// Returns the error of a read that was stopped.
#[cold]
fn explain(file: &File, path: &Path, ranges: &[Range<u64>], stopped: Stopped) -> Error {
    let Stopped::Failed(e) = stopped else { return Error::Unwanted };
    // The kernel refuses offsets that no file can have.
    let is_refused = || {
        let most = i64::MAX as u64;
        e.raw_os_error() == Some(EINVAL) && ranges.iter().any(|range| range.end > most)
    };
    if e.kind() != io::ErrorKind::UnexpectedEof && !is_refused() {
        return Error::Io { action: "read it", path: path.into(), source: e };
    }
    match Metadata::of(file) {
        Ok(metadata) => beyond_the_end(path, ranges, metadata.len()),
        Err(e) => Error::open(path)(e),
    }
}

/// Returns the error that `LocalFileSystem` returns if an object of `len` bytes does not contain
/// all of the ranges: it reads them in their order, or merged if any of them touch.
fn beyond_the_end(path: &Path, ranges: &[Range<u64>], len: u64) -> Error {
    let merged = merge_touching(ranges);
    let reads = if merged.len() == ranges.len() { ranges } else { &merged };
    let failed = reads.iter().find(|read| !read.is_empty() && read.end > len);
    let Some(read) = failed else {
        // The file has grown since the read.
        let (wanted, actual) = (ranges.iter().map(|range| range.end).max().unwrap_or(0), len);
        return Error::Short { path: path.into(), wanted, actual };
    };
    match GetRange::Bounded(read.clone()).as_range(len) {
        Err(source) => Error::Range { path: path.into(), source: source.into() },
        Ok(there) => Error::Short {
            path: path.into(),
            wanted: read.end - read.start,
            actual: there.end - there.start,
        },
    }
}

/// Merges the ranges that touch or overlap, also the empty ones.
fn merge_touching(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Refuses ranges that end before they start.
pub(crate) fn check_ranges(path: &Path, ranges: &[Range<u64>]) -> Result<(), Error> {
    let Some(range) = ranges.iter().find(|range| range.start > range.end) else { return Ok(()) };
    match GetRange::Bounded(range.clone()).is_valid() {
        Err(source) => Err(Error::Range { path: path.into(), source: source.into() }),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Mutex;

    #[test]
    fn unwanted_read_ends_after_the_batch_in_progress() {
        let path = Path::new("/proc/self/exe");
        let file = File::open(path).unwrap();
        let ranges: Vec<_> = (0..3 * BATCH_OPS as u64).map(|n| n * 10..n * 10 + 1).collect();
        let limits = Limits { gap: 0, longest: 1 << 20 };
        let spares = Spares::default();
        for batches in 0..3 {
            let left = Cell::new(batches);
            let is_wanted = || left.replace(left.get() - 1) > 0;
            let error = read_ranges(&file, path, &ranges, limits, &spares, &is_wanted).unwrap_err();
            assert!(matches!(error, Error::Unwanted) && left.get() == -1, "{error}");
        }
        // A single range of several batches.
        let zeroes = File::open("/dev/zero").unwrap();
        let left = Cell::new(2);
        let is_wanted = || left.replace(left.get() - 1) > 0;
        let long = 0..3 * BATCH_BYTES as u64;
        let error = read_range(&zeroes, path, long, &spares, &is_wanted).unwrap_err();
        assert!(matches!(error, Error::Unwanted) && left.get() == -1, "{error}");
        assert_eq!(
            read_ranges(&file, path, &ranges, limits, &spares, &|| true).unwrap().len(),
            ranges.len()
        );
    }

    /// With the kernel's copies in one batch, no caller had a result before the last copy.
    #[test]
    fn cached_result_is_returned_before_another_caller_reads() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &[7; PIECE_BYTES]).unwrap();
        let (file, path) = (File::open(file.path()).unwrap(), file.path());
        let is_cached = || copy_cached(&file, &mut vec![0; PIECE_BYTES], 0) == PIECE_BYTES;
        let was_cached = is_cached();
        let (spares, events) = (Spares::default(), Mutex::new(Vec::new()));
        let log = |event| events.lock().unwrap().push(event);
        let read = |reads: &'static str, done: &'static str| {
            let is_wanted = || {
                log(reads);
                true
            };
            let limits = Limits { gap: 0, longest: 1 << 20 };
            let range = 0..PIECE_BYTES as u64;
            let found = read_ranges(&file, path, &[range], limits, &spares, &is_wanted).unwrap();
            log(done);
            assert!(found[0].iter().all(|&byte| byte == 7));
        };
        cringle::Builder::new()
            .workers(1)
            .run(|| {
                fiber::scope(|s| {
                    s.spawn(|| read("one reads", "one is done"));
                    s.spawn(|| read("two reads", "two is done"));
                });
            })
            .unwrap();
        if !was_cached || !is_cached() {
            eprintln!("SKIPPED, NOTHING WAS TESTED: the page cache did not keep the file");
            return;
        }
        let events = events.into_inner().unwrap();
        assert_eq!(events, ["one reads", "one is done", "two reads", "two is done"]);
    }
}
