//! The report of all runs.

use crate::job::{Outcome, Task};
use common::stats::Samples;
use common::table;
use serde::Serialize;
use std::collections::BTreeMap;

/// All runs of all engines.
#[derive(Serialize)]
pub(crate) struct Results {
    task: Task,
    /// Rounds that began while the machine was not idle.
    pub(crate) busy_rounds: usize,
    pub(crate) engines: Vec<Runs>,
}

/// The runs of one engine, one for each round.
#[derive(Serialize)]
pub(crate) struct Runs {
    pub(crate) name: String,
    pub(crate) runs: Vec<Outcome>,
}

impl Runs {
    fn of(&self, figure: impl Fn(&Outcome) -> f64) -> Samples {
        Samples(self.runs.iter().map(figure).collect())
    }
}

impl Results {
    pub(crate) fn new(task: &Task, names: Vec<String>) -> Results {
        let runs = |name| Runs { name, runs: Vec::new() };
        let engines = names.into_iter().map(runs).collect();
        Results { task: task.clone(), busy_rounds: 0, engines }
    }

    /// Fails if two runs with the same number of reads have different checksums.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut sums = BTreeMap::new();
        for run in self.engines.iter().flat_map(|runs| &runs.runs) {
            if *sums.entry(run.operations).or_insert(run.checksum) != run.checksum {
                return Err("the engines' checksums differ: they read different blocks".to_owned());
            }
        }
        Ok(())
    }

    pub(crate) fn print(&self, base: &str) {
        let Task { direct, block, depth, operations, .. } = self.task;
        let how = if direct { "O_DIRECT" } else { "page cache" };
        println!("{operations} reads of {block} bytes, {how}, queue depth {depth}");
        if self.busy_rounds > 0 {
            println!("(the machine was not idle in {} rounds)", self.busy_rounds);
        }
        println!();
        let base_runs = self.engines.iter().find(|runs| runs.name == base);
        let against = |runs: &Runs, figure: fn(&Outcome) -> f64| {
            let ratio = base_runs.map(|base| runs.of(figure).over(&base.of(figure)).median());
            ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"))
        };
        let row = |runs: &Runs| {
            let iops = runs.of(|run| run.iops);
            let thousands = |value: f64| format!("{:.1}", value / 1e3);
            vec![
                runs.name.clone(),
                thousands(iops.median()),
                format!("{} – {}", thousands(iops.min()), thousands(iops.max())),
                against(runs, |run| run.iops),
                format!("{:.2}", runs.of(Outcome::cpu_us_per_op).median()),
                against(runs, Outcome::cpu_us_per_op),
                format!("{:.2}", runs.of(|run| run.user_us_per_op).median()),
                format!("{:.2}", runs.of(|run| run.system_us_per_op).median()),
                format!("{:.3}", runs.of(|run| run.context_switches_per_op).median()),
            ]
        };
        let rows: Vec<_> = self.engines.iter().map(row).collect();
        let over = format!("/ {base}");
        let head = [
            "engine",
            "kIOPS",
            "range",
            &over,
            "CPU us/op",
            &over,
            "user",
            "system",
            "switches/op",
        ];
        table::print(&head, &rows);
    }
}
