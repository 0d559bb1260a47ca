//! The command line's request: the flags in their order, turned into [`Options`] and names.

use crate::backup;
use crate::choices::{Follow, Preserve, Replace, When};
use crate::getopt::{CommandLine, Given};
use crate::messages::{Reporter, quote, quote_word};
use crate::options::Options;
use crate::plan::Usage;
use cringle_command::units;
use std::ffi::OsString;
use std::sync::Arc;

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) options: Options,
    pub(crate) names: Vec<OsString>,
    pub(crate) target_directory: Option<OsString>,
    pub(crate) progress: Option<bool>,
    pub(crate) json: Option<OsString>,
    pub(crate) trace: Option<OsString>,
    pub(crate) dry_run: bool,
}

/// Flags whose meaning depends on other flags, until all are read.
#[derive(Default)]
struct Pending {
    follow: Option<Follow>,
    backups: bool,
    backup_word: Option<String>,
    suffix: Option<OsString>,
    copy_contents: bool,
    context: bool,
    /// The last of `-i` and `-n`.
    ask: Option<Replace>,
    /// The last `--update`; empty without one.
    update: &'static str,
}

/// Returns the first synonym of the word that an option was given.
///
/// Each element of `words` lists synonyms.
fn choice<'a>(given: &Given, name: &str, words: &[&'a [&'a str]]) -> Result<&'a str, String> {
    let text = given.value.as_deref().unwrap_or_default().to_string_lossy();
    choose(&text, name, words)
}

fn choose<'a>(text: &str, name: &str, words: &[&'a [&'a str]]) -> Result<&'a str, String> {
    let exact = words.iter().find(|same| same.contains(&text));
    let mut abbreviated =
        words.iter().filter(|same| same.iter().any(|word| word.starts_with(text)));
    let (first, second) = (abbreviated.next(), abbreviated.next());
    match (exact, first, second) {
        (Some(same), ..) | (None, Some(same), None) => Ok(same[0]),
        (None, first, _) => {
            let why = if first.is_some() { "ambiguous" } else { "invalid" };
            let mut message = format!(
                "{why} argument {} for {}\nValid arguments are:",
                quote_word(text),
                quote_word(name)
            );
            for same in words {
                let all: Vec<_> = same.iter().map(|word| quote_word(word)).collect();
                message.push_str(&format!("\n  - {}", all.join(", ")));
            }
            Err(message)
        }
    }
}

const WHEN: &[&[&str]] = &[&["auto"], &["always"], &["never"]];
const SPARSE: &[&[&str]] = &[&["never"], &["auto"], &["always"]];
const RESUME_CHECK: &[&[&str]] = &[&["time"], &["content"]];
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

impl Request {
    /// Reads the flags in order. An error is the message to print before `Try '… --help'`.
    pub(crate) fn parse(line: CommandLine, reporter: Arc<Reporter>) -> Result<Request, Usage> {
        let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
        let umask = crate::sys::umask();
        let options = Options { posix, umask, reporter, ..Options::default() };
        let mut request = Request { options, names: line.names, ..Request::default() };
        let mut pending = Pending::default();
        for given in &line.options {
            if !request.take(given)? {
                request.options.take(given, &mut pending)?;
            }
        }
        request.options.resolve(pending)?;
        Ok(request)
    }

    /// Takes a flag that is no option of the copy itself; returns false for the others.
    fn take(&mut self, given: &Given) -> Result<bool, String> {
        match given.flag.long {
            "target-directory" if self.target_directory.is_some() => {
                return Err("multiple target directories specified".into());
            }
            "target-directory" => self.target_directory = given.value.clone(),
            "progress" => self.progress = Some(true),
            "no-progress" | "quiet" => self.progress = Some(false),
            "json" => self.json = given.value.clone(),
            "trace" => self.trace = given.value.clone(),
            "dry-run" => self.dry_run = true,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Options {
    /// Takes an option of the copy.
    fn take(&mut self, given: &Given, pending: &mut Pending) -> Result<(), String> {
        match given.flag.long {
            "archive" => {
                self.recursive = true;
                self.archive = true;
                self.must_preserve = true;
                pending.follow = Some(Follow::Never);
                self.preserve = Preserve::ALL;
            }
            "attributes-only" => self.attributes_only = true,
            "backup" | "\0b" => {
                pending.backups = true;
                if let Some(value) = &given.value {
                    pending.backup_word = Some(value.to_string_lossy().into_owned());
                }
            }
            "copy-contents" => pending.copy_contents = true,
            "\0d" => {
                self.preserve.links = true;
                pending.follow = Some(Follow::Never);
            }
            "debug" => (self.debug, self.verbose) = (true, true),
            "force" => self.force = true,
            "\0H" => pending.follow = Some(Follow::CommandLine),
            "interactive" => pending.ask = Some(Replace::Ask),
            "link" => self.hard_link = true,
            "dereference" => pending.follow = Some(Follow::Always),
            "no-clobber" => pending.ask = Some(Replace::Skip),
            "no-dereference" => pending.follow = Some(Follow::Never),
            "\0p" => self.preserve_usual(),
            "parents" => self.parents = true,
            "recursive" | "\0R" => self.recursive = true,
            "remove-destination" => self.remove_first = true,
            "strip-trailing-slashes" => self.strip_slashes = true,
            "symbolic-link" => self.symbolic_link = true,
            "no-target-directory" => self.no_target_directory = true,
            "\0u" => pending.update = "older",
            "verbose" => self.verbose = true,
            "one-file-system" => self.one_file_system = true,
            "context" if given.value.is_some() => {
                self.reporter
                    .note("warning: ignoring --context; it requires an SELinux-enabled kernel");
            }
            // GNU's -Z is silent without SELinux; a note does no harm.
            "\0Z" | "context" => {
                self.reporter.note("warning: ignoring -Z; it requires an SELinux-enabled kernel");
            }
            "fsync" => self.fsync = true,
            "verify" => self.verify = true,
            "resume" => self.resume = given.value.clone(),
            _ => return self.take_value(given, pending),
        }
        Ok(())
    }

    /// Takes an option whose value selects what it does.
    fn take_value(&mut self, given: &Given, pending: &mut Pending) -> Result<(), String> {
        match given.flag.long {
            "preserve" if given.value.is_none() => self.preserve_usual(),
            "preserve" => {
                self.set_preserve(given, true, pending)?;
                self.must_preserve = true;
            }
            "no-preserve" => self.set_preserve(given, false, pending)?,
            "reflink" if given.value.is_none() => self.reflink = When::Always,
            "reflink" => self.reflink = when(choice(given, "--reflink", WHEN)?),
            "sparse" => self.sparse = when(choice(given, "--sparse", SPARSE)?),
            "uncached" if given.value.is_none() => self.uncached = When::Always,
            "uncached" => self.uncached = when(choice(given, "--uncached", WHEN)?),
            "suffix" => {
                pending.backups = true;
                pending.suffix = given.value.clone();
            }
            "update" if given.value.is_none() => pending.update = "older",
            "update" => pending.update = choice(given, "--update", UPDATE)?,
            "resume-check" => {
                self.check_content = choice(given, "--resume-check", RESUME_CHECK)? == "content";
            }
            "jobs" => self.jobs = count(given)?,
            "block-size" => self.block_bytes = size(given)?,
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
        pending: &mut Pending,
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
            }
            // Of `xattr,all`, `all` does not make the attributes optional again.
            if which == "xattr" {
                self.must_preserve_xattr = on;
            }
            if which == "context" {
                pending.context = on;
            }
        }
        Ok(())
    }

    /// Resolves the flags that depend on each other.
    fn resolve(&mut self, pending: Pending) -> Result<(), Usage> {
        if self.hard_link && self.symbolic_link {
            return Err("cannot make both hard and symbolic links".into());
        }
        // The last of -i and -n counts; -n also overrides each --update.
        (self.only_newer, self.replace) = match (pending.update, pending.ask) {
            (_, Some(Replace::Skip)) | ("none", _) => (false, Replace::Skip),
            ("none-fail", _) => (false, Replace::Refuse),
            (update, ask) => (update == "older", ask.unwrap_or(Replace::Always)),
        };
        if matches!(self.replace, Replace::Skip | Replace::Refuse) && pending.backups {
            return Err("--backup is mutually exclusive with -n or --update=none-fail".into());
        }
        self.check()?;
        if self.check_content && self.resume.is_none() {
            return Err("--resume-check needs --resume".into());
        }
        if pending.context {
            return Err(Usage::plain(
                "cannot preserve security context without an SELinux-enabled kernel",
            ));
        }
        self.suffix = backup::suffix(pending.suffix);
        if pending.backups {
            let (word, name) = match &pending.backup_word {
                Some(word) => (word.clone(), "backup type"),
                None => (std::env::var("VERSION_CONTROL").unwrap_or_default(), "$VERSION_CONTROL"),
            };
            let word = if word.is_empty() { "existing" } else { choose(&word, name, BACKUP)? };
            self.backup = backup::kind_of(word).flatten();
        }
        let usual = if self.recursive && !self.hard_link { Follow::Never } else { Follow::Always };
        self.follow = pending.follow.unwrap_or(usual);
        if self.recursive {
            self.as_regular = pending.copy_contents;
        }
        if self.replace == Replace::Ask {
            // Questions are asked one at a time, in order.
            self.jobs = 1;
        }
        Ok(())
    }
}
