//! What the options of a copy choose among.

/// Which symbolic links of the sources are followed.
///
/// ```
/// use cringle_cp::{Follow, Options, copy};
/// # let place = tempfile::tempdir()?;
/// # let at = |name: &str| place.path().join(name);
/// # std::fs::write(at("file"), "text")?;
/// # std::os::unix::fs::symlink("file", at("link"))?;
///
/// let options = Options::new().follow(Follow::Never);
/// copy(&[at("link")], at("copy"), &options)?;
/// assert_eq!(std::fs::read_link(at("copy"))?.to_str(), Some("file"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use cringle_cp::{Options, Update, copy};
/// # let place = tempfile::tempdir()?;
/// # let at = |name: &str| place.path().join(name);
/// # std::fs::write(at("new"), "new")?;
/// # std::fs::write(at("old"), "old")?;
///
/// copy(&[at("new")], at("old"), &Options::new().update(Update::None))?;
/// assert_eq!(std::fs::read(at("old"))?, b"old");
/// copy(&[at("new")], at("old"), &Options::new().update(Update::NoneFail)).unwrap_err();
/// copy(&[at("new")], at("old"), &Options::new().update(Update::All))?;
/// assert_eq!(std::fs::read(at("old"))?, b"new");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use cringle_cp::{Options, When, copy};
/// # let place = tempfile::tempdir()?;
/// # let at = |name: &str| place.path().join(name);
/// # std::fs::write(at("zeros"), [0; 1 << 20])?;
///
/// copy(&[at("zeros")], at("copy"), &Options::new().sparse(When::Always))?;
/// assert_eq!(std::fs::read(at("copy"))?, [0; 1 << 20]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use cringle_cp::{Options, Preserve, copy};
/// # let place = tempfile::tempdir()?;
/// # let at = |name: &str| place.path().join(name);
/// # std::fs::write(at("letter"), "Dear reader")?;
///
/// let times = Preserve { timestamps: true, ..Preserve::default() };
/// copy(&[at("letter")], at("copy"), &Options::new().preserve(times))?;
/// assert_eq!(at("copy").metadata()?.modified()?, at("letter").metadata()?.modified()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    ///
    /// ```
    /// use cringle_cp::Preserve;
    ///
    /// let all_but_owner = Preserve { ownership: false, ..Preserve::ALL };
    /// assert!(all_but_owner.timestamps && !all_but_owner.ownership);
    /// ```
    pub const ALL: Preserve =
        Preserve { mode: true, ownership: true, timestamps: true, links: true, xattr: true };
}
