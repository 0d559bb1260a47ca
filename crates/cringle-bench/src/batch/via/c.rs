//! The submitters of `high`, by the functions of `cringle.h`.

use crate::batch::high::{BATCH_LIMIT, IN_FLIGHT_LIMIT, submit_all, touched_buffer};
use crate::batch::{BATCH, BLOCK, FEWER, RoundConfig, ThreadResult, short_read};
use crate::meter::Gate;
use cringle_c::{
    CRINGLE_READ, cringle_close, cringle_last_error, cringle_op, cringle_open, cringle_params,
    cringle_submit,
};
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
    let results = gate.on_threads(config.args.submitters(), FEWER, |number, party| {
        let (mut buffer, mut results) = (touched_buffer(), [0; BATCH]);
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
        let mut ops: Vec<cringle_op> = buffer.chunks_mut(BLOCK).map(op).collect();
        submit_all(config, number, party, |offsets| {
            for (op, offset) in ops.iter_mut().zip(offsets) {
                op.offset = *offset;
            }
            let started = Instant::now();
            let count = offsets.len();
            // SAFETY: the contract of `cringle_submit`: both arrays have `count` elements, and the
            // memory of the reads is `buffer`, which outlives the call and no other code uses.
            let failed =
                unsafe { cringle_submit(engine, ops.as_ptr(), count, results.as_mut_ptr()) };
            let elapsed = started.elapsed();
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
            Ok(elapsed)
        })
    });
    if cringle_close(engine) != 0 {
        return Err(last_error());
    }
    results
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
