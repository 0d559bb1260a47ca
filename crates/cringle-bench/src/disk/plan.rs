//! The accesses of a run, their order, and the checksum that they must give.
//!
//! A [`Plan`] is made once from the seed, before any clock runs. Every strategy performs the same
//! accesses and issues them in the same order. The plan holds the checksum term that a correct read
//! of each access gives, so that each run is checked against the plan and not only against other
//! runs, even if a time limit cuts it short.
//!
//! The checksum of a run is the wrapping sum, over its accesses, of the first eight bytes of the
//! block mixed with the position of the block. The sum does not depend on the order of completions,
//! and the mixing detects a block that was delivered in place of another.

use crate::content;

/// One transfer of `block` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(super) offset: u64,
    pub(super) write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Direction {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
}

impl Direction {
    pub(super) fn writes(self) -> bool {
        self != Direction::Read
    }

    pub(super) fn gerund(self) -> &'static str {
        match self {
            Direction::Read => "reading",
            Direction::Write => "writing",
        }
    }

    pub(super) fn noun(self) -> &'static str {
        match self {
            Direction::Read => "reads",
            Direction::Write => "writes",
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// After the whole plan.
    Ops(usize),
    /// After this time. The plan is repeated as often as necessary.
    Seconds(f64),
}

/// The most accesses that are planned for a run limited by time, before they repeat.
const CYCLE: usize = 1 << 18;

pub(super) struct Shape {
    pub(super) direction: Direction,
    pub(super) block: usize,
    pub(super) file_bytes: u64,
    pub(super) limit: Limit,
    pub(super) seed: u64,
}

pub(super) struct Plan {
    pub(super) accesses: Vec<Access>,
    /// The checksum term of a correct transfer, for each access.
    expected: Vec<u64>,
    pub(super) block: usize,
    pub(super) limit: Limit,
}

impl Plan {
    pub(super) fn new(shape: &Shape) -> Plan {
        let blocks = shape.file_bytes / shape.block as u64;
        assert!(blocks > 0, "a plan needs at least one block");
        let len = match shape.limit {
            Limit::Ops(ops) => ops,
            Limit::Seconds(_) => CYCLE.min(usize::try_from(blocks).unwrap_or(CYCLE)),
        };
        let mut rng = content::random(shape.seed);
        let mut access = |_| {
            let offset = rng.below(blocks) * shape.block as u64;
            Access { offset, write: shape.direction.writes() }
        };
        let accesses = (0..len).map(&mut access).collect();
        Plan { accesses, expected: Vec::new(), block: shape.block, limit: shape.limit }
    }

    /// Sets the first eight bytes of each block; calls `word_at` once for each access, in order.
    pub(super) fn expect(&mut self, mut word_at: impl FnMut(&Access) -> u64) {
        self.expected = self.accesses.iter().map(|a| term(word_at(a), a)).collect();
    }

    /// Returns lane `slot` of `slots` in the part of thread `thread` of `threads`.
    ///
    /// The part of a thread is contiguous, and the lanes of a thread interleave.
    pub(super) fn lane(&self, thread: usize, threads: usize, slot: usize, slots: usize) -> Lane {
        let len = self.accesses.len();
        let start = len * thread / threads;
        let end = len * (thread + 1) / threads;
        let first = (start + slot).min(end);
        let repeats = matches!(self.limit, Limit::Seconds(_));
        Lane { first, next: first, stride: slots, end, repeats }
    }

    /// Returns the checksum that the first `ops` accesses of a lane must give.
    pub(super) fn checksum(&self, lane: &Lane, ops: u64) -> u64 {
        let indices = lane.clone().take(usize::try_from(ops).unwrap_or(usize::MAX));
        indices.fold(0, |sum, index| sum.wrapping_add(self.expected[index]))
    }
}

/// The indices of the accesses that one loop performs, in order.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    first: usize,
    next: usize,
    stride: usize,
    end: usize,
    repeats: bool,
}

impl Iterator for Lane {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.next >= self.end {
            if !self.repeats || self.first >= self.end {
                return None;
            }
            self.next = self.first;
        }
        let index = self.next;
        self.next += self.stride;
        Some(index)
    }
}

/// Returns the checksum term of a transfer whose block begins with `word`.
#[inline]
pub(super) fn term(word: u64, access: &Access) -> u64 {
    let position = access.offset.wrapping_mul(content::GOLDEN).rotate_left(32);
    let mixed = (word ^ position).wrapping_mul(content::GOLDEN);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            direction: Direction::Read,
            block: 4096,
            file_bytes: 2 << 20,
            limit: Limit::Ops(1000),
            seed: 7,
        }
    }

    fn filled(shape: &Shape) -> Plan {
        let mut plan = Plan::new(shape);
        plan.expect(|a| content::word(shape.seed, 0, a.offset / 8));
        plan
    }

    #[test]
    fn the_seed_determines_the_accesses() {
        assert_eq!(Plan::new(&shape()).accesses, Plan::new(&shape()).accesses);
        let other = Plan::new(&Shape { seed: 8, ..shape() });
        assert_ne!(Plan::new(&shape()).accesses, other.accesses);
    }

    #[test]
    fn accesses_are_aligned_and_inside_the_file() {
        let plan = Plan::new(&shape());
        assert_eq!(plan.accesses.len(), 1000);
        for access in &plan.accesses {
            assert_eq!(access.offset % 4096, 0);
            assert!(access.offset + 4096 <= 2 << 20 && !access.write);
        }
    }

    #[test]
    fn lanes_cover_the_plan_once() {
        let plan = filled(&shape());
        let whole = plan.checksum(&plan.lane(0, 1, 0, 1), u64::MAX);
        for (threads, slots) in [(1, 1), (1, 32), (2, 32), (3, 7), (1, 128), (7, 1)] {
            let mut seen = vec![0u32; plan.accesses.len()];
            let mut sum = 0u64;
            for thread in 0..threads {
                for slot in 0..slots {
                    let lane = plan.lane(thread, threads, slot, slots);
                    lane.clone().for_each(|index| seen[index] += 1);
                    sum = sum.wrapping_add(plan.checksum(&lane, u64::MAX));
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{threads} threads, {slots} slots");
            assert_eq!(sum, whole, "{threads} threads, {slots} slots");
        }
    }

    #[test]
    fn surplus_lanes_are_empty() {
        let plan = Plan::new(&Shape { limit: Limit::Ops(3), ..shape() });
        let lanes = (0..8).map(|slot| plan.lane(0, 1, slot, 8).count());
        assert_eq!(lanes.sum::<usize>(), 3);
    }

    #[test]
    fn a_plan_limited_by_time_repeats() {
        let plan = filled(&Shape { limit: Limit::Seconds(1.0), ..shape() });
        let len = plan.accesses.len() as u64;
        assert_eq!(len, 512, "one access for each block");
        let lane = plan.lane(0, 1, 0, 1);
        let once = plan.checksum(&lane, len);
        assert_eq!(plan.checksum(&lane, 2 * len), once.wrapping_mul(2));
        assert!(plan.lane(0, 1, 600, 601).next().is_none(), "an empty lane ends at once");
    }

    #[test]
    fn the_checksum_detects_swapped_blocks() {
        let [a, b] = [0, 4096].map(|offset| Access { offset, write: false });
        let [x, y] = [11, 22];
        let right = term(x, &a).wrapping_add(term(y, &b));
        let swapped = term(y, &a).wrapping_add(term(x, &b));
        assert_ne!(right, swapped);
    }
}
