//! Writes of payloads, on a fiber.

use cringle::fs::File;
use object_store::PutPayload;
use std::io::{self, IoSlice};

/// The length of the longest operation. While the kernel copies it, the worker serves no other
/// caller.
const BYTES_AT_ONCE: usize = 1 << 20;
/// The number of buffers that one operation writes: the kernel's limit.
const PARTS_AT_ONCE: usize = 1024;

/// Writes the payload from `offset`.
///
/// The operations follow one another: the kernel would perform them one by one, too, because it
/// locks the file for each.
pub(crate) fn write_payload(file: &File, payload: &PutPayload, mut offset: u64) -> io::Result<()> {
    let mut parts = payload.iter().flat_map(|part| part.chunks(BYTES_AT_ONCE)).peekable();
    let mut slices = Vec::new();
    while parts.peek().is_some() {
        let mut bytes = 0;
        slices.clear();
        while let Some(part) = parts.next_if(|part| {
            bytes += part.len();
            bytes <= BYTES_AT_ONCE && slices.len() < PARTS_AT_ONCE
        }) {
            slices.push(IoSlice::new(part));
        }
        write_all(file, &mut slices, &mut offset)?;
    }
    Ok(())
}

fn write_all(file: &File, mut left: &mut [IoSlice<'_>], offset: &mut u64) -> io::Result<()> {
    while !left.is_empty() {
        match file.write_vectored_at(left, *offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                *offset += count as u64;
                IoSlice::advance_slices(&mut left, count);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
