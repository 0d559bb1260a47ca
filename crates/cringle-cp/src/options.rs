//! What a copy does: the options that a program builds and the command line sets.

use crate::backup;
use crate::messages::Reporter;
use std::ffi::OsString;
use std::sync::Arc;

/// Which symbolic links of the sources are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// None: a link is copied as a link.
    Never,
    /// Those that are named as sources.
    CommandLine,
    /// All.
    Always,
}

/// Which existing files are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// All.
    All,
    /// None; each existing file is skipped.
    None,
    /// None; each existing file is a failure.
    NoneFail,
    /// Those with an older modification time than their source.
    Older,
}

/// What happens to a target that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replace {
    Always,
    Ask,
    /// `-n`: keep it and report nothing.
    Skip,
    /// `--update=none-fail`: keep it and fail.
    Refuse,
}

/// When an optimisation is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Not at all.
    Never,
    /// Where it works.
    Auto,
    /// Always: without regard to cost. A file that cannot share blocks is a failure.
    Always,
}

/// The attributes that a copy takes over from its source.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Preserve {
    /// Permissions and access control lists.
    pub mode: bool,
    /// Owner and group.
    pub ownership: bool,
    /// Access and modification times.
    pub timestamps: bool,
    /// Hard links among the copied files.
    pub links: bool,
    /// Extended attributes.
    pub xattr: bool,
}

impl Preserve {
    /// Everything.
    pub const ALL: Preserve =
        Preserve { mode: true, ownership: true, timestamps: true, links: true, xattr: true };
}

/// How files are copied.
///
/// The options are those of `cp`, with the same defaults.
///
/// ```
/// use cringle_cp::{Options, Preserve, Update};
///
/// let options = Options::new()
///     .recursive(true)
///     .preserve(Preserve { timestamps: true, ..Preserve::default() })
///     .update(Update::Older);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) recursive: bool,
    pub(crate) follow: Follow,
    pub(crate) preserve: Preserve,
    /// An attribute that cannot be preserved is a failure.
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
    pub(crate) no_target_directory: bool,
    pub(crate) backup: Option<backup::Kind>,
    pub(crate) suffix: OsString,
    /// Special files are read as if they were regular ones.
    pub(crate) as_regular: bool,
    pub(crate) reflink: When,
    pub(crate) sparse: When,
    pub(crate) uncached: When,
    pub(crate) attributes_only: bool,
    /// `POSIXLY_CORRECT` is set.
    pub(crate) posix: bool,
    pub(crate) fsync: bool,
    pub(crate) jobs: usize,
    pub(crate) block_bytes: usize,
    pub(crate) verify: bool,
    /// The process's, read when the copy starts.
    pub(crate) umask: u32,
    /// Each copy has its own.
    pub(crate) reporter: Arc<Reporter>,
}

impl Default for Options {
    fn default() -> Options {
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
            no_target_directory: false,
            backup: None,
            suffix: "~".into(),
            as_regular: true,
            reflink: When::Auto,
            sparse: When::Auto,
            uncached: When::Auto,
            attributes_only: false,
            posix: false,
            fsync: false,
            jobs: (4 * cores).min(16),
            block_bytes: 128 << 10,
            verify: false,
            umask: 0o022,
            reporter: Arc::new(Reporter::collecting()),
        }
    }
}

impl Options {
    /// Returns the defaults: one file, its data and mode, an existing file replaced.
    pub fn new() -> Options {
        Options::default()
    }

    /// Copies directories and all they contain. Symbolic links and special files are then copied as
    /// such.
    pub fn recursive(mut self, recursive: bool) -> Options {
        self.recursive = recursive;
        self.as_regular = !recursive;
        self.follow = if recursive { Follow::Never } else { Follow::Always };
        self
    }

    /// Copies whole trees with all attributes, as `cp -a` does.
    ///
    /// Extended attributes that the target cannot hold are left out; any other attribute that
    /// cannot be preserved is a failure.
    pub fn archive(self) -> Options {
        let options = self.recursive(true).preserve(Preserve::ALL);
        Options { must_preserve_xattr: false, ..options }
    }

    /// Selects the symbolic links that are followed. Call it after
    /// [`recursive`](Options::recursive).
    pub fn follow(mut self, follow: Follow) -> Options {
        self.follow = follow;
        self
    }

    /// Selects the attributes to preserve; one that cannot be preserved is a failure.
    pub fn preserve(mut self, preserve: Preserve) -> Options {
        self.preserve = preserve;
        self.must_preserve = true;
        self.must_preserve_xattr = preserve.xattr;
        self
    }

    /// Selects the existing files to replace.
    pub fn update(mut self, update: Update) -> Options {
        self.only_newer = update == Update::Older;
        self.replace = match update {
            Update::All | Update::Older => Replace::Always,
            Update::None => Replace::Skip,
            Update::NoneFail => Replace::Refuse,
        };
        self
    }

    /// Removes an existing file that cannot be opened for writing, and tries again.
    pub fn force(mut self, force: bool) -> Options {
        self.force = force;
        self
    }

    /// Skips directories on another file system than their source.
    pub fn one_file_system(mut self, one_file_system: bool) -> Options {
        self.one_file_system = one_file_system;
        self
    }

    /// Copies onto the target itself, even where it is a directory.
    pub fn no_target_directory(mut self, no_target_directory: bool) -> Options {
        self.no_target_directory = no_target_directory;
        self
    }

    /// Shares the blocks of source and copy where the file system can. [`When::Always`] excludes
    /// every choice of [`sparse`](Options::sparse) but [`When::Auto`].
    pub fn reflink(mut self, reflink: When) -> Options {
        self.reflink = reflink;
        self
    }

    /// Makes holes: those of the source by default; with [`When::Always`], wherever the source has
    /// zeros.
    pub fn sparse(mut self, sparse: When) -> Options {
        self.sparse = sparse;
        self
    }

    /// Copies past the page cache (`RWF_DONTCACHE`, Linux 6.14), so that the copy does not displace
    /// what other programs read. By default this concerns files of 4 MiB or more, once the copy has
    /// more bytes than a quarter of the available memory (from Linux 6.16 on). With
    /// [`When::Always`], it concerns all files that are larger than a block of 128 KiB. Where the
    /// kernel or the file system cannot, the cache is used.
    pub fn uncached(mut self, uncached: When) -> Options {
        self.uncached = uncached;
        self
    }

    /// Syncs all data and directories to the disk before the copy returns. No file has its name
    /// before its data are on the disk.
    pub fn fsync(mut self, fsync: bool) -> Options {
        self.fsync = fsync;
        self
    }

    /// Reads each copy back from the disk and compares it with its source.
    pub fn verify(mut self, verify: bool) -> Options {
        self.verify = verify;
        self
    }

    /// Sets the number of threads, from 1 to 256. The default is four for each core, at most 16.
    pub fn jobs(mut self, jobs: usize) -> Options {
        self.jobs = jobs.clamp(1, 256);
        self
    }

    /// Fails if the options make no sense together.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.reflink == When::Always && self.sparse != When::Auto {
            return Err("--reflink can be used only with --sparse=auto".into());
        }
        Ok(())
    }

    /// Returns whether a symbolic link is followed.
    pub(crate) fn follows(&self, on_command_line: bool) -> bool {
        match self.follow {
            Follow::Always => true,
            Follow::CommandLine => on_command_line,
            Follow::Never => false,
        }
    }
}
