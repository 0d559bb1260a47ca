//! `cringle sim`: runs random programs in the simulation, one for each seed, until one fails or all
//! have passed.

mod report;
mod seeds;

use crate::cli::SimArgs;
use cringle::sim::Checker;
use cringle_report::failure::Failure;
use seeds::SeedRun;

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    args.validate()?;
    let summary = SeedRun::over(args);
    report::write(&summary, args.json.as_deref())?;
    match summary.failure {
        None => Ok(()),
        // It says nothing about the seed: the next run may find the threads or files.
        Some(failure) if failure.checker == Checker::Setup => Err(Failure::failed(format!(
            "this machine cannot run the simulation: {}; choose fewer --threads or --workers, or \
             raise the limit that refuses it: `ulimit -u` or pids.max of the control group \
             (threads), `ulimit -n` (files), `ulimit -v` (memory)",
            failure.message
        ))),
        Some(failure) => {
            let workers = args.workers.map_or_else(String::new, |n| format!(" --workers {n}"));
            Err(Failure::failed(format!(
                "{failure}\n  to replay it: cringle sim --seeds 1 --start {}{workers}",
                failure.seed
            )))
        }
    }
}
