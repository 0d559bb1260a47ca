//! What is asked for, from the flags in their order.

use crate::backup;
use crate::getopt::{CommandLine, Given};
use crate::messages::{self, quote, quote_word};
use cringle_command::units;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Which symbolic links of the sources are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follow {
    Never,
    CommandLine,
    Always,
}

/// What happens to a target that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replace {
    Always,
    Ask,
    /// `-n`: it stays, silently.
    Skip,
    /// `--update=none-fail`: it stays, and the status is 1.
    Refuse,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    Never,
    Auto,
    Always,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Preserve {
    pub(crate) mode: bool,
    pub(crate) ownership: bool,
    pub(crate) timestamps: bool,
    pub(crate) links: bool,
    pub(crate) xattr: bool,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) recursive: bool,
    pub(crate) follow: Follow,
    pub(crate) preserve: Preserve,
    /// What cannot be preserved is a failure.
    pub(crate) must_preserve: bool,
    pub(crate) must_preserve_xattr: bool,
    pub(crate) no_preserve_mode: bool,
    pub(crate) force: bool,
    pub(crate) remove_first: bool,
    pub(crate) replace: Replace,
    pub(crate) only_newer: bool,
    pub(crate) verbose: bool,
    pub(crate) debug: bool,
    pub(crate) hard_link: bool,
    pub(crate) symbolic_link: bool,
    pub(crate) one_file_system: bool,
    pub(crate) parents: bool,
    pub(crate) strip_slashes: bool,
    pub(crate) target_directory: Option<OsString>,
    pub(crate) no_target_directory: bool,
    pub(crate) backup: Option<backup::Kind>,
    pub(crate) suffix: OsString,
    pub(crate) as_regular: bool,
    pub(crate) reflink: When,
    pub(crate) sparse: When,
    pub(crate) attributes_only: bool,
    pub(crate) posix: bool,
    pub(crate) fsync: bool,
    pub(crate) jobs: usize,
    pub(crate) block_bytes: usize,
    pub(crate) progress: Option<bool>,
    pub(crate) verify: bool,
    pub(crate) json: Option<OsString>,
    pub(crate) trace: Option<OsString>,
    pub(crate) dry_run: bool,
    pub(crate) names: Vec<OsString>,
    pub(crate) umask: u32,
}

/// The flags while they are read.
#[derive(Default)]
struct Reading {
    follow: Option<Follow>,
    backups: bool,
    backup_word: Option<String>,
    suffix: Option<OsString>,
    copy_contents: bool,
    context: bool,
    /// The last of `-i` and `-n`.
    ask: Option<Replace>,
    /// The last `--update`, or nothing.
    update: &'static str,
}

