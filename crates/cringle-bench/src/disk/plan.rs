//! What is read (or written), in which order, and what must come out.
//!
//! A [`Plan`] is made once from the seed, before any clock runs, and every strategy works it
//! off: same offsets, same order of issue. With each access goes the checksum term that a
//! correct read of it gives; so each run is checked against the plan and not only against
//! its neighbours, also when it was cut short by a time limit.
//!
//! The checksum of a run is the wrapping sum, over its accesses, of the first eight bytes of
//! the block mixed with the place they belong to. The sum does not depend on the order in
//! which completions arrive; the mixing catches a block that was delivered for another.

use crate::content::{self, Rng};

/// One transfer of `block` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub offset: u64,
    pub file: u32,
    pub write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Direction {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Half of each, mixed.
    RandRw,
}

impl Direction {
    pub fn writes(self) -> bool {
        self != Direction::Read
    }

    /// What the operations are called in a sentence.
    pub fn gerund(self) -> &'static str {
        match self {
            Direction::Read => "reading",
            Direction::Write => "writing",
            Direction::RandRw => "reading and writing",
        }
    }

    pub fn noun(self) -> &'static str {
        match self {
            Direction::Read => "reads",
            Direction::Write => "writes",
            Direction::RandRw => "reads and writes",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Random,
    Sequential,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// After the whole plan.
    Ops(usize),
    /// After this time; the plan is repeated as often as it takes.
    Seconds(f64),
}

/// Of a run that is limited by time, as many accesses are planned; then they repeat.
const CYCLE: usize = 1 << 18;

pub struct Shape {
    pub order: Order,
    pub direction: Direction,
    pub block: usize,
    pub files: usize,
    pub file_bytes: u64,
    pub limit: Limit,
    pub seed: u64,
}

pub struct Plan {
    pub accesses: Vec<Access>,
    /// For each access the checksum term of a correct transfer.
    expected: Vec<u64>,
    pub block: usize,
    pub limit: Limit,
}

impl Plan {
    pub fn new(shape: &Shape) -> Plan {
        let blocks_per_file = shape.file_bytes / shape.block as u64;
        assert!(blocks_per_file > 0 && shape.files > 0, "a plan needs at least one block");
        let blocks = blocks_per_file * shape.files as u64;
        let len = match shape.limit {
            Limit::Ops(ops) => ops,
            Limit::Seconds(_) => CYCLE.min(usize::try_from(blocks).unwrap_or(CYCLE)),
        };
        let mut rng = Rng::new(shape.seed);
        let accesses = (0..len as u64)
            .map(|i| {
                let block = match shape.order {
                    Order::Random => rng.below(blocks),
                    Order::Sequential => i % blocks,
                };
                Access {
                    offset: block % blocks_per_file * shape.block as u64,
                    file: (block / blocks_per_file) as u32,
                    write: match shape.direction {
                        Direction::Read => false,
                        Direction::Write => true,
                        Direction::RandRw => rng.below(2) == 1,
                    },
                }
            })
            .collect();
        Plan { accesses, expected: Vec::new(), block: shape.block, limit: shape.limit }
    }

    /// Says what the first eight bytes at each place are: asked once for each access.
    pub fn expect(&mut self, mut word_at: impl FnMut(&Access) -> u64) {
        self.expected = self.accesses.iter().map(|a| term(word_at(a), a)).collect();
    }

    /// The accesses of one of `slots` lanes within one of `threads` shares.
    ///
    /// The shares are contiguous, so that threads that read a file in sequence each have a
    /// stretch of their own; the lanes of one share take turns, so that many reads in flight
    /// are neighbours.
    pub fn lane(&self, thread: usize, threads: usize, slot: usize, slots: usize) -> Lane {
        let len = self.accesses.len();
        let start = len * thread / threads;
        let end = len * (thread + 1) / threads;
        let first = (start + slot).min(end);
        let repeats = matches!(self.limit, Limit::Seconds(_));
        Lane { first, next: first, stride: slots, end, repeats }
    }

