//! The results of reads, writes and seeks of one file under the rules.

use super::{Change, MARK, Op, State};

const PAGE: usize = 4096;

/// Returns the bytes of a read, or its failure.
pub(super) fn read(
    state: &mut State,
    number: u64,
    offset: u64,
    size: usize,
) -> Result<Vec<u8>, i32> {
    let victim = state.nodes.get(&number).ok_or(libc::ENOENT)?.victim;
    let rules = state.rules.clone();
    let mut size = size;
    let mut before = None;
    if victim {
        let barrier = state.barrier(Op::Read);
        if rules.direct && offset < barrier {
            size = size.min(usize::try_from(barrier - offset).unwrap_or(usize::MAX));
        } else if let Some(errno) = state.fails(Op::Read, number, offset + size as u64) {
            return Err(errno);
        }
        if rules.longest_read > 0 {
            size = size.min(rules.longest_read);
        }
        if let Some(Change { at, length, for_one_read }) = rules.change
            && offset + size as u64 > at
        {
            let node = state.nodes.get_mut(&number).ok_or(libc::ENOENT)?;
            before = for_one_read.then(|| node.bytes.clone());
            node.bytes.resize(length, b'+');
            state.rules.change = None;
        }
    }
    let node = state.nodes.get_mut(&number).ok_or(libc::ENOENT)?;
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(node.bytes.len());
    let to = from.saturating_add(size).min(node.bytes.len());
    let bytes = node.bytes[from..to].to_vec();
    if let Some(before) = before {
        node.bytes = before;
    }
    Ok(bytes)
}

/// Stores the bytes of a write; returns their number.
pub(super) fn write(
    state: &mut State,
    number: u64,
    offset: u64,
    data: &[u8],
) -> Result<usize, i32> {
    let node = state.nodes.get(&number).ok_or(libc::ENOENT)?;
    let rules = state.rules.clone();
    let mut size = data.len();
    let mut spoils = false;
    if node.victim {
        let barrier = state.barrier(Op::Write);
        if rules.direct && offset < barrier {
            size = size.min(usize::try_from(barrier - offset).unwrap_or(usize::MAX));
        } else if let Some(errno) = state.fails(Op::Write, number, offset + size as u64) {
            return Err(errno);
        }
        if fails_at_random(state, data) {
            return Err(libc::EIO);
        }
        if rules.longest_write > 0 {
            size = size.min(rules.longest_write);
        }
        if rules.full_at.is_some_and(|at| offset + size as u64 > at) {
            return Ok(0);
        }
        spoils = rules.spoils;
    }
    let node = state.nodes.get_mut(&number).ok_or(libc::ENOENT)?;
    let from = usize::try_from(offset).map_err(|_| libc::EFBIG)?;
    node.unsynced = true;
    if node.bytes.len() < from + size {
        node.bytes.resize(from + size, 0);
    }
    node.bytes[from..from + size].copy_from_slice(&data[..size]);
    if spoils {
        node.bytes[from] ^= 1;
    }
    Ok(size)
}

/// Draws whether a write fails because its data is marked, and records it.
fn fails_at_random(state: &mut State, data: &[u8]) -> bool {
    let percent = state.rules.marked_failures;
    let is_marked = || data.windows(MARK.len()).any(|bytes| bytes == MARK);
    let fails = percent > 0 && is_marked() && state.random.u32(..100) < percent;
    if fails {
        state.fired.push(Op::Write);
    }
    fails
}

/// Returns the offset of the next data or hole, in whole pages.
pub(super) fn seek(state: &State, number: u64, offset: u64, whence: i32) -> Result<u64, i32> {
    let node = state.nodes.get(&number).ok_or(libc::ENOENT)?;
    let length = node.bytes.len() as u64;
    if offset >= length {
        return Err(libc::ENXIO);
    }
    if whence == libc::SEEK_HOLE
        && node.victim
        && let Some(at) = state.rules.seek_lies
    {
        return Ok(at.min(offset));
    }
    let pages = node.bytes.chunks(PAGE).enumerate().skip(offset as usize / PAGE);
    let mut found =
        pages.filter(|(_, page)| (whence == libc::SEEK_HOLE) == page.iter().all(|&byte| byte == 0));
    match found.next() {
        Some((page, _)) => Ok(((page * PAGE) as u64).max(offset)),
        None if whence == libc::SEEK_HOLE => Ok(length),
        None => Err(libc::ENXIO),
    }
}
