//! Writes of payloads, on a fiber.

use cringle::fs::File;
use object_store::PutPayload;
use std::io::{self, IoSlice};

/// The number of parts of a payload that one operation writes.
const PARTS_AT_ONCE: usize = 64;
/// The length of the longest operation, unless a single part is longer.
const BYTES_AT_ONCE: usize = 4 << 20;

/// Writes the payload from `offset`.
///
/// The operations follow one another: the kernel would perform them one by one, too, because it
/// locks the file for each.
pub(crate) fn write_payload(file: &File, payload: &PutPayload, mut offset: u64) -> io::Result<()> {
    let mut parts = payload.iter().filter(|part| !part.is_empty()).peekable();
    while parts.peek().is_some() {
        let mut bytes = 0;
        let mut slices = Vec::new();
        while let Some(part) = parts.next_if(|part| {
            let is_first = bytes == 0;
            bytes += part.len();
            is_first || slices.len() < PARTS_AT_ONCE && bytes <= BYTES_AT_ONCE
        }) {
            slices.push(IoSlice::new(part));
        }
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            match file.write_vectored_at(rest, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}
