//! The table of flags. clap makes the help, the completions and the manual page from it, and
//! [`getopt`](crate::getopt) parses the command line with it.

use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use cringle_command::{MAX_HELP_WIDTH, PIPE_WIDTH};
use std::io::{self, IsTerminal};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cringle cp -a photos /mnt/backup
      Copy a tree with modes, times, links and attributes
  cringle cp -a --dry-run photos /mnt/backup
      Print what would be copied, replaced or refused
  cringle cp -au photos /mnt/backup
      Copy only files that are newer than their targets
  cringle cp -r --fsync db /mnt/safe
      Exit when all files and directories are on the disk
  cringle cp -r --verify --json - a b | jq .bytes
      Compare each copy with its source, and print the number of bytes
  cringle cp -a --resume ~/photos.manifest photos /mnt/usb
      Copy; after an interrupt, the same command continues
  ln -s $(which cringle) ~/bin/cp
      Use it as cp

ATTRIBUTES: mode, ownership, timestamps, links, context, xattr, all.
CONTROL: none, simple, existing, numbered. The environment variables VERSION_CONTROL and \
SIMPLE_BACKUP_SUFFIX set the defaults.

Ctrl-C stops the copy: it removes unfinished new files and reports how much was copied. A second \
Ctrl-C exits at once. SIGUSR1 (kill -USR1) prints to standard error what the fibers of --fsync \
wait for; the threads that copy are not fibers. On a full disk, the copy reports each file that it \
could not write, tries the others, and exits with status 1.

Exit status: 0 everything was copied, 1 something was not or the usage is wrong, 130 interrupted.";

