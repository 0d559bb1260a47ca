//! Reads and writes by each of the library's interfaces, retrying until the transfer is complete.

use super::Way;
use super::env::{Because, Env, Stop};
use cringle::block::{Batch, FixedBufs, FixedFile};
use cringle::fs::File;
use cringle::sim::Fault;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

pub(super) fn write(env: &Env, file: &File, way: Way, bytes: &[u8], at: u64) -> Result<(), Stop> {
    env.persist(|| match way {
        Way::At => file.write_all_at(bytes, at),
        Way::Vectored => write_vectored(file, bytes, at),
        Way::Batch | Way::BatchExact => {
            let add = if way == Way::Batch { Batch::write } else { Batch::write_all };
            let mut batch = Batch::new();
            let (one, other) = bytes.split_at(bytes.len() / 2);
            add(&mut batch, file, one, at);
            add(&mut batch, file, other, at + one.len() as u64);
            whole(batch.submit().into_iter(), [one.len(), other.len()])
        }
        Way::Fixed => {
            let (file, mut bufs) = (FixedFile::register(file)?, FixedBufs::new(1, bytes.len())?);
            bufs[0].copy_from_slice(bytes);
            let mut batch = Batch::new();
            batch.write_fixed(&file, &bufs[0], at);
            whole(batch.submit().into_iter(), [bytes.len()])
        }
        Way::Cursor => {
            let mut file = file;
            file.seek(SeekFrom::Start(at))?;
            file.write_all(bytes)
        }
    })
}

/// Reads `len` bytes at `at`. Bytes beyond `end` or the end of the file are zero.
pub(super) fn read(
    env: &Env,
    file: &File,
    way: Way,
    len: usize,
    at: u64,
    end: u64,
) -> Result<Vec<u8>, Stop> {
    env.persist(|| {
        let size = file.metadata()?.len().min(end);
        let available = size.saturating_sub(at).min(len as u64) as usize;
        let mut bytes = vec![0; len];
        let part = &mut bytes[..available];
        match way {
            _ if available == 0 => {}
            Way::At => file.read_exact_at(part, at)?,
            Way::Vectored => {
                let (one, other) = part.split_at_mut(available / 2);
                let mut slices = [IoSliceMut::new(one), IoSliceMut::new(other)];
                let count = file.read_vectored_at(&mut slices, at)?;
                // Read the rest of a short read.
                file.read_exact_at(&mut part[count..], at + count as u64)?;
            }
            Way::Batch | Way::BatchExact => {
                let add = if way == Way::Batch { Batch::read } else { Batch::read_exact };
                let (one, other) = part.split_at_mut(available / 2);
                let lens = [one.len(), other.len()];
                let mut batch = Batch::new();
                add(&mut batch, file, one, at);
                add(&mut batch, file, other, at + lens[0] as u64);
                whole(batch.submit().into_iter(), lens)?;
            }
            Way::Fixed => {
                let (file, mut bufs) = (FixedFile::register(file)?, FixedBufs::new(1, available)?);
                let mut batch = Batch::new();
                batch.read_fixed(&file, &mut bufs[0], at);
                whole(batch.submit().into_iter(), [available])?;
                part.copy_from_slice(&bufs[0]);
            }
            Way::Cursor => {
                let mut file = file;
                file.seek(SeekFrom::Start(at))?;
                file.read_exact(part)?;
            }
        }
        Ok(bytes)
    })
}

fn write_vectored(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let count = file.write_vectored_at(&[IoSlice::new(one), IoSlice::new(other)], at)?;
    file.write_all_at(&bytes[count..], at + count as u64)
}

/// Returns an error that is retried if an op of a batch moved fewer bytes than asked.
fn whole(
    results: impl Iterator<Item = io::Result<usize>>,
    lens: impl IntoIterator<Item = usize>,
) -> io::Result<()> {
    for (result, len) in results.zip(lens) {
        if result? < len {
            return Err(Because(&[Fault::ShortTransfer, Fault::ZeroTransfer]).error());
        }
    }
    Ok(())
}
