//! The tests of the library on other kernels than this one.
//!
//! A kernel is a Debian package, taken apart and never installed. It boots under QEMU with a disk that
//! has the test binaries on it, and an init that runs them one after the other and writes what they
//! said to a serial line.

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
use machine::{Accel, Machine};
use packages::Kernel;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask kernels                                the newest kernel of each series
  cargo xtask kernels --list
  cargo xtask kernels --kernel 6.1 --tests files,run
  cargo xtask kernels --kernel 6.1 --resume          after a run that was broken off
  cargo xtask kernels --kernel 6.12 -- cringle bench disk --help

CONTRIBUTING.md (Other kernels) says what must be installed.")]
pub(crate) struct Args {
    /// A kernel by its version, or by the beginning of it; may be repeated.
    #[arg(long = "kernel", value_name = "VERSION")]
    kernels: Vec<String>,

    /// List the kernels that the package sources have, and do nothing else.
    #[arg(long)]
    list: bool,

    /// Only these, in this order: test binaries of the library, without their directory and ending (`lib`
    /// is the unit tests), or `doctor`, `iopoll`, `switch`, `switch_doctor`, `switch_epoll`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tests: Vec<String>,

    /// Run only what has no result from an earlier run, and sum up both.
    #[arg(long)]
    resume: bool,

    /// Seconds that one test binary may take in the machine.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    bound: u32,

    /// Build for this target, for example x86_64-unknown-linux-musl.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,

    /// How the machine's processor is made; without it, KVM where that works.
    #[arg(long, value_enum)]
    accel: Option<Accel>,

    /// Memory of the machine.
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u32,

    /// Machines that run at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,

    /// Keep the disk's contents and the console, and say where they are and how QEMU was called.
    #[arg(long)]
    keep: bool,

    /// A command to be run instead of the tests; `cringle` and `xtask` are there, what BusyBox has, and
    /// the binaries that --tests names, in /tests.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Whether all tests passed on all kernels.
pub(crate) fn run(args: &Args) -> Result<bool> {
    tools::require()?;
    let known = packages::known()?;
    if args.list {
        known.iter().for_each(|kernel| println!("{kernel}"));
        return Ok(true);
    }
    let chosen = packages::choose(&known, &args.kernels)?;
    let with_tests = args.command.is_empty() || !args.tests.is_empty();
    let suite = suite::build(args.target.as_deref(), with_tests.then_some(&args.tests[..]))?;
    let folder = WorkFolder::new(suite.target_directory.join("kernels"), args.keep)?;
    let disks = image::make(&folder.work(), &suite, args)?;
    let queue = Mutex::new(chosen.iter());
    let next = || queue.lock().expect("no code panics under this lock").next();
    let work = || -> Result<bool> {
        let mut all_passed = true;
        while let Some(kernel) = next() {
            all_passed &= test(kernel, &disks, &folder, &suite, args)?;
        }
        Ok(all_passed)
    };
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..args.jobs).map(|_| s.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join().expect("it does not panic"));
        results.collect::<Result<Vec<bool>>>().map(|passed| passed.into_iter().all(|each| each))
    })
}

fn test(
    kernel: &Kernel,
    disks: &image::Disks,
    folder: &WorkFolder,
    suite: &suite::Suite,
    args: &Args,
) -> Result<bool> {
    let mut report = report::Report::new(&suite.steps);
    let mut results = results::Results::new(folder.results(kernel, args), &suite.build)?;
    let is_command = !args.command.is_empty();
    let done = if is_command { Vec::new() } else { recall(&results, suite, args, &mut report)? };
    let unpacked = packages::unpack(kernel, &folder.packages())?;
    let machine = Machine {
        vmlinuz: unpacked,
        disks,
        done,
        console: folder.work().join(format!("{}.console", kernel.version)),
        accel: args.accel.unwrap_or_else(Accel::best),
        memory_mib: args.memory,
        silence: std::time::Duration::from_secs(u64::from(args.bound) + 300),
    };
    if args.keep {
        println!("{}", machine.command_words());
    }
    let all_done = !is_command && machine.done.len() == suite.steps.len();
    let ended = if all_done {
        results
            .of("kernel")
            .iter()
            .flat_map(|said| said.lines())
            .for_each(|line| report.hear(line));
        machine::Ended::Well
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

/// Has the report hear what earlier runs heard; which steps these were. The others' results are removed.
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

/// Where things are: packages and results are kept from run to run; what a process makes beside them is kept until
/// the next one begins, and only if that was asked for.
struct WorkFolder {
    root: PathBuf,
    keep: bool,
}

impl WorkFolder {
    fn new(root: PathBuf, keep: bool) -> Result<WorkFolder> {
        let folder = WorkFolder { root, keep };
        std::fs::create_dir_all(folder.packages())?;
        folder.clear()?;
        std::fs::create_dir(folder.work())?;
        Ok(folder)
    }

    fn packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    fn results(&self, kernel: &Kernel, args: &Args) -> PathBuf {
        let target = args.target.iter().map(|triple| format!("-{triple}"));
        let name = std::iter::once(kernel.version.clone()).chain(target).collect::<String>();
        self.root.join("results").join(name)
    }

    fn work(&self) -> PathBuf {
        self.root.join(format!("work-{}", std::process::id()))
    }

    /// Removes what processes have left that are no more.
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
        if self.keep {
            println!("kept until the next run: {}", self.work().display());
        } else if let Err(error) = std::fs::remove_dir_all(self.work()) {
            eprintln!("xtask: {} stays: {error}", self.work().display());
        }
    }
}
