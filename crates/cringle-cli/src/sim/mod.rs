//! `cringle sim`: runs random programs in the simulation, one for each seed, until one fails or all
//! have passed.

mod report;
mod seeds;

use crate::cli::SimArgs;
use cringle_report::failure::Failure;
use seeds::SeedRun;

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    args.validate()?;
    let summary = SeedRun::over(args);
    report::write(&summary, args.json.as_deref())?;
    match summary.failure {
        None => Ok(()),
        Some(failure) => {
            let workers = args.workers.map_or_else(String::new, |n| format!(" --workers {n}"));
            Err(Failure::failed(format!(
                "{failure}\n  to replay it: cringle sim --seeds 1 --start {}{workers}",
                failure.seed
            )))
        }
    }
}