    /// The checksum that the first `ops` accesses of a lane must give.
    pub fn checksum(&self, lane: &Lane, ops: u64) -> u64 {
        let indices = lane.clone().take(usize::try_from(ops).unwrap_or(usize::MAX));
        indices.fold(0, |sum, index| sum.wrapping_add(self.expected[index]))
    }
}

/// The indices into a plan that one loop works off, in order.
#[derive(Clone, Debug)]
pub struct Lane {
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

/// What one transfer adds to the checksum.
#[inline]
pub(super) fn term(word: u64, access: &Access) -> u64 {
    let place = (access.offset ^ u64::from(access.file).rotate_right(16))
        .wrapping_mul(content::GOLDEN)
        .rotate_left(32);
    let mixed = (word ^ place).wrapping_mul(content::GOLDEN);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            order: Order::Random,
            direction: Direction::Read,
            block: 4096,
            files: 2,
            file_bytes: 1 << 20,
            limit: Limit::Ops(1000),
            seed: 7,
        }
    }

    fn filled(shape: &Shape) -> Plan {
        let mut plan = Plan::new(shape);
        plan.expect(|a| content::word(shape.seed, a.file, a.offset / 8));
        plan
    }

    #[test]
    fn the_same_seed_gives_the_same_accesses() {
        assert_eq!(Plan::new(&shape()).accesses, Plan::new(&shape()).accesses);
        let other = Plan::new(&Shape { seed: 8, ..shape() });
        assert_ne!(Plan::new(&shape()).accesses, other.accesses);
    }

    #[test]
    fn accesses_are_aligned_and_inside_and_use_every_file() {
        let plan = Plan::new(&shape());
        assert_eq!(plan.accesses.len(), 1000);
        for access in &plan.accesses {
            assert_eq!(access.offset % 4096, 0);
            assert!(access.offset + 4096 <= 1 << 20);
            assert!(access.file < 2 && !access.write);
        }
        assert!(plan.accesses.iter().any(|a| a.file == 0));
        assert!(plan.accesses.iter().any(|a| a.file == 1));
    }

    #[test]
    fn any_split_into_lanes_covers_the_plan_once() {
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
    fn more_lanes_than_accesses_leave_some_empty() {
        let plan = Plan::new(&Shape { limit: Limit::Ops(3), ..shape() });
        let lanes = (0..8).map(|slot| plan.lane(0, 1, slot, 8).count());
        assert_eq!(lanes.sum::<usize>(), 3);
    }

    #[test]
    fn a_plan_limited_by_time_repeats_itself() {
        let plan = filled(&Shape { limit: Limit::Seconds(1.0), ..shape() });
        let len = plan.accesses.len() as u64;
        assert_eq!(len, 512, "one access for each block");
        let lane = plan.lane(0, 1, 0, 1);
        let once = plan.checksum(&lane, len);
        assert_eq!(plan.checksum(&lane, 2 * len), once.wrapping_mul(2));
        assert!(plan.lane(0, 1, 600, 601).next().is_none(), "an empty lane ends at once");
    }

    #[test]
    fn a_sequential_plan_walks_the_files() {
        let plan = Plan::new(&Shape { order: Order::Sequential, ..shape() });
        assert_eq!(plan.accesses[1], Access { offset: 4096, file: 0, write: false });
        assert_eq!(plan.accesses[256], Access { offset: 0, file: 1, write: false });
    }

    #[test]
    fn the_checksum_tells_a_swapped_block() {
        let [a, b] = [0, 4096].map(|offset| Access { offset, file: 0, write: false });
        let [x, y] = [11, 22];
        let right = term(x, &a).wrapping_add(term(y, &b));
        let swapped = term(y, &a).wrapping_add(term(x, &b));
        assert_ne!(right, swapped);
        assert_ne!(term(x, &a), term(x, &Access { file: 1, ..a }));
    }

    #[test]
    fn randrw_is_half_and_half() {
        let plan = Plan::new(&Shape { direction: Direction::RandRw, ..shape() });
        let writes = plan.accesses.iter().filter(|a| a.write).count();
        assert!((400..600).contains(&writes), "{writes} of 1000");
    }
}
