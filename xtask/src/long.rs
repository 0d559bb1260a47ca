//! `cargo xtask long`: runs the checks that take too long for every commit, one after the other,
//! and keeps the output of each. A job that fails does not stop the others.

use crate::Result;
use crate::checks::{Check, End, Outcome, Repository, Sink, by_path, clock, long};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask long --status               which jobs have passed on the present inputs
  cargo xtask long --due                  the other jobs, the shortest first
  cargo xtask long --due --hours 2        as many of them as end within two hours
  cargo xtask long --only sim,soak
  cargo xtask long                        every job
  cargo xtask long --list                 the jobs, and the command of each

.ci/passed has the inputs on which each job last passed: commit it. The output of each job is in
target/long. A job whose tools are missing is skipped. Status: 0 if no job failed, 1 if one did;
with --status, 1 if a job is due.")]
pub(crate) struct Args {
    /// Run only these jobs, in this order
    #[arg(long, value_name = "JOBS", value_delimiter = ',', conflicts_with = "due")]
    only: Vec<String>,

    /// Run the jobs that have not passed on the present inputs, the shortest first
    #[arg(long)]
    due: bool,

    /// Start no job that would end later than after this time
    #[arg(long, value_name = "N")]
    hours: Option<f64>,

    /// Print which jobs have passed on the present inputs, and run none
    #[arg(long)]
    status: bool,

    /// Print each job with its command, and run none
    #[arg(long)]
    list: bool,
}

/// No job may take longer: see CONTRIBUTING.md.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// A job, and how long it is expected to take.
#[derive(Clone, Copy)]
struct Job {
    check: &'static Check,
    seconds: u64,
}

/// Runs the chosen jobs. Returns whether none failed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut repository = Repository::here()?;
    let jobs = choose(&args.only)?;
    let mut jobs: Vec<Job> = jobs.into_iter().map(|check| job(&repository, check)).collect();
    if args.list {
        for Job { check, .. } in jobs {
            println!("{:<21} {}\n{:<21} {}", check.name, check.about, "", check.line());
        }
        return Ok(true);
    }
    if args.status {
        return status(&repository, &jobs);
    }
    if args.due {
        let inputs = repository.inputs()?;
        let mut due = Vec::new();
        for job in jobs {
            if !repository.has_passed(job.check, &inputs)? {
                due.push(job);
            }
        }
        jobs = due;
        jobs.sort_by_key(|job| job.seconds);
    }
    let hours = args.hours.map(|hours| Duration::try_from_secs_f64(hours * 3600.0)).transpose();
    let hours = hours.map_err(|error| format!("--hours: {error}"))?;
    run_all(&mut repository, &jobs, hours, Path::new("target/long"))
}

