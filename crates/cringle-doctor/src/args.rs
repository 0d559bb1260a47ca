//! What can be asked of `cringle doctor`.

use clap::Args;
use cringle_report::failure::Failure;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle doctor                              this machine, and the file system of this directory
  cringle doctor /var/lib/db /mnt/nvme        two other places
  cringle doctor --no-measure                 only look: some milliseconds
  cringle doctor /dev/nvme0n1                 a device, which is only read
  cringle doctor --json - --no-measure | jq '.io_uring.causes[]'
                                              who denies the ring, for programs

What it looks at: the kernel, and what is wrapped around this process; whether each of the three
calls of io_uring is allowed, and else who denies it and the command that allows it; every feature
of the ring; the file system and device of each PATH; limits; and how fast a read is here. All of it
is tried and not deduced from versions; what could not be tried is said to be unknown.

No root is needed, and nothing is changed: files are temporary and nameless, and gone when the
command is, however that ends. docs/book/src/command/doctor.md explains each line and the JSON.

Exit status: 0 the ring is usable, 3 it is not, 1 failed, 2 wrong usage, 130 interrupted.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct DoctorArgs {
    /// Directories, files or block devices: what lies under them is examined and measured.
    #[arg(default_value = ".")]
    pub path: Vec<PathBuf>,

    /// Measure nothing.
    #[arg(long, conflicts_with = "seconds")]
    pub no_measure: bool,

    /// Measure for about so long, all together.
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    pub seconds: f64,

    /// Write what was found as JSON; `-` is standard output, and nothing else on it.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// No progress bar.
    #[arg(short, long)]
    pub quiet: bool,
}

const LONGEST_SECONDS: f64 = 3600.0;

impl DoctorArgs {
    /// What clap cannot check alone.
    pub fn validate(&self) -> Result<(), Failure> {
        match self.seconds > 0.0 && self.seconds <= LONGEST_SECONDS {
            true => Ok(()),
            false => Err(Failure::usage("--seconds must be more than 0, and at most 3600")),
        }
    }
}
