//! An object as a stream of chunks.

use crate::engine::Engine;
use crate::memory::Spares;
use crate::read::read_range;
use bytes::Bytes;
use cringle::fs::File;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::future::ready;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The number of chunks that are read at once.
const CHUNKS_AT_ONCE: usize = 2;

/// Returns the bytes of the range in chunks. Nothing is read before the stream is polled, and at
/// most `CHUNKS_AT_ONCE` chunks are in memory besides those that the caller has taken.
pub(crate) fn chunks(
    engine: Engine,
    file: Arc<File>,
    path: Arc<Path>,
    (range, chunk_bytes): (Range<u64>, usize),
    spares: Spares,
) -> BoxStream<'static, object_store::Result<Bytes>> {
    let end = range.end;
    let read = move |start: u64| {
        let (file, path) = (Arc::clone(&file), Arc::clone(&path));
        let spares = spares.clone();
        let chunk = start..end.min(start.saturating_add(chunk_bytes as u64));
        engine.run(move |is_wanted| Ok(read_range(&file, &path, chunk, &spares, is_wanted)?))
    };
    let mut failed = false;
    let until_error = move |chunk: &object_store::Result<Bytes>| {
        let was_failed = failed;
        failed |= chunk.is_err();
        ready(!was_failed)
    };
    let reads = stream::iter(range.step_by(chunk_bytes)).map(read);
    reads.buffered(CHUNKS_AT_ONCE).take_while(until_error).boxed()
}