/// An option: its letter, its long name, its value and its help.
pub(crate) struct Flag {
    pub(crate) short: Option<char>,
    pub(crate) long: &'static str,
    pub(crate) value: Value,
    help: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    None,
    Needed(&'static str),
    /// Accepted only as `--name=value`.
    Possible(&'static str),
}

const fn flag(short: char, long: &'static str, help: &'static str) -> Flag {
    Flag { short: Some(short), long, value: Value::None, help }
}

const fn long(long: &'static str, value: Value, help: &'static str) -> Flag {
    Flag { short: None, long, value, help }
}

use Value::{Needed, Possible};

#[rustfmt::skip]
pub(crate) const FLAGS: &[Flag] = &[
    flag('a', "archive", "Same as -dR --preserve=all"),
    long("attributes-only", Value::None, "Copy only the attributes"),
    long("backup", Possible("CONTROL"), "Rename each file that is about to be replaced"),
    flag('b', "\0b", "Same as --backup without a value"),
    long("copy-contents", Value::None, "With -r, copy the content of special files"),
    flag('d', "\0d", "Same as --no-dereference --preserve=links"),
    long("debug", Value::None, "Print how each file was copied (offload, reflink, sparse, uncached); implies -v"),
    flag('f', "force", "Remove a target that cannot be opened, and try again"),
    flag('H', "\0H", "Follow symbolic links on the command line"),
    flag('i', "interactive", "Ask before replacing a file"),
    flag('l', "link", "Make hard links instead of copies"),
    flag('L', "dereference", "Follow all symbolic links in SOURCE"),
    flag('n', "no-clobber", "Skip existing files silently"),
    flag('P', "no-dereference", "Never follow symbolic links in SOURCE"),
    flag('p', "\0p", "Same as --preserve=mode,ownership,timestamps"),
    long("parents", Value::None, "Use the full source name below DIRECTORY"),
    long("preserve", Possible("ATTRIBUTES"), "Preserve these attributes (separated by commas)"),
    long("no-preserve", Needed("ATTRIBUTES"), "Do not preserve these attributes"),
    flag('r', "recursive", "Copy directories and their contents"),
    flag('R', "\0R", "Same as -r"),
    long("reflink", Possible("WHEN"), "Share data blocks with the source: always, auto, never"),
    long("remove-destination", Value::None, "Remove each existing target first"),
    long("sparse", Needed("WHEN"), "Make holes: auto (as in the source), always, never"),
    long("strip-trailing-slashes", Value::None, "Remove trailing slashes from each SOURCE"),
    flag('s', "symbolic-link", "Make symbolic links instead of copies"),
    Flag { short: Some('S'), long: "suffix", value: Needed("SUFFIX"), help: "Set the suffix of simple backups" },
    Flag { short: Some('t'), long: "target-directory", value: Needed("DIRECTORY"), help: "Copy all SOURCEs into DIRECTORY" },
    flag('T', "no-target-directory", "Treat DEST as a file, not as a directory to copy into"),
    long("update", Possible("UPDATE"), "Select the files to replace: all, none, none-fail, older"),
    flag('u', "\0u", "Same as --update=older"),
    flag('v', "verbose", "Print each copied name"),
    flag('x', "one-file-system", "Stay on the file system of SOURCE"),
    flag('Z', "\0Z", "Ignored with a warning: SELinux is not supported"),
    long("context", Possible("CTX"), "Ignored with a warning: SELinux is not supported"),
    long("fsync", Value::None, "Write data and directories to the disk before exiting; name no file before its data is there"),
    long("jobs", Needed("N"), "Use N threads [default: 4 for each core, at most 16]"),
    long("block-size", Needed("SIZE"), "Read and write large files in blocks of SIZE [default: 128k]"),
    long("progress", Value::None, "Show percentage, bytes, files, rate and time left; without a terminal, print one line at the end [default: on a terminal, after one second]"),
    long("no-progress", Value::None, "Do not show progress"),
    long("quiet", Value::None, "Same as --no-progress; failures are still printed"),
    long("verify", Value::None, "Compare each copy with its source, read from the disk where the file system drops its cache"),
    long("resume", Needed("MANIFEST"), "Record in MANIFEST what is copied; with the same MANIFEST, continue an interrupted copy"),
    long("resume-check", Needed("HOW"), "Recognise what was copied before by time (sizes and times), or by content"),
    long("uncached", Possible("WHEN"), "Leave the page cache to others: always, auto (if the copy is large), never"),
    long("json", Needed("FILE"), "Write a summary as JSON to FILE, which must be new, empty or an earlier summary; - is standard output"),
    long("trace", Needed("FILE"), "Write a trace of fibers and operations, for Perfetto and `cringle trace`"),
    long("dry-run", Value::None, "Print what would be copied and replaced; change nothing"),
    long("help", Value::None, "Print this help"),
    long("version", Value::None, "Print the version"),
];

impl Flag {
    /// Returns whether the option has only a letter.
    pub(crate) fn is_short_only(&self) -> bool {
        self.long.starts_with('\0')
    }

    fn documented(&self) -> Arg {
        let mut arg = Arg::new(self.long.trim_start_matches('\0')).help(self.help);
        if !self.is_short_only() {
            arg = arg.long(self.long);
        }
        if let Some(letter) = self.short {
            arg = arg.short(letter);
        }
        match self.value {
            Value::None => arg.action(ArgAction::SetTrue),
            Needed(name) => arg.value_name(name).action(ArgAction::Append),
            Possible(name) => {
                arg.value_name(name).action(ArgAction::Append).num_args(0..=1).require_equals(true)
            }
        }
    }
}

/// Returns the definition of `cringle cp`, whose help fits standard output.
pub(crate) fn command(name: &'static str) -> Command {
    let command = <Arguments as Args>::augment_args(Command::new(name))
        .about("Copy files and directories: GNU's cp, on all cores")
        .max_term_width(MAX_HELP_WIDTH);
    if io::stdout().is_terminal() { command } else { command.term_width(PIPE_WIDTH) }
}

/// The arguments of `cringle cp` in a tree of clap's commands. They only document:
/// [`run`](crate::run) parses.
///
/// ```
/// use clap::Args;
///
/// let cp = cringle_cp::Arguments::augment_args(clap::Command::new("cp"));
/// assert!(cp.get_arguments().any(|argument| argument.get_long() == Some("reflink")));
/// ```
pub struct Arguments;

impl Args for Arguments {
    fn augment_args(command: Command) -> Command {
        let command = command
            .disable_help_flag(true)
            .disable_version_flag(true)
            .after_help(EXAMPLES)
            .infer_long_args(true)
            .override_usage("cringle cp [OPTION]... SOURCE... DEST\n       cringle cp [OPTION]... -t DIRECTORY SOURCE...")
            .args(FLAGS.iter().map(Flag::documented));
        command.arg(
            Arg::new("paths")
                .value_name("PATH")
                .help("The sources, then the target")
                .value_parser(clap::value_parser!(PathBuf))
                .num_args(0..),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Arguments {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Arguments)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}
