//! The command line of `cringle doctor`.

use clap::Args;
use cringle_report::CommandFiles;
use cringle_report::failure::Failure;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle doctor
      Examine this machine, and the file system of this directory
  cringle doctor /var/lib/db /mnt/nvme
      Examine two other file systems
  cringle doctor --no-measure
      Skip the measurements; takes a fraction of a second
  cringle doctor /dev/nvme0n1
      Examine a device, which is only read
  cringle doctor --json - --no-measure | jq '.io_uring.causes[]'
      Print what denies the ring
  cringle doctor --container
      Print what systemd, Docker and Kubernetes need to allow rings, and all ops of the ring
  cringle doctor --program target/release/server
      Find what in a program blocks a worker although libc's calls are hooked

The report covers the kernel, container and virtual machine; whether each of the three io_uring \
system calls is allowed, and if not, what denies it and the command that allows it; every feature \
of the ring; the file system and device of each PATH; limits; and the speed of reads. Each item is \
tested by using it, not deduced from a version; an item that cannot be tested is reported as \
unknown.

The command needs no root and changes nothing: its temporary files have no name and disappear with \
the process. With --program it reads the program and its libraries, and runs nothing; with \
--container it tests nothing. \
docs/book/src/command/doctor.md explains each line and the JSON.

Exit status: 0 the ring is usable, 3 it is not, 1 failed, 2 wrong usage, 130 interrupted. With \
--program: 0 the hooks are in the program, or it is a library; 3 they are missing or cannot work.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct DoctorArgs {
    /// Examine and measure these directories, files or block devices
    #[arg(default_value = ".")]
    pub path: Vec<PathBuf>,

    /// Examine a program or a shared library instead of the machine
    #[arg(long, value_name = "PATH", conflicts_with_all = ["path", "no_measure", "seconds"])]
    pub program: Option<PathBuf>,

    /// Print the settings of a service or container for rings, and what the library asks of a ring
    #[arg(long, conflicts_with_all = ["path", "program", "no_measure", "seconds"])]
    pub container: bool,

    /// Measure nothing
    #[arg(long, conflicts_with = "seconds")]
    pub no_measure: bool,

    /// Measure for about this long in total
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    pub seconds: f64,

    /// Write the report as JSON; `-` writes only JSON to standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Show no progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

const LONGEST_SECONDS: f64 = 3600.0;

impl DoctorArgs {
    /// Returns the files that the command line names. The caller checks them before
    /// [`run`](crate::run).
    pub fn files(&self) -> CommandFiles {
        let files = CommandFiles::default().result("--json", self.json.as_deref());
        self.path.iter().chain(&self.program).fold(files, CommandFiles::uses)
    }

    /// Checks what clap cannot express.
    pub fn validate(&self) -> Result<(), Failure> {
        if self.seconds > 0.0 && self.seconds <= LONGEST_SECONDS {
            return Ok(());
        }
        Err(Failure::usage("--seconds must be more than 0 and at most 3600"))
    }
}
