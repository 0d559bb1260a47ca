//! The strategies: the same loop with std, with tokio, and with fibers.

use super::args::Strategy;
use super::feed::Feeder;
use super::source::{GO, Open, Source};
use super::{BUFFER_BYTES, SumSample};
use crate::meter::Meter;
use std::io::{self, Read, Write};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// Reads the source once.
pub(super) fn run(strategy: Strategy, source: &Source, bytes: u64) -> io::Result<SumSample> {
    let open = source.open()?;
    match strategy {
        Strategy::Sync => sync(open, bytes),
        Strategy::Tokio => with_tokio(open, bytes),
        Strategy::Fibers => with_fibers(open, bytes),
    }
}

/// The sum of the bytes read so far.
struct Sum {
    sum: u64,
    /// Bytes that are still to be read.
    left: u64,
}

impl Sum {
    fn of(bytes: u64) -> Sum {
        Sum { sum: 0, left: bytes }
    }

    /// Returns the size of the next read.
    fn want(&self) -> usize {
        (BUFFER_BYTES as u64).min(self.left) as usize
    }

    fn add(&mut self, read: &[u8]) -> io::Result<()> {
        if read.is_empty() {
            let text = format!("the source ended {} bytes early", self.left);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        self.sum += sum_of(read);
        self.left -= read.len() as u64;
        Ok(())
    }
}

/// Not inlined, so that every strategy executes the same code.
#[inline(never)]
fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

/// Returns a buffer whose pages have been touched.
fn buffer() -> Vec<u8> {
    vec![1; BUFFER_BYTES]
}

/// The loop of `sync` and `fibers`, which differ in their types only.
fn sum_up(mut source: impl Read, buffer: &mut [u8], bytes: u64) -> io::Result<u64> {
    let mut sum = Sum::of(bytes);
    while sum.left > 0 {
        let want = sum.want();
        match source.read(&mut buffer[..want]) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            count => sum.add(&buffer[..count?])?,
        }
    }
    Ok(sum.sum)
}

fn of_file(file: impl Read, bytes: u64) -> io::Result<SumSample> {
    let mut buffer = buffer();
    let meter = Meter::start();
    let sum = sum_up(file, &mut buffer, bytes)?;
    Ok(SumSample { usage: meter.stop(), sum })
}

fn of_stream(mut stream: impl Read + Write, feeder: Feeder, bytes: u64) -> io::Result<SumSample> {
    let mut buffer = buffer();
    let meter = Meter::start();
    stream.write_all(GO)?;
    let sum = sum_up(&mut stream, &mut buffer, bytes)?;
    let usage = meter.stop();
    feeder.end()?;
    Ok(SumSample { usage, sum })
}

fn sync(open: Open, bytes: u64) -> io::Result<SumSample> {
    match open {
        Open::File(file) => of_file(file, bytes),
        Open::Tcp(stream, feeder) => of_stream(stream, feeder, bytes),
    }
}

fn with_fibers(open: Open, bytes: u64) -> io::Result<SumSample> {
    cringle::Builder::new().workers(1).run(|| {
        crate::describe_runtime();
        match open {
            Open::File(file) => of_file(cringle::fs::File::from(file), bytes),
            Open::Tcp(stream, feeder) => {
                of_stream(cringle::net::TcpStream::from(stream), feeder, bytes)
            }
        }
    })?
}

async fn sum_up_async(
    source: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
    bytes: u64,
) -> io::Result<u64> {
    let mut sum = Sum::of(bytes);
    while sum.left > 0 {
        let want = sum.want();
        match source.read(&mut buffer[..want]).await {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            count => sum.add(&buffer[..count?])?,
        }
    }
    Ok(sum.sum)
}

fn with_tokio(open: Open, bytes: u64) -> io::Result<SumSample> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut buffer = buffer();
        match open {
            Open::File(file) => {
                let mut file = tokio::fs::File::from_std(file);
                // tokio's file reads ahead into a buffer of its own, which gets the same size.
                file.set_max_buf_size(BUFFER_BYTES);
                let meter = Meter::start();
                let sum = sum_up_async(&mut file, &mut buffer, bytes).await?;
                Ok(SumSample { usage: meter.stop(), sum })
            }
            Open::Tcp(stream, feeder) => {
                stream.set_nonblocking(true)?;
                let mut stream = tokio::net::TcpStream::from_std(stream)?;
                let meter = Meter::start();
                stream.write_all(GO).await?;
                let sum = sum_up_async(&mut stream, &mut buffer, bytes).await?;
                let usage = meter.stop();
                feeder.end()?;
                Ok(SumSample { usage, sum })
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_covers_exactly_the_given_bytes() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n * 7) as u8).collect();
        let expected: u64 = bytes[..70_000].iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(sum_up(&bytes[..], &mut buffer(), 70_000).unwrap(), expected);
        let early = sum_up(&bytes[..], &mut buffer(), 100_001).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::UnexpectedEof);
    }
}
