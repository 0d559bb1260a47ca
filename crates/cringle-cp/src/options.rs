//! What a copy does: the options that a program builds and the command line sets.

use crate::backup;
use crate::choices::{Follow, Preserve, Replace, Update, When};
use crate::messages::Reporter;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// `-a`: extended attributes that cannot be set are not reported, unless they must be.
    pub(crate) archive: bool,
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
    /// The path of the manifest.
    pub(crate) resume: Option<OsString>,
    /// A recorded file is compared with its source.
    pub(crate) check_content: bool,
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
            archive: false,
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
            resume: None,
            check_content: false,
            umask: 0o022,
            reporter: Arc::new(Reporter::collecting()),
        }
    }
}

impl Options {
    /// Returns the defaults: one file, its data and mode, an existing file replaced.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("letter"), "Dear reader")?;
    ///
    /// assert_eq!(copy(&[at("letter")], at("copy"), &Options::new())?.files, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new() -> Options {
        Options::default()
    }

    /// Copies directories and all they contain. Symbolic links and special files are then copied as
    /// such.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::create_dir_all(at("photos/cats"))?;
    ///
    /// copy(&[at("photos")], at("copy"), &Options::new()).unwrap_err(); // It is a directory.
    /// assert_eq!(copy(&[at("photos")], at("copy"), &Options::new().recursive(true))?.directories, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::create_dir(at("photos"))?;
    /// # std::os::unix::fs::symlink("cat.jpg", at("photos/newest"))?;
    ///
    /// copy(&[at("photos")], at("backup"), &Options::new().archive())?;
    /// assert!(at("backup/newest").is_symlink());
    /// let modified = |name| at(name).metadata()?.modified();
    /// assert_eq!(modified("backup")?, modified("photos")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn archive(self) -> Options {
        let options = self.recursive(true).preserve(Preserve::ALL);
        Options { must_preserve_xattr: false, archive: true, ..options }
    }

    /// Selects the symbolic links that are followed. Call it after
    /// [`recursive`](Options::recursive).
    ///
    /// ```
    /// use cringle_cp::{Follow, Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::create_dir(at("photos"))?;
    /// # std::fs::write(at("cat.jpg"), "a cat")?;
    /// # std::os::unix::fs::symlink("../cat.jpg", at("photos/newest"))?;
    ///
    /// let options = Options::new().recursive(true).follow(Follow::Always);
    /// copy(&[at("photos")], at("copy"), &options)?;
    /// assert!(at("copy/newest").symlink_metadata()?.is_file());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn follow(mut self, follow: Follow) -> Options {
        self.follow = follow;
        self
    }

    /// Selects the attributes to preserve; one that cannot be preserved is a failure.
    ///
    /// ```
    /// use cringle_cp::{Options, Preserve, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("script"), "#!/bin/sh")?;
    /// # std::fs::set_permissions(at("script"), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    /// use std::os::unix::fs::PermissionsExt;
    ///
    /// let mode = Preserve { mode: true, ..Preserve::default() };
    /// copy(&[at("script")], at("copy"), &Options::new().preserve(mode))?;
    /// assert_eq!(at("copy").metadata()?.permissions().mode() & 0o777, 0o777);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preserve(mut self, preserve: Preserve) -> Options {
        self.preserve = preserve;
        self.must_preserve = true;
        self.must_preserve_xattr = preserve.xattr;
        self
    }

    /// Selects the existing files to replace.
    ///
    /// ```
    /// use cringle_cp::{Options, Update, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("old"), "old")?;
    /// # std::fs::File::open(at("old"))?.set_modified(std::time::UNIX_EPOCH)?;
    /// # std::fs::write(at("new"), "new")?;
    ///
    /// let only_newer = Options::new().update(Update::Older);
    /// assert_eq!(copy(&[at("old")], at("new"), &only_newer)?.kept_files, 1);
    /// assert_eq!(copy(&[at("new")], at("old"), &only_newer)?.files, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("new"), "new")?;
    /// # std::fs::write(at("old"), "old")?;
    /// # let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o444);
    /// # std::fs::set_permissions(at("old"), read_only)?;
    ///
    /// // `old` is read-only.
    /// copy(&[at("new")], at("old"), &Options::new().force(true))?;
    /// assert_eq!(std::fs::read(at("old"))?, b"new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn force(mut self, force: bool) -> Options {
        self.force = force;
        self
    }

    /// Skips directories on another file system than their source.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::create_dir(at("root"))?;
    ///
    /// // What is mounted below `root` is not copied.
    /// let options = Options::new().archive().one_file_system(true);
    /// assert_eq!(copy(&[at("root")], at("backup"), &options)?.directories, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn one_file_system(mut self, one_file_system: bool) -> Options {
        self.one_file_system = one_file_system;
        self
    }

    /// Copies onto the target itself, even where it is a directory.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::create_dir_all(at("photos"))?;
    /// # std::fs::write(at("photos/cat.jpg"), "a cat")?;
    /// # std::fs::create_dir_all(at("backup"))?;
    ///
    /// // `backup` exists, and would receive `backup/photos` otherwise.
    /// let options = Options::new().archive().no_target_directory(true);
    /// copy(&[at("photos")], at("backup"), &options)?;
    /// assert!(at("backup/cat.jpg").exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn no_target_directory(mut self, no_target_directory: bool) -> Options {
        self.no_target_directory = no_target_directory;
        self
    }

    /// Shares the blocks of source and copy where the file system can. [`When::Always`] excludes
    /// every choice of [`sparse`](Options::sparse) but [`When::Auto`].
    ///
    /// ```
    /// use cringle_cp::{Options, When, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("disk.img"), [7; 1 << 16])?;
    ///
    /// let shared = copy(&[at("disk.img")], at("copy"), &Options::new().reflink(When::Always));
    /// if let Err(error) = shared {
    ///     println!("the file system shares no blocks: {error}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reflink(mut self, reflink: When) -> Options {
        self.reflink = reflink;
        self
    }

    /// Makes holes: those of the source by default; with [`When::Always`], wherever the source has
    /// zeros.
    ///
    /// ```
    /// use cringle_cp::{Options, When, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("zeros"), [0; 1 << 20])?;
    /// use std::os::unix::fs::MetadataExt;
    ///
    /// copy(&[at("zeros")], at("copy"), &Options::new().sparse(When::Always))?;
    /// println!("{} blocks on disk", at("copy").metadata()?.blocks());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sparse(mut self, sparse: When) -> Options {
        self.sparse = sparse;
        self
    }

    /// Copies past the page cache (`RWF_DONTCACHE`, Linux 6.14), so that the copy does not displace
    /// what other programs read. By default this concerns files of 4 MiB or more, once the copy has
    /// more bytes than a quarter of the available memory (from Linux 6.16 on). With
    /// [`When::Always`], it concerns all files that are larger than a block of 128 KiB. Where the
    /// kernel or the file system cannot, the cache is used.
    ///
    /// ```
    /// use cringle_cp::{Options, When, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("backup.tar"), [7; 1 << 20])?;
    ///
    /// copy(&[at("backup.tar")], at("copy"), &Options::new().uncached(When::Always))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn uncached(mut self, uncached: When) -> Options {
        self.uncached = uncached;
        self
    }

    /// Syncs all data and directories to the disk before the copy returns. No file has its name
    /// before its data are on the disk.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("letter"), "Dear reader")?;
    ///
    /// copy(&[at("letter")], at("copy"), &Options::new().fsync(true))?;
    /// // A loss of power loses nothing now.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fsync(mut self, fsync: bool) -> Options {
        self.fsync = fsync;
        self
    }

    /// Reads each copy back from the disk and compares it with its source.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::write(at("letter"), "Dear reader")?;
    ///
    /// assert_eq!(copy(&[at("letter")], at("copy"), &Options::new().verify(true))?.failures, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(mut self, verify: bool) -> Options {
        self.verify = verify;
        self
    }

    /// Records in the file `manifest` what has been copied. The same call with the same manifest
    /// continues a copy that was interrupted: files that are complete are not copied again. They
    /// are recognised by the sizes and times of source and target.
    ///
    /// The manifest must be on a file system that keeps it, outside of source and target, and it
    /// belongs to one copy. Options under which existing targets are kept are refused.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let (photos, backup) = (place.path().join("photos"), place.path().join("backup"));
    /// # std::fs::create_dir(&photos)?;
    /// # std::fs::write(photos.join("cat.jpg"), "a cat")?;
    ///
    /// let options = Options::new().archive().resume(place.path().join("manifest"));
    /// assert_eq!(copy(&[&photos], &backup, &options)?.files, 1);
    /// let again = copy(&[&photos], &backup, &options)?;
    /// assert_eq!((again.files, again.kept_files), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(mut self, manifest: impl Into<PathBuf>) -> Options {
        self.resume = Some(manifest.into().into_os_string());
        self
    }

    /// With [`resume`](Options::resume): compares each file that was copied before with its source.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::create_dir(at("photos"))?;
    /// # std::fs::write(at("photos/cat.jpg"), "a cat")?;
    ///
    /// let options = Options::new().archive().resume(at("manifest"));
    /// copy(&[at("photos")], at("backup"), &options)?;
    /// // Only the contents can show whether the disk has lost something meanwhile.
    /// let again = copy(&[at("photos")], at("backup"), &options.resume_check_content(true))?;
    /// assert_eq!((again.files, again.kept_files), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume_check_content(mut self, check_content: bool) -> Options {
        self.check_content = check_content;
        self
    }

    /// Sets the number of threads, from 1 to 256. The default is four for each core, at most 16.
    ///
    /// ```
    /// use cringle_cp::{Options, copy};
    /// # let place = tempfile::tempdir()?;
    /// # let at = |name: &str| place.path().join(name);
    /// # std::fs::create_dir(at("photos"))?;
    ///
    /// // A slow network file system: more requests at once than cores.
    /// copy(&[at("photos")], at("backup"), &Options::new().archive().jobs(64))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
