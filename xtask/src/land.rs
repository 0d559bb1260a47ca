//! `cargo xtask land`: checks a change before it lands. `.ci/run` installs the tools and calls it.

use crate::Result;
use crate::checks::{Check, End, Outcome, Repository, Sink, by_path, clock, landing};
use crate::counts::Counts;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask land                        what .ci/run does
  cargo xtask land --only suite,epoll     some steps
  cargo xtask land --from docs            the rest, after a failure
  cargo xtask land --list                 the steps, and the command of each

Steps that check one language or one crate run only if their inputs differ from those on which they
last passed: .ci/passed has both. A step whose tools are missing is skipped. The last line of the
output is the number of tests. Status: 0 if no step failed, 1 if one did.")]
pub(crate) struct Args {
    /// Run only these steps
    #[arg(long, value_name = "STEPS", value_delimiter = ',')]
    only: Vec<String>,

    /// Leave out the steps before this one
    #[arg(long, value_name = "STEP")]
    from: Option<String>,

    /// Run the other steps also if one fails
    #[arg(long)]
    keep_going: bool,

    /// Run the steps also whose inputs are those on which they last passed
    #[arg(long)]
    all: bool,

    /// Print each step with its command, and run none
    #[arg(long)]
    list: bool,
}

/// How long a step may take. The suite limits each of its tests itself.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// What became of a step.
struct Line {
    name: &'static str,
    what: &'static str,
    seconds: u64,
}

/// Runs the chosen steps. Returns whether none failed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let chosen = choose(args)?;
    if args.list {
        chosen.iter().for_each(|check| println!("{:<17} {}", check.name, check.line()));
        return Ok(true);
    }
    let mut repository = Repository::here()?;
    let started = Instant::now();
    let (mut lines, mut total) = (Vec::new(), Counts::default());
    for &check in &chosen {
        println!(
            "\n== {} (after {}): {}",
            check.name,
            clock(started.elapsed().as_secs()),
            check.line()
        );
        let line = match reason_to_skip(&repository, check, args.all) {
            Some(what) => Line { name: check.name, what, seconds: 0 },
            None => {
                let outcome = repository.run(check, &[], &Sink::Terminal, LIMIT);
                let outcome = outcome.unwrap_or_else(|error| {
                    println!("{}: {error}", check.name);
                    Outcome { end: End::Failed, seconds: 0, tests: Counts::default() }
                });
                total.add(outcome.tests);
                Line { name: check.name, what: word(outcome.end), seconds: outcome.seconds }
            }
        };
        let is_failed = FAILURES.contains(&line.what);
        println!("== {}: {}", line.name, line.what);
        lines.push(line);
        if is_failed && !args.keep_going {
            break;
        }
    }
    println!();
    for Line { name, what, seconds } in &lines {
        println!("{:>6}  {name:<17} {what}", clock(*seconds));
    }
    let seconds = started.elapsed().as_secs();
    println!("{:>6}  {} of {} steps\n{total}", clock(seconds), lines.len(), chosen.len());
    Ok(!lines.iter().any(|line| FAILURES.contains(&line.what)))
}

const FAILURES: [&str; 2] = ["FAILED", "HANGS"];

fn word(end: End) -> &'static str {
    match end {
        End::Passed => "passed",
        End::Skipped => "SKIPPED: see what it lacks above",
        End::Failed => FAILURES[0],
        End::TimedOut => FAILURES[1],
    }
}

/// Why a step does not run, if it does not.
fn reason_to_skip(repository: &Repository, check: &Check, all: bool) -> Option<&'static str> {
    if let Some(program) = check.lacks() {
        println!("{} needs {program}, which is not installed", check.name);
        return Some(word(End::Skipped));
    }
    if all || !by_path::CHECKS.iter().any(|by_path| by_path.name == check.name) {
        return None;
    }
    let has_passed = repository.inputs().and_then(|inputs| repository.has_passed(check, &inputs));
    match has_passed {
        Ok(has_passed) => has_passed.then_some("not run: passed on these inputs"),
        Err(error) => {
            println!("{}: its inputs are unknown, so it runs: {error}", check.name);
            None
        }
    }
}

/// The steps that the arguments choose, in order.
fn choose(args: &Args) -> Result<Vec<&'static Check>> {
    let all: Vec<&Check> = landing::CHECKS.iter().chain(by_path::CHECKS).collect();
    let place = |name: &String| {
        let place = all.iter().position(|check| check.name == name);
        place.ok_or_else(|| format!("no step is named '{name}'; --list prints the names"))
    };
    let first = args.from.as_ref().map_or(Ok(0), place)?;
    let only = args.only.iter().map(place).collect::<std::result::Result<Vec<_>, _>>()?;
    let is_chosen = |at: &usize| *at >= first && (only.is_empty() || only.contains(at));
    let chosen: Vec<_> = (0..all.len()).filter(is_chosen).map(|at| all[at]).collect();
    if chosen.is_empty() {
        return Err("all steps of --only are before that of --from".into());
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str], from: Option<&str>) -> Result<Vec<&'static str>> {
        let args = Args {
            only: only.iter().map(|&name| name.to_owned()).collect(),
            from: from.map(str::to_owned),
            keep_going: false,
            all: false,
            list: false,
        };
        Ok(choose(&args)?.into_iter().map(|check| check.name).collect())
    }

    #[test]
    fn steps_keep_their_order() {
        let all = names(&[], None).unwrap();
        assert_eq!(all.len(), landing::CHECKS.len() + by_path::CHECKS.len());
        assert_eq!(names(&["suite", "docs"], None).unwrap(), ["docs", "suite"]);
        assert_eq!(names(&["docs", "suite"], Some("suite")).unwrap(), ["suite"]);
        assert_eq!(names(&[], Some(all[1])).unwrap(), all[1..]);
    }

    #[test]
    fn unknown_steps_are_errors() {
        assert!(names(&["no-such-step"], None).is_err());
        assert!(names(&[], Some("no-such-step")).is_err());
        assert!(names(&["docs"], Some("suite")).is_err(), "no step is left");
    }
}
