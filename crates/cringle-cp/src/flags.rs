//! The flags, as one table: help, completions and the manual page are made from it by clap, and
//! [`getopt`](crate::getopt) reads the command line with it.

use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use std::path::PathBuf;

const AFTER: &str = "\
Examples:
  cringle cp -a photos /mnt/backup            a tree as it is: modes, times, links, attributes
  cringle cp -a --dry-run photos /mnt/backup  what would be copied, overwritten, refused
  cringle cp -au photos /mnt/backup           only what is newer than what is there
  cringle cp -r --fsync db /mnt/safe          on the disk, directories too, before it ends with 0
  cringle cp -r --verify --json - a b | jq .bytes
  ln -s $(which cringle) ~/bin/cp             called as cp, it is cp

ATTRIBUTES: mode, ownership, timestamps, links, context, xattr, all.
Backups: none, simple, existing, numbered; VERSION_CONTROL and SIMPLE_BACKUP_SUFFIX are heeded.

Ctrl-C: a file that was there is the old one or the new one, a new one that is half done is removed, and
the last line says how far it came. A second Ctrl-C ends it at once. SIGUSR1 (kill -USR1) has
it say on standard error what the fibers of --fsync wait for; the threads that copy are no fibers.
Full disk: what could not be written is told by name, the rest is tried, and the status is 1.

Exit status: 0 all copied, 1 something was not, or wrong usage, 130 interrupted.";

/// An option: its letter, its long name, what its value is called, the words of the help.
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
    /// Only as `--name=value`.
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
    flag('a', "archive", "As -dR --preserve=all"),
    long("attributes-only", Value::None, "Copy the attributes, not the data"),
    long("backup", Possible("CONTROL"), "Keep what is replaced under another name"),
    flag('b', "\0b", "As --backup, without a value"),
    long("copy-contents", Value::None, "With -r, read special files as if they were regular ones"),
    flag('d', "\0d", "As --no-dereference --preserve=links"),
    long("debug", Value::None, "Say how each file was copied (offload, reflink, sparse); implies -v"),
    flag('f', "force", "Where a target cannot be opened, remove it and try again"),
    flag('H', "\0H", "Follow symbolic links of the command line"),
    flag('i', "interactive", "Ask before replacing"),
    flag('l', "link", "Make hard links instead of copies"),
    flag('L', "dereference", "Follow symbolic links, always"),
    flag('n', "no-clobber", "Do not replace, and say nothing of it"),
    flag('P', "no-dereference", "Never follow symbolic links in SOURCE"),
    flag('p', "\0p", "As --preserve=mode,ownership,timestamps"),
    long("parents", Value::None, "Use the whole source name below DIRECTORY"),
    long("preserve", Possible("ATTRIBUTES"), "Preserve these (a comma list)"),
    long("no-preserve", Needed("ATTRIBUTES"), "Do not preserve these"),
    flag('r', "recursive", "Copy directories with all that they have"),
    flag('R', "\0R", "The same"),
    long("reflink", Possible("WHEN"), "Share the blocks of the data: always, auto, never"),
    long("remove-destination", Value::None, "Remove each target before opening it"),
    long("sparse", Needed("WHEN"), "Holes: auto as in the source, always, never"),
    long("strip-trailing-slashes", Value::None, "Remove slashes from the end of each SOURCE"),
    flag('s', "symbolic-link", "Make symbolic links instead of copies"),
    Flag { short: Some('S'), long: "suffix", value: Needed("SUFFIX"), help: "The suffix of backups" },
    Flag { short: Some('t'), long: "target-directory", value: Needed("DIRECTORY"), help: "Copy all SOURCEs into DIRECTORY" },
    flag('T', "no-target-directory", "Take DEST for a file, not for a directory to copy into"),
    long("update", Possible("UPDATE"), "What to replace: all, none, none-fail, older"),
    flag('u', "\0u", "As --update=older"),
    flag('v', "verbose", "Say what is copied"),
    flag('x', "one-file-system", "Stay on the file system of SOURCE"),
    flag('Z', "\0Z", "Ignored with a note where the kernel has no SELinux"),
    long("context", Possible("CTX"), "Likewise"),
    long("fsync", Value::None, "End with 0 only when data and directories are on the disk; no name before its data"),
    long("jobs", Needed("N"), "So many threads [default: 4 for each core, at most 16]"),
    long("block-size", Needed("SIZE"), "Bytes of one read and write of a large file [default: 128k]"),
    long("progress", Value::None, "Show bytes, files, rate, time left [default: on a terminal, for long copies]"),
    long("no-progress", Value::None, "Never show it"),
    long("verify", Value::None, "Compare each copy with its source: read from the disk, not the cache, where the file system lets go of it"),
    long("json", Needed("FILE"), "A summary as JSON; - is standard output"),
    long("trace", Needed("FILE"), "Write a trace of what fibers and operations do, for Perfetto and `cringle trace`"),
    long("dry-run", Value::None, "Say what would be copied, and what becomes of what is there; change nothing"),
    long("help", Value::None, "Print this help"),
    long("version", Value::None, "Print the version"),
];

impl Flag {
    /// One that has a letter only.
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

/// The help of `cringle cp`.
pub(crate) fn command(name: &'static str) -> Command {
    <Arguments as Args>::augment_args(Command::new(name))
        .about("Copy files and directories: GNU's cp, on all cores")
        .max_term_width(100)
}

/// Stands in clap's tree of commands for what [`getopt`](crate::getopt) reads.
pub struct Arguments;

impl Args for Arguments {
    fn augment_args(command: Command) -> Command {
        let command = command
            .disable_help_flag(true)
            .disable_version_flag(true)
            .after_help(AFTER)
            .infer_long_args(true)
            .override_usage("cringle cp [OPTION]... SOURCE... DEST\n       cringle cp [OPTION]... -t DIRECTORY SOURCE...")
            .args(FLAGS.iter().map(Flag::documented));
        command.arg(
            Arg::new("paths")
                .value_name("PATH")
                .help("What to copy, and where to")
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
