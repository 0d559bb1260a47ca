//! `cringle sim`: random programs in the simulation, seed after seed, until one fails or all have
//! passed.

mod hunt;
mod tell;

use crate::cli::SimArgs;
use cringle_report::failure::Failure;
use hunt::Hunt;

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    args.validate()?;
    cringle_report::file::check("--json", args.json.as_deref())?;
    let found = Hunt::over(args);
    tell::tell(&found, args.json.as_deref())?;
    match found.failure {
        None => Ok(()),
        Some(failure) => Err(Failure::failed(format!(
            "{failure}\n  to replay it: cringle sim --seeds 1 --start {}",
            failure.seed
        ))),
    }
}