fn run_all(
    repository: &mut Repository,
    jobs: &[Job],
    bound: Option<Duration>,
    logs: &Path,
) -> Result<bool> {
    fs::create_dir_all(logs)?;
    let started = Instant::now();
    let (mut failed, mut left) = (Vec::new(), Vec::new());
    for job in jobs {
        let Check { name, about, .. } = *job.check;
        if !fits(job, started.elapsed(), bound) {
            left.push(name);
            continue;
        }
        println!("{name}: {about}\n    {}", job.check.line());
        if let Some(program) = job.check.lacks() {
            println!("{name}: SKIPPED: it needs {program}, which is not installed");
            continue;
        }
        let log = logs.join(format!("{name}.log"));
        // Here is time to install the compilers that the bindings need.
        let install = [("CRINGLE_BINDINGS", "install".to_owned())];
        let outcome = repository.run(job.check, &install, &Sink::File(&log), LIMIT);
        let log = log.display();
        match &outcome {
            Ok(outcome) => println!("{name}: {}", what(outcome, &log)),
            Err(error) => println!("{name}: FAILED: {error}; see {log}"),
        }
        if outcome.is_ok_and(|outcome| matches!(outcome.end, End::Passed | End::Skipped)) {
            continue;
        }
        failed.push(name);
    }
    if !left.is_empty() {
        println!("no time for: {}", left.join(", "));
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

/// What became of a job.
fn what(outcome: &Outcome, log: &impl std::fmt::Display) -> String {
    let took = clock(outcome.seconds);
    match outcome.end {
        End::Passed => format!("passed in {took}"),
        End::Skipped => format!("SKIPPED; what it lacks is in {log}"),
        End::Failed => format!("FAILED after {took}; see {log}"),
        End::TimedOut => format!("FAILED: no end after {took}; see {log}"),
    }
}

/// Whether a job that starts now ends in time.
fn fits(job: &Job, elapsed: Duration, bound: Option<Duration>) -> bool {
    bound.is_none_or(|bound| elapsed + Duration::from_secs(job.seconds) <= bound)
}

/// Prints a line for each job. Returns whether none is due.
fn status(repository: &Repository, jobs: &[Job]) -> Result<bool> {
    let inputs = repository.inputs()?;
    let (mut due, mut seconds) = (0, 0_u64);
    for job in jobs {
        let has_passed = repository.has_passed(job.check, &inputs)?;
        let known = repository.passed.seconds(job.check.name);
        let what = match (has_passed, known) {
            (true, _) => "passed",
            (false, Some(_)) => "due: passed on other inputs",
            (false, None) => "due: has not passed yet",
        };
        let took = clock(job.seconds) + if known.is_none() { " expected" } else { "" };
        println!("{:<21} {what:<28} {took:>16}", job.check.name);
        if !has_passed {
            due += 1;
            seconds = seconds.saturating_add(job.seconds);
        }
    }
    println!("{due} of {} jobs are due, about {} minutes", jobs.len(), seconds.div_ceil(60));
    Ok(due == 0)
}

/// The seconds that it took the last time, or as the table has them.
fn job(repository: &Repository, check: &'static Check) -> Job {
    let seconds = repository.passed.seconds(check.name).unwrap_or(60 * check.minutes);
    Job { check, seconds }
}

fn choose(only: &[String]) -> Result<Vec<&'static Check>> {
    let all = || by_path::CHECKS.iter().chain(long::CHECKS);
    if only.is_empty() {
        return Ok(all().collect());
    }
    let find = |name: &String| {
        let found = all().find(|check| check.name == name);
        found.ok_or_else(|| format!("no job is named '{name}'; --list prints the names").into())
    };
    only.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(seconds: u64) -> Job {
        Job { check: &Check::NONE, seconds }
    }

    #[test]
    fn no_job_starts_that_would_end_too_late() {
        let hour = Duration::from_secs(3600);
        let started = Duration::from_secs(3000);
        assert!(fits(&job(600), started, Some(hour)));
        assert!(!fits(&job(601), started, Some(hour)));
        assert!(fits(&job(1_000_000), started, None));
    }

    #[test]
    fn no_job_stops_the_others() {
        static CHECKS: [Check; 3] = [
            Check { name: "fails", command: "false", ..Check::NONE },
            // Its output has no file.
            Check { name: "no/folder", command: "true", ..Check::NONE },
            Check { name: "passes", command: "echo done", ..Check::NONE },
        ];
        let logs = tempfile::tempdir().unwrap();
        let mut repository = Repository::here().unwrap();
        let jobs = CHECKS.each_ref().map(|check| Job { check, seconds: 1 });
        assert!(!run_all(&mut repository, &jobs, None, logs.path()).unwrap());
        assert_eq!(fs::read_to_string(logs.path().join("passes.log")).unwrap(), "done\n");
        assert!(run_all(&mut repository, &jobs[2..], None, logs.path()).unwrap());
    }

    #[test]
    fn names_choose_jobs_in_their_order() {
        let choose = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            choose(&names).map(|jobs| jobs.into_iter().map(|job| job.name).collect::<Vec<_>>())
        };
        assert_eq!(choose(&["soak", "python"]).unwrap(), ["soak", "python"]);
        assert_eq!(choose(&[]).unwrap().len(), by_path::CHECKS.len() + long::CHECKS.len());
        assert!(choose(&["no-such-job"]).is_err());
    }

    #[test]
    fn no_job_is_expected_to_take_two_hours() {
        for check in by_path::CHECKS.iter().chain(long::CHECKS) {
            assert!(check.minutes < 120, "{}: split it", check.name);
        }
    }
}