/// The words that an option may have, each line the ones that mean the same.
fn word<'a>(given: &Given, name: &str, words: &[&'a [&'a str]]) -> Result<&'a str, String> {
    let text = given.value.as_deref().unwrap_or_default().to_string_lossy();
    choose(&text, name, words)
}

fn choose<'a>(text: &str, name: &str, words: &[&'a [&'a str]]) -> Result<&'a str, String> {
    let exact = words.iter().find(|same| same.contains(&text));
    let mut begun = words.iter().filter(|same| same.iter().any(|word| word.starts_with(text)));
    let (first, second) = (begun.next(), begun.next());
    match (exact, first, second) {
        (Some(same), ..) | (None, Some(same), None) => Ok(same[0]),
        (None, first, _) => {
            let why = if first.is_some() { "ambiguous" } else { "invalid" };
            let mut told = format!(
                "{why} argument {} for {}\nValid arguments are:",
                quote_word(text),
                quote_word(name)
            );
            for same in words {
                let all: Vec<_> = same.iter().map(|word| quote_word(word)).collect();
                told.push_str(&format!("\n  - {}", all.join(", ")));
            }
            Err(told)
        }
    }
}

const WHEN: &[&[&str]] = &[&["auto"], &["always"], &["never"]];
const SPARSE: &[&[&str]] = &[&["never"], &["auto"], &["always"]];
const UPDATE: &[&[&str]] = &[&["all"], &["none"], &["none-fail"], &["older"]];
const BACKUP: &[&[&str]] =
    &[&["none", "off"], &["simple", "never"], &["existing", "nil"], &["numbered", "t"]];
const ATTRIBUTES: &[&[&str]] =
    &[&["mode"], &["timestamps"], &["ownership"], &["links"], &["context"], &["xattr"], &["all"]];

fn when(word: &str) -> When {
    match word {
        "always" => When::Always,
        "never" => When::Never,
        _ => When::Auto,
    }
}

fn count(given: &Given) -> Result<usize, String> {
    let text = given.value.as_deref().unwrap_or_default();
    let number = text.to_str().and_then(|text| text.parse().ok()).filter(|n| (1..=256).contains(n));
    number.ok_or_else(|| format!("invalid number of jobs {}: from 1 to 256", quote(text)))
}

fn size(given: &Given) -> Result<usize, String> {
    let text = given.value.as_deref().unwrap_or_default().to_string_lossy();
    match units::parse_size(&text)? {
        bytes @ 4096..=1_073_741_824 => Ok(bytes as usize),
        _ => Err(format!("invalid block size {}: from 4k to 1GiB", quote(&*text))),
    }
}

impl Options {
    fn plain() -> Options {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            recursive: false,
            follow: Follow::Always,
            preserve: Preserve::default(),
            must_preserve: false,
            must_preserve_xattr: false,
            no_preserve_mode: false,
            force: false,
            remove_first: false,
            replace: Replace::Always,
            only_newer: false,
            verbose: false,
            debug: false,
            hard_link: false,
            symbolic_link: false,
            one_file_system: false,
            parents: false,
            strip_slashes: false,
            target_directory: None,
            no_target_directory: false,
            backup: None,
            suffix: "~".into(),
            as_regular: true,
            reflink: When::Auto,
            sparse: When::Auto,
            attributes_only: false,
            posix: std::env::var_os("POSIXLY_CORRECT").is_some(),
            fsync: false,
            jobs: (4 * cores).min(16),
            block_bytes: 128 << 10,
            progress: None,
            verify: false,
            json: None,
            trace: None,
            dry_run: false,
            names: Vec::new(),
            umask: crate::sys::umask(),
        }
    }

    /// The error is what is to be told before `Try '… --help'`.
    pub(crate) fn of(line: CommandLine) -> Result<Options, String> {
        let mut options = Options::plain();
        let mut reading = Reading::default();
        for given in &line.options {
            options.take(given, &mut reading)?;
        }
        options.names = line.names;
        options.settle(reading)?;
        Ok(options)
    }

    fn take(&mut self, given: &Given, reading: &mut Reading) -> Result<(), String> {
        match given.flag.long {
            "archive" => {
                self.recursive = true;
                self.must_preserve = true;
                reading.follow = Some(Follow::Never);
                self.preserve = Preserve {
                    mode: true,
                    ownership: true,
                    timestamps: true,
                    links: true,
                    xattr: true,
                };
            }
            "attributes-only" => self.attributes_only = true,
            "backup" | "\0b" => {
                reading.backups = true;
                if let Some(value) = &given.value {
                    reading.backup_word = Some(value.to_string_lossy().into_owned());
                }
            }
            "copy-contents" => reading.copy_contents = true,
            "\0d" => {
                self.preserve.links = true;
                reading.follow = Some(Follow::Never);
            }
            "debug" => (self.debug, self.verbose) = (true, true),
            "force" => self.force = true,
            "\0H" => reading.follow = Some(Follow::CommandLine),
            "interactive" => reading.ask = Some(Replace::Ask),
            "link" => self.hard_link = true,
            "dereference" => reading.follow = Some(Follow::Always),
            "no-clobber" => reading.ask = Some(Replace::Skip),
            "no-dereference" => reading.follow = Some(Follow::Never),
            "\0p" => self.preserve_usual(),
            "preserve" if given.value.is_none() => self.preserve_usual(),
            "preserve" => {
                self.set_preserve(given, true, reading)?;
                self.must_preserve = true;
            }
            "no-preserve" => self.set_preserve(given, false, reading)?,
            "parents" => self.parents = true,
            "recursive" | "\0R" => self.recursive = true,
            "reflink" if given.value.is_none() => self.reflink = When::Always,
            "reflink" => self.reflink = when(word(given, "--reflink", WHEN)?),
            "remove-destination" => self.remove_first = true,
            "sparse" => self.sparse = when(word(given, "--sparse", SPARSE)?),
            "strip-trailing-slashes" => self.strip_slashes = true,
            "symbolic-link" => self.symbolic_link = true,
            "suffix" => {
                reading.backups = true;
                reading.suffix = given.value.clone();
            }
            "target-directory" if self.target_directory.is_some() => {
                return Err("multiple target directories specified".into());
            }
            "target-directory" => self.target_directory = given.value.clone(),
            "no-target-directory" => self.no_target_directory = true,
            "\0u" => reading.update = "older",
            "update" if given.value.is_none() => reading.update = "older",
            "update" => reading.update = word(given, "--update", UPDATE)?,
            "verbose" => self.verbose = true,
            "one-file-system" => self.one_file_system = true,
            "context" if given.value.is_some() => {
                messages::note(
                    "warning: ignoring --context; it requires an SELinux-enabled kernel",
                );
            }
            // GNU's -Z is as quiet where there is no SELinux; a note does no harm.
            "\0Z" | "context" => {
                messages::note("warning: ignoring -Z; it requires an SELinux-enabled kernel");
            }
            "fsync" => self.fsync = true,
            "jobs" => self.jobs = count(given)?,
            "block-size" => self.block_bytes = size(given)?,
            "progress" => self.progress = Some(true),
            "no-progress" => self.progress = Some(false),
            "verify" => self.verify = true,
            "json" => self.json = given.value.clone(),
            "trace" => self.trace = given.value.clone(),
            "dry-run" => self.dry_run = true,
            other => return Err(format!("unrecognized option '--{other}'")),
        }
        Ok(())
    }

    fn preserve_usual(&mut self) {
        self.preserve.mode = true;
        self.preserve.ownership = true;
        self.preserve.timestamps = true;
        self.must_preserve = true;
    }

    fn set_preserve(
        &mut self,
        given: &Given,
        on: bool,
        reading: &mut Reading,
    ) -> Result<(), String> {
        let name = format!("--{}", given.flag.long);
        let list = given.value.as_deref().unwrap_or_default().to_string_lossy();
        for text in list.split(',') {
            let which = choose(text, &name, ATTRIBUTES)?;
            let all = which == "all";
            let keep = &mut self.preserve;
            if all || which == "mode" {
                (keep.mode, self.no_preserve_mode) = (on, !on);
            }
            if all || which == "ownership" {
                keep.ownership = on;
            }
            if all || which == "timestamps" {
                keep.timestamps = on;
            }
            if all || which == "links" {
                keep.links = on;
            }
            if all || which == "xattr" {
                keep.xattr = on;
                self.must_preserve_xattr = on && !all;
            }
            if which == "context" {
                reading.context = on;
            }
        }
        Ok(())
    }

    /// What the flags mean together.
    fn settle(&mut self, reading: Reading) -> Result<(), String> {
        if self.hard_link && self.symbolic_link {
            return Err("cannot make both hard and symbolic links".into());
        }
        // The last of -i and -n counts, -n also before every --update.
        (self.only_newer, self.replace) = match (reading.update, reading.ask) {
            (_, Some(Replace::Skip)) | ("none", _) => (false, Replace::Skip),
            ("none-fail", _) => (false, Replace::Refuse),
            (update, ask) => (update == "older", ask.unwrap_or(Replace::Always)),
        };
        if matches!(self.replace, Replace::Skip | Replace::Refuse) && reading.backups {
            return Err("--backup is mutually exclusive with -n or --update=none-fail".into());
        }
        if self.reflink == When::Always && self.sparse != When::Auto {
            return Err("--reflink can be used only with --sparse=auto".into());
        }
        if reading.context {
            return Err(
                "\0cannot preserve security context without an SELinux-enabled kernel".into()
            );
        }
        self.suffix = backup::suffix(reading.suffix);
        if reading.backups {
            let (word, name) = match &reading.backup_word {
                Some(word) => (word.clone(), "backup type"),
                None => (std::env::var("VERSION_CONTROL").unwrap_or_default(), "$VERSION_CONTROL"),
            };
            let word = if word.is_empty() { "existing" } else { choose(&word, name, BACKUP)? };
            self.backup = backup::kind_of(word).flatten();
        }
        let usual = if self.recursive && !self.hard_link { Follow::Never } else { Follow::Always };
        self.follow = reading.follow.unwrap_or(usual);
        if self.recursive {
            self.as_regular = reading.copy_contents;
        }
        if self.replace == Replace::Ask {
            // One question at a time, in an order.
            self.jobs = 1;
        }
        Ok(())
    }

    /// Whether symbolic links are followed here.
    pub(crate) fn follows(&self, on_command_line: bool) -> bool {
        match self.follow {
            Follow::Always => true,
            Follow::CommandLine => on_command_line,
            Follow::Never => false,
        }
    }
}

/// The name without the slashes at its end; `/` stays.
pub(crate) fn without_slashes(name: &OsString) -> OsString {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
    std::ffi::OsStr::from_bytes(&bytes[..end]).to_owned()
}
