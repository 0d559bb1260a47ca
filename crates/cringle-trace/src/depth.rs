//! A figure over time, in so many columns whatever the time is: when they do not suffice, two become one.

/// Columns in which it is kept, at most.
const COLUMNS: usize = 128;
/// Nanoseconds of a column, at first.
const FIRST_WIDTH: u64 = 1 << 10;

#[derive(Clone, Default)]
struct Column {
    /// The value times the nanoseconds for which it had it.
    area: f64,
    most: i64,
}

/// See the module.
pub(super) struct Depth {
    columns: Vec<Column>,
    width: u64,
    /// When it was first told.
    start: Option<u64>,
    last: u64,
    value: i64,
}

impl Depth {
    pub(super) fn new() -> Depth {
        Depth { columns: Vec::new(), width: FIRST_WIDTH, start: None, last: 0, value: 0 }
    }

    fn start(&self) -> u64 {
        self.start.unwrap_or(self.last)
    }

    /// From then on it is this.
    pub(super) fn set(&mut self, ns: u64, value: i64) {
        if self.start.is_none() {
            (self.start, self.last) = (Some(ns), ns);
        }
        self.advance(ns);
        self.value = value;
        let column = self.column(self.last);
        column.most = column.most.max(value);
    }

    /// It was until then what it was set to last.
    pub(super) fn advance(&mut self, ns: u64) {
        let Some(start) = self.start else { return };
        while self.last < ns {
            let value = self.value;
            while ((ns - start) / self.width) as usize >= COLUMNS {
                self.halve();
            }
            let end = start + ((self.last - start) / self.width + 1) * self.width;
            let until = end.min(ns);
            let took = (until - self.last) as f64;
            let column = self.column(self.last);
            column.area += value as f64 * took;
            column.most = column.most.max(value);
            self.last = until;
        }
    }

    fn column(&mut self, ns: u64) -> &mut Column {
        let since = ns - self.start();
        while (since / self.width) as usize >= COLUMNS {
            self.halve();
        }
        let index = (since / self.width) as usize;
        if index >= self.columns.len() {
            self.columns.resize(index + 1, Column::default());
        }
        &mut self.columns[index]
    }

    fn halve(&mut self) {
        let pairs = self.columns.chunks(2).map(|pair| Column {
            area: pair.iter().map(|column| column.area).sum(),
            most: pair.iter().map(|column| column.most).max().unwrap_or(0),
        });
        self.columns = pairs.collect();
        self.width *= 2;
    }

    pub(super) fn most(&self) -> i64 {
        self.columns.iter().map(|column| column.most).max().unwrap_or(0)
    }

    /// The mean since it was first told.
    pub(super) fn mean(&self) -> f64 {
        let area: f64 = self.columns.iter().map(|column| column.area).sum();
        // A sum of nothing is −0.
        area / (self.last - self.start()).max(1) as f64 + 0.0
    }

    /// The means of so many equal parts of the time from one moment to another.
    pub(super) fn means(&self, parts: usize, from: u64, to: u64) -> Vec<f64> {
        let span = to.saturating_sub(from).max(1) as f64 / parts as f64;
        let first = from as f64 - self.start() as f64;
        let edge = |part: usize| (first + part as f64 * span).max(0.0);
        (0..parts).map(|part| self.area(edge(part), edge(part + 1)) / span).collect()
    }

    /// The area between two times since the start; within a column it is even, and the last one ends with
    /// what is known.
    fn area(&self, from: f64, to: f64) -> f64 {
        let (width, known) = (self.width as f64, (self.last - self.start()) as f64);
        let overlap = |index: usize| {
            let start = index as f64 * width;
            let width = width.min(known - start).max(1.0);
            (to.min(start + width) - from.max(start)).max(0.0) / width
        };
        let first = (from / width) as usize;
        let columns = self.columns.iter().enumerate().skip(first);
        columns
            .take_while(|(index, _)| *index as f64 * width < to)
            .map(|(index, column)| column.area * overlap(index))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_kept_however_long_it_takes() {
        let mut depth = Depth::new();
        for n in 0..10_000 {
            depth.set(1_000 + n * 1_000_000, (n % 2 * 10) as i64);
        }
        depth.advance(1_000 + 10_000 * 1_000_000);
        assert_eq!(depth.most(), 10);
        assert!((depth.mean() - 5.0).abs() < 1e-6, "{}", depth.mean());
        let means = depth.means(7, 1_000, 1_000 + 10_000 * 1_000_000);
        assert!(means.iter().all(|mean| (mean - 5.0).abs() < 0.05), "{means:?}");
    }

    #[test]
    fn before_it_was_told_it_is_nothing() {
        let mut depth = Depth::new();
        depth.set(500_000, 8);
        depth.advance(1_000_000);
        let means = depth.means(4, 0, 1_000_000);
        assert_eq!(means[..2], [0.0, 0.0]);
        assert!(means[2..].iter().all(|mean| (mean - 8.0).abs() < 0.1), "{means:?}");
        assert!((depth.mean() - 8.0).abs() < 0.1);
    }

    #[test]
    fn each_part_has_its_own_mean() {
        let mut depth = Depth::new();
        depth.set(0, 4);
        depth.set(500_000, 8);
        depth.advance(1_000_000);
        let means = depth.means(2, 0, 1_000_000);
        assert!((means[0] - 4.0).abs() < 0.1 && (means[1] - 8.0).abs() < 0.1, "{means:?}");
    }
}
