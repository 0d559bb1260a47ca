//! The content of test files: each 8-byte word is a hash of its position.
//!
//! The hash is a bijection, so no two blocks are equal (a device that compresses or deduplicates
//! gains nothing), and a read is checked without reading the block a second time.

use cringle::sim::Rng;

pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of SplitMix64, a bijection (Steele, Lea and Flood, 2014).
#[inline]
pub(crate) fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns the 8-byte word with this index in a file.
#[inline]
pub(crate) fn word(seed: u64, file: u32, index: u64) -> u64 {
    let start = scramble(seed ^ scramble(u64::from(file) + 1));
    scramble(start.wrapping_add(index.wrapping_mul(GOLDEN)))
}

/// Fills `block` with the file's content at `offset`, a multiple of 8.
pub(crate) fn fill(block: &mut [u8], seed: u64, file: u32, offset: u64) {
    let mut index = offset / 8;
    let (words, rest) = block.as_chunks_mut();
    for bytes in words {
        *bytes = word(seed, file, index).to_le_bytes();
        index += 1;
    }
    rest.copy_from_slice(&word(seed, file, index).to_le_bytes()[..rest.len()]);
}

/// Returns the first word of a block.
#[inline]
pub(crate) fn head(block: &[u8]) -> u64 {
    match block.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Prepares a block to be written: `first` is the word that reads of the same run expect, and the
/// second word identifies the run.
#[inline]
pub(crate) fn stamp(block: &mut [u8], first: u64, generation: u64) {
    if let Some(bytes) = block.first_chunk_mut() {
        *bytes = first.to_le_bytes();
    }
    if let Some(bytes) = block.get_mut(8..16) {
        bytes.copy_from_slice(&generation.to_le_bytes());
    }
}

/// Returns the run that wrote the block, as recorded by [`stamp`].
pub(crate) fn generation(block: &[u8]) -> u64 {
    block.get(8..).map_or(0, head)
}

/// Returns the random numbers of a seed. Those of neighbouring seeds have nothing in common.
pub(crate) fn random(seed: u64) -> Rng {
    Rng::new(scramble(seed ^ GOLDEN))
}

/// Returns a permutation of `0..len` (Fisher and Yates).
pub(crate) fn permutation(len: u64, mut rng: Rng) -> Vec<u64> {
    let mut all: Vec<u64> = (0..len).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, rng.below(i as u64 + 1) as usize);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn blocks_differ_and_follow_from_their_position() {
        let mut file = vec![0u8; 64 << 10];
        fill(&mut file, 1, 0, 0);
        let heads: HashSet<u64> = file.chunks(64).map(head).collect();
        assert_eq!(heads.len(), 1024);
        for (i, block) in file.chunks(64).enumerate() {
            assert_eq!(head(block), word(1, 0, i as u64 * 8));
        }
        assert_ne!(word(1, 0, 5), word(1, 1, 5));
        assert_ne!(word(1, 0, 5), word(2, 0, 5));
    }

    #[test]
    fn pieces_equal_parts_of_the_whole() {
        let mut whole = vec![0u8; 4096];
        fill(&mut whole, 3, 2, 8192);
        let mut piece = vec![0u8; 1024];
        fill(&mut piece, 3, 2, 8192 + 1024);
        assert_eq!(whole[1024..2048], piece);
    }

    #[test]
    fn a_stamp_has_the_first_word_and_the_run() {
        let mut block = vec![0u8; 64];
        stamp(&mut block, 42, 7);
        assert_eq!((head(&block), generation(&block)), (42, 7));
    }

    #[test]
    fn a_permutation_has_each_number_once() {
        let all = permutation(1000, random(1));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 1000);
        assert_ne!(all, (0..1000).collect::<Vec<_>>());
    }
}
