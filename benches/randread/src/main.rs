//! Random reads of one file at a queue depth: by Cringle, other runtimes, and the bare ring.
//!
//! Each run is a process, so that no engine inherits another's heap, threads or rings. In each
//! round every engine runs once, in changing order.

mod engines;
mod job;
mod piece;
mod report;

use clap::Parser;
use common::{busy, file, stats};
use job::{Job, Outcome, Task};
use report::Results;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Read random blocks of one file at a queue depth, by several engines in turn
#[derive(Parser)]
struct Options {
    /// File or block device to read [default: a file created for the run, and removed]
    #[arg(long)]
    file: Option<PathBuf>,
    /// Directory of that file; not on tmpfs
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Size of that file in MiB
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// Bytes of each read
    #[arg(long, default_value_t = 4096)]
    block: usize,
    /// Reads in flight
    #[arg(long, default_value_t = 32)]
    qd: usize,
    /// Reads in each run
    #[arg(long, default_value_t = 200_000)]
    ops: usize,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long, conflicts_with = "cached", required_unless_present_any = ["cached", "child"])]
    direct: bool,
    /// Read from the page cache, after filling it
    #[arg(long)]
    cached: bool,
    /// Runs of each engine
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Engines, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Engine that the others are compared with
    #[arg(long, default_value = "uring")]
    base: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds to wait before each round until the machine is idle
    #[arg(long, default_value_t = 20)]
    patience: u64,
    /// Print JSON, with all samples
    #[arg(long)]
    json: bool,
    /// Run one engine in this process, on a task in JSON
    #[arg(long, hide = true, num_args = 2)]
    child: Option<Vec<String>>,
}

/// The share of the machine in use above which it is not idle.
const BUSY: f64 = 0.15;

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(arguments) = &options.child {
        return child(&arguments[0], &arguments[1]);
    }
    match parent(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("randread: {e}");
            ExitCode::FAILURE
        }
    }
}

fn parent(options: &Options) -> Result<(), String> {
    let named = |e: std::io::Error, path: &std::path::Path| format!("{}: {e}", path.display());
    if options.block < 8 || options.qd == 0 || options.ops == 0 {
        return Err("--block must be at least 8, --qd and --ops at least 1".to_owned());
    }
    let scratch = match &options.file {
        Some(_) => None,
        None => Some(
            file::Scratch::new(&options.directory, options.size_mib << 20)
                .map_err(|e| named(e, &options.directory))?,
        ),
    };
    let path = match (&options.file, &scratch) {
        (Some(path), _) => path.clone(),
        (None, scratch) => scratch.as_ref().expect("created above").path().to_owned(),
    };
    if file::is_on_tmpfs(&path).map_err(|e| named(e, &path))? {
        eprintln!("warning: on tmpfs a kernel thread performs every read of a ring: see README.md");
    }
    if options.cached {
        file::warm(&path).map_err(|e| named(e, &path))?;
    }
    let task = Task {
        file: path,
        direct: options.direct,
        block: options.block,
        depth: options.qd,
        operations: options.ops,
        seed: options.seed,
    };
    let engines = chosen(options, &task)?;
    let results = alternate(&task, engines, options)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&results).expect("plain figures"));
    } else {
        results.print(&options.base);
    }
    Ok(())
}

/// Returns the selected engines that can perform this task, and prints why others cannot.
fn chosen(options: &Options, task: &Task) -> Result<Vec<String>, String> {
    let all = || engines::ALL.iter().map(|&(name, _)| name);
    let selected: Vec<String> = match options.engines.as_slice() {
        [] => all().map(str::to_owned).collect(),
        some => some.to_vec(),
    };
    if let Some(unknown) = selected.iter().find(|name| !all().any(|known| known == **name)) {
        let known: Vec<&str> = all().collect();
        return Err(format!("{unknown}: unknown engine; use one of {}", known.join(", ")));
    }
    let possible = |name: &String| match engines::refuses(name, task) {
        Some(reason) => {
            eprintln!("skipped {name}: {reason}");
            false
        }
        None => true,
    };
    Ok(selected.into_iter().filter(possible).collect())
}

fn alternate(task: &Task, names: Vec<String>, options: &Options) -> Result<Results, String> {
    let mut results = Results::new(task, names);
    for round in 0..options.repeat.max(1) {
        let is_quiet = busy::wait_until_quiet(BUSY, Duration::from_secs(options.patience));
        if !is_quiet {
            results.busy_rounds += 1;
        }
        for index in stats::order(round, results.engines.len()) {
            let name = results.engines[index].name.clone();
            eprint!("\rround {}: {name:<24}", round + 1);
            let operations = engines::operations_for(&name, task.operations);
            let task = Task { operations, ..task.clone() };
            let outcome = in_child(&name, &task);
            results.engines[index].runs.push(outcome.map_err(|e| format!("{name}: {e}"))?);
        }
    }
    eprintln!("\r{:<40}", "");
    results.check()?;
    Ok(results)
}

fn in_child(engine: &str, task: &Task) -> Result<Outcome, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let task = serde_json::to_string(task).expect("plain values");
    let output = Command::new(program)
        .args(["--child", engine, &task])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot start a process: {e}"))?;
    if !output.status.success() {
        return Err(format!("its process ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("its process printed no outcome: {e}"))
}

fn child(engine: &str, task: &str) -> ExitCode {
    let task: Task = serde_json::from_str(task).expect("the parent passes a task");
    let engine = engines::named(engine).expect("the parent passes an engine's name");
    let job = Job::new(task);
    let (usage, checksum) = engine(&job);
    let outcome = Outcome::new(usage, checksum, job.offsets.len());
    println!("{}", serde_json::to_string(&outcome).expect("plain figures"));
    ExitCode::SUCCESS
}
