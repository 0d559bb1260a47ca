//! The submitters of `high`, by the functions of `cringle.h`.

use crate::batch::high::{BATCH_LIMIT, IN_FLIGHT_LIMIT, offsets};
use crate::batch::{BATCH, BLOCK, FEWER, RoundConfig, ThreadResult, short_read};
use crate::meter::Gate;
use cringle::block::AlignedBuf;
use cringle_c::{
    CRINGLE_READ, cringle_close, cringle_io, cringle_last_error, cringle_op, cringle_open,
    cringle_params, cringle_submit,
};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Instant;

pub(in crate::batch) fn run(
    config: &RoundConfig<'_>,
    gate: &Gate,
) -> io::Result<Vec<ThreadResult>> {
    let params = cringle_params {
        size: size_of::<cringle_params>() as u32,
        flags: 0,
        workers: config.args.workers as u32,
        batch_limit: BATCH_LIMIT,
        in_flight_limit: IN_FLIGHT_LIMIT,
        driver: 0,
    };
    let mut engine = 0;
    // SAFETY: the contract of `cringle_open`: both are this frame's.
    if unsafe { cringle_open(&raw const params, &raw mut engine) } != 0 {
        return Err(last_error());
    }
    let file = config.open()?;
    let results = gate.on_threads(config.args.submitters(), FEWER, |number, mut party| {
        let mut submitter = Submitter::new(config, number, engine, &file);
        party.enter()?;
        submitter.submit_all()
    });
    if cringle_close(engine) != 0 {
        return Err(last_error());
    }
    results
}

struct Submitter {
    engine: cringle_io,
    offsets: Vec<u64>,
    /// The memory of `ops`.
    _buffer: AlignedBuf,
    ops: Vec<cringle_op>,
    result: ThreadResult,
}

impl Submitter {
    fn new(config: &RoundConfig<'_>, number: usize, engine: cringle_io, file: &File) -> Submitter {
        let offsets = offsets(config, number);
        let mut buffer = AlignedBuf::new(BATCH * BLOCK);
        // Touches every page before the clock starts.
        buffer.fill(1);
        let op = |block: &mut [u8]| cringle_op {
            kind: CRINGLE_READ,
            fd: file.as_raw_fd(),
            buf: block.as_mut_ptr().cast(),
            len: BLOCK as u64,
            offset: 0,
            flags: 0,
            buffer: 0,
            user_data: 0,
            reserved: [0; 2],
        };
        let ops = buffer.chunks_mut(BLOCK).map(op).collect();
        let latencies_ns = Vec::with_capacity(offsets.len() / BATCH);
        let result = ThreadResult { ops: 0, latencies_ns };
        Submitter { engine, offsets, _buffer: buffer, ops, result }
    }

    fn submit_all(&mut self) -> io::Result<ThreadResult> {
        let mut results = [0; BATCH];
        for offsets in self.offsets.chunks(BATCH) {
            for (op, offset) in self.ops.iter_mut().zip(offsets) {
                op.offset = *offset;
            }
            let started = Instant::now();
            let (ops, count) = (self.ops.as_ptr(), offsets.len());
            // SAFETY: the contract of `cringle_submit`: both arrays have `count` elements, and the
            // buffer is this submitter's, which no other code uses.
            let failed = unsafe { cringle_submit(self.engine, ops, count, results.as_mut_ptr()) };
            self.result.latencies_ns.push(started.elapsed().as_nanos() as u64);
            if failed < 0 {
                return Err(last_error());
            }
            for (offset, &result) in offsets.iter().zip(&results) {
                match usize::try_from(result) {
                    Ok(BLOCK) => {}
                    Ok(moved) => return Err(short_read(moved, *offset)),
                    Err(_) => return Err(io::Error::from_raw_os_error(-result as i32)),
                }
            }
            self.result.ops += count as u64;
        }
        Ok(std::mem::take(&mut self.result))
    }
}

/// Returns the words of the last failure of the library on this thread.
fn last_error() -> io::Error {
    // SAFETY: the contract of `cringle_last_error`: no bytes are written.
    let len = unsafe { cringle_last_error(ptr::null_mut(), 0) };
    let mut text = vec![0_u8; len + 1];
    // SAFETY: as above; the text has the room that is stated.
    unsafe { cringle_last_error(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(len);
    io::Error::other(String::from_utf8_lossy(&text).into_owned())
}
