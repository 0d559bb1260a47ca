//! Runs the tests of the library on other kernels, in virtual machines.
//!
//! A kernel comes from a Debian package, which is unpacked and never installed. It boots under QEMU
//! from a disk with the test binaries, and an init that runs them one after the other and writes
//! their output to a serial line.

mod image;
mod machine;
mod packages;
mod partition;
mod report;
mod results;
mod steps;
mod suite;
mod tools;

use crate::Result;
use machine::Machine;
use packages::Kernel;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask kernels                                the newest kernel of each series
  cargo xtask kernels --list
  cargo xtask kernels --kernel 6.1 --tests files,run
  cargo xtask kernels --kernel 6.1 --resume          continue an interrupted run
  cargo xtask kernels --kernel 6.12 -- cringle bench disk --help

CONTRIBUTING.md (Other kernels) says what must be installed.")]
pub(crate) struct Args {
    /// Test the kernel with this version, or the newest that begins with it; repeatable
    #[arg(long = "kernel", value_name = "VERSION")]
    kernels: Vec<String>,

    /// List the kernels of the package sources and exit
    #[arg(long)]
    list: bool,

    /// Run only these, in this order: test binaries of the library by name (`lib` for all unit
    /// tests, `cringle-std-lib` for those of one part), or `doctor`, `iopoll`, `switch`,
    /// `switch_doctor`, `switch_epoll`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tests: Vec<String>,

    /// Run only steps without a result from an earlier run, and report both
    #[arg(long)]
    resume: bool,

    /// Kill a test binary after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    bound: u32,

    /// Run this command instead of the tests; `cringle`, the example `driver` and BusyBox are
    /// installed, and the binaries that --tests names are in /tests
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the tests on the chosen kernels. Returns whether all passed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    tools::require()?;
    let known = packages::known()?;
    if args.list {
        known.iter().for_each(|kernel| println!("{kernel}"));
        return Ok(true);
    }
    let chosen = packages::choose(&known, &args.kernels)?;
    let with_tests = args.command.is_empty() || !args.tests.is_empty();
    let suite = suite::build(with_tests.then_some(&args.tests[..]))?;
    let folder = WorkFolder::new(suite.target_directory.join("kernels"))?;
    let disks = image::make(&folder.work(), &suite, args)?;
    let mut all_passed = true;
    for kernel in &chosen {
        all_passed &= test(kernel, &disks, &folder, &suite, args)?;
    }
    Ok(all_passed)
}

/// Tests one kernel and prints its report. Returns whether all tests passed.
fn test(
    kernel: &Kernel,
    disks: &image::Disks,
    folder: &WorkFolder,
    suite: &suite::Suite,
    args: &Args,
) -> Result<bool> {
    let mut report = report::Report::new(&suite.steps);
    let mut results = results::Results::new(folder.results(kernel), &suite.build)?;
    let is_command = !args.command.is_empty();
    let done = if is_command { Vec::new() } else { recall(&results, suite, args, &mut report)? };
    let unpacked = packages::unpack(kernel, &folder.packages())?;
    let machine = Machine {
        vmlinuz: unpacked,
        disks,
        done,
        console: folder.work().join(format!("{}.console", kernel.version)),
        silence: std::time::Duration::from_secs(u64::from(args.bound) + 300),
    };
    let all_done = !is_command && machine.done.len() == suite.steps.len();
    let ended = if all_done {
        results
            .of("kernel")
            .iter()
            .flat_map(|lines| lines.lines())
            .for_each(|line| report.hear(line));
        machine::Ended::Normally
    } else {
        report.hear(&format!("@@ build {}", suite.build));
        machine.run(|line| {
            report.hear(line);
            if is_command { Ok(()) } else { results.hear(line) }
        })?
    };
    let kernel = &kernel.version;
    if is_command {
        println!("{kernel}{ended}");
        return Ok(report.command_succeeded());
    }
    report.failures().for_each(|text| println!("{text}"));
    println!("{kernel}: {report}{ended}");
    Ok(report.all_passed())
}

/// With `--resume`, feeds the results of earlier runs to the report and returns their steps.
/// Removes all other results.
fn recall(
    results: &results::Results,
    suite: &suite::Suite,
    args: &Args,
    report: &mut report::Report,
) -> Result<Vec<String>> {
    let mut done = Vec::new();
    for step in suite.steps.iter().map(|step| &step.name) {
        match results.of(step) {
            Some(lines) if args.resume => {
                lines.lines().for_each(|line| report.hear(line));
                done.push(step.clone());
            }
            _ => results.forget(step)?,
        }
    }
    Ok(done)
}

/// The folder of this task. Packages and results stay from run to run; the files of one process are
/// removed at its end.
struct WorkFolder {
    root: PathBuf,
}

impl WorkFolder {
    fn new(root: PathBuf) -> Result<WorkFolder> {
        let folder = WorkFolder { root };
        std::fs::create_dir_all(folder.packages())?;
        folder.clear()?;
        std::fs::create_dir(folder.work())?;
        Ok(folder)
    }

    fn packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    fn results(&self, kernel: &Kernel) -> PathBuf {
        self.root.join("results").join(&kernel.version)
    }

    fn work(&self) -> PathBuf {
        self.root.join(format!("work-{}", std::process::id()))
    }

    /// Removes the files of processes that have ended.
    fn clear(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix("work-"));
            if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(self.work()) {
            eprintln!("xtask: {}: cannot remove it: {error}", self.work().display());
        }
    }
}
