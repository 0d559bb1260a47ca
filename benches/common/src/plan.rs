//! The plan of reads: which blocks are read, and by which task.

/// Draws `count` block-aligned offsets in a file of `size` bytes; the seed determines them.
pub fn offsets(seed: u64, count: usize, size: u64, block: u64) -> Vec<u64> {
    let blocks = size / block;
    assert!(blocks > 0, "the file holds no block of {block} bytes");
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| rng.u64(..blocks) * block).collect()
}

/// Returns the part of `all` that task `index` of `count` reads: every `count`th offset. All tasks
/// together walk through `all` once, as a loop without tasks does. If each walked through a
/// contiguous part, they would miss the cache more often than the loop.
#[inline]
pub fn share(all: &[u64], index: usize, count: usize) -> impl Iterator<Item = u64> {
    all[index.min(all.len())..].iter().copied().step_by(count)
}

/// Returns the first eight bytes of a block. Their sum over all reads is a checksum that does not
/// depend on the order of the reads.
#[inline]
pub fn head(block: &[u8]) -> u64 {
    u64::from_ne_bytes(block[..8].try_into().expect("blocks are eight bytes at least"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_each_offset_once() {
        let all = offsets(1, 1003, 1 << 20, 64);
        let mut shares: Vec<_> = (0..32).map(|index| share(&all, index, 32)).collect();
        let joined: Vec<u64> = (0..all.len()).filter_map(|turn| shares[turn % 32].next()).collect();
        assert_eq!(joined, all);
        assert!(shares.iter_mut().all(|share| share.next().is_none()));
        assert!(all.iter().all(|offset| offset % 64 == 0 && *offset < 1 << 20));
    }
}
