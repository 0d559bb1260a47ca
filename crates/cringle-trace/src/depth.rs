//! A value over time in bounded memory: when a fixed number of columns is full, each pair of
//! columns is merged and the columns become twice as wide.

/// The largest number of columns.
const COLUMNS: usize = 128;
/// The width of a column at the start, in nanoseconds.
const FIRST_WIDTH: u64 = 1 << 10;

#[derive(Clone, Default)]
struct Column {
    /// The integral of the value over the column, in units of value times nanoseconds.
    area: f64,
    most: i64,
}

/// A step function of time, such as the number of operations in flight, with its mean and maximum.
pub(super) struct Depth {
    columns: Vec<Column>,
    width: u64,
    /// The time of the first value.
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

    /// Sets the value from `ns` on.
    pub(super) fn set(&mut self, ns: u64, value: i64) {
        if self.start.is_none() {
            (self.start, self.last) = (Some(ns), ns);
        }
        self.advance(ns);
        self.value = value;
        let column = self.column(self.last);
        column.most = column.most.max(value);
    }

    /// Extends the latest value until `ns`.
    pub(super) fn advance(&mut self, ns: u64) {
        let Some(start) = self.start else { return };
        while self.last < ns {
            let value = self.value;
            while ((ns - start) / self.width) as usize >= COLUMNS {
                self.halve();
            }
            let column = (self.last - start) / self.width;
            let end = (column + 1).saturating_mul(self.width).saturating_add(start);
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

    /// Merges each pair of columns into one of twice the width.
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

    /// Returns the mean since the first value.
    pub(super) fn mean(&self) -> f64 {
        let area: f64 = self.columns.iter().map(|column| column.area).sum();
        // The sum of an empty iterator is −0.0; adding 0.0 removes the sign.
        area / (self.last - self.start()).max(1) as f64 + 0.0
    }

    /// Divides the time from `from` to `to` into `parts` of equal length and returns the mean of
    /// each.
    pub(super) fn means(&self, parts: usize, from: u64, to: u64) -> Vec<f64> {
        let span = to.saturating_sub(from).max(1) as f64 / parts as f64;
        let first = from as f64 - self.start() as f64;
        let edge = |part: usize| (first + part as f64 * span).max(0.0);
        (0..parts).map(|part| self.area(edge(part), edge(part + 1)) / span).collect()
    }

    /// Returns the area between two times since the start. The area of a column is spread evenly
    /// over it; the last column ends at the latest known time.
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
    fn merging_columns_keeps_the_mean() {
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
    fn the_value_is_zero_before_the_first_set() {
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
