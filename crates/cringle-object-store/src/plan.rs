//! Decides which reads fetch the requested ranges: sorts the ranges, and merges neighbours into
//! reads. `read.rs` performs the reads in batches and hands slices of them to the ranges.

use std::ops::Range;

/// The reads that fetch a list of ranges.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The numbers of the ranges that are not empty, by their starts.
    pub(crate) order: Vec<usize>,
    /// The reads, by their starts. They do not overlap.
    pub(crate) fetches: Vec<Fetch>,
}

/// A part of the file that is read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) range: Range<u64>,
    /// The ranges that lie within, as a range of [`Plan::order`].
    pub(crate) members: Range<usize>,
    /// Whether some of the bytes belong to no range.
    pub(crate) has_gaps: bool,
}

impl Plan {
    /// Merges ranges that overlap, touch, or have at most `gap` bytes between them. A read does not
    /// become longer than `longest` by ranges that it does not overlap.
    pub(crate) fn new(ranges: &[Range<u64>], gap: u64, longest: u64) -> Plan {
        let mut order: Vec<usize> = (0..ranges.len()).filter(|&n| !ranges[n].is_empty()).collect();
        order.sort_unstable_by_key(|&n| ranges[n].start);
        let mut fetches: Vec<Fetch> = Vec::with_capacity(order.len());
        for (at, range) in order.iter().map(|&n| ranges[n].clone()).enumerate() {
            if let Some(last) = fetches.last_mut()
                && last.takes(&range, gap, longest)
            {
                last.has_gaps |= range.start > last.range.end;
                last.range.end = last.range.end.max(range.end);
                last.members.end = at + 1;
            } else {
                fetches.push(Fetch { range, members: at..at + 1, has_gaps: false });
            }
        }
        Plan { order, fetches }
    }
}

impl Fetch {
    fn takes(&self, next: &Range<u64>, gap: u64, longest: u64) -> bool {
        // The next range starts at or behind the start of this read.
        match next.start.checked_sub(self.range.end) {
            None => true,
            Some(distance) => distance <= gap && next.end - self.range.start <= longest,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reads(ranges: &[Range<u64>], gap: u64, longest: u64) -> Vec<(Range<u64>, bool)> {
        let plan = Plan::new(ranges, gap, longest);
        plan.fetches.into_iter().map(|fetch| (fetch.range, fetch.has_gaps)).collect()
    }

    #[test]
    fn neighbours_are_merged_within_the_limits() {
        assert_eq!(reads(&[], 8, 100), []);
        assert_eq!(reads(&[5..5, 7..7], 8, 100), []);
        assert_eq!(reads(&[20..30, 0..10], 9, 100), [(0..10, false), (20..30, false)]);
        assert_eq!(reads(&[20..30, 0..10], 10, 100), [(0..30, true)]);
        assert_eq!(reads(&[20..30, 0..10], 10, 29), [(0..10, false), (20..30, false)]);
        assert_eq!(reads(&[0..10, 10..20], 0, 20), [(0..20, false)]);
        assert_eq!(reads(&[0..10, 9..20], 0, 10), [(0..20, false)]);
        assert_eq!(reads(&[0..30, 5..10, 30..31], 0, 100), [(0..31, false)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn every_range_lies_within_one_read(
            spans in prop::collection::vec((0u64..1000, 0u64..50), 0..40),
            gap in 0u64..40,
            longest in 1u64..200,
        ) {
            let ranges: Vec<_> = spans.iter().map(|&(start, len)| start..start + len).collect();
            let plan = Plan::new(&ranges, gap, longest);
            let mut covered = 0;
            for fetch in &plan.fetches {
                let members = &plan.order[fetch.members.clone()];
                covered += members.len();
                let (start, end) = (fetch.range.start, fetch.range.end);
                let within = |&n: &usize| start <= ranges[n].start && ranges[n].end <= end;
                prop_assert!(members.iter().all(within));
                let wanted = |byte| members.iter().any(|&n| ranges[n].contains(&byte));
                prop_assert_eq!(fetch.has_gaps, !fetch.range.clone().all(wanted));
            }
            prop_assert_eq!(covered, ranges.iter().filter(|range| !range.is_empty()).count());
            let apart = |pair: &[Fetch]| pair[0].range.end <= pair[1].range.start;
            prop_assert!(plan.fetches.windows(2).all(apart));
        }
    }
}
