//! The records of a manifest: their bytes, and the comparison of command lines.
//!
//! The first byte of a record is its kind. Numbers are little-endian. The header may be longer than
//! a record: it has a part in each of several, with the part's number and whether it is the last
//! one. After a crash between two of them the next run begins with the first part again.

use super::fingerprint::random;
use crate::choices::Replace;
use crate::messages::{quote, reason};
use crate::options::Options;
use crate::plan::{Copy, Usage};
use crate::request::Request;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const HEADER: u8 = b'H';
const NAMES: u8 = b'N';
const FINAL_MODE: u8 = b'M';
const FILES: u8 = b'F';

/// The first field of a header, which changes with the format.
const FORMAT: &[u8] = b"cringle cp 1";
const KEY_BYTES: usize = 16;
const FILE_BYTES: usize = KEY_BYTES + 8 + 8 + 8 + 1;
/// The bytes of the header in one record: a log's record has 1 MiB at most.
const PART_BYTES: usize = 512 << 10;
const IS_RECENT: u8 = 1;
const IS_DURABLE: u8 = 2;

/// The type of a file, as directories give it: `DT_REG` and others.
pub(super) type Kind = u8;

/// The record of a complete file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileEntry {
    pub(super) key: u128,
    pub(super) source: u64,
    pub(super) inode_and_user: u64,
    pub(super) target: u64,
    pub(super) is_recent: bool,
    pub(super) is_durable: bool,
}

/// Returns the record of names that are about to be created, each with its [`Kind`].
pub(super) fn names_to_create(names: &[(u128, Kind)]) -> Vec<u8> {
    let bytes = |(key, kind): &(u128, Kind)| key.to_le_bytes().into_iter().chain([*kind]);
    std::iter::once(NAMES).chain(names.iter().flat_map(bytes)).collect()
}

pub(super) fn final_mode(key: u128, mode: u32) -> Vec<u8> {
    [&[FINAL_MODE][..], &key.to_le_bytes(), &mode.to_le_bytes()].concat()
}

pub(super) fn files(entries: &[FileEntry]) -> Vec<u8> {
    let mut record = Vec::with_capacity(1 + entries.len() * FILE_BYTES);
    record.push(FILES);
    for entry in entries {
        record.extend(entry.key.to_le_bytes());
        record.extend(entry.source.to_le_bytes());
        record.extend(entry.inode_and_user.to_le_bytes());
        record.extend(entry.target.to_le_bytes());
        let flags = [(entry.is_recent, IS_RECENT), (entry.is_durable, IS_DURABLE)];
        record.push(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
    }
    record
}

fn file(bytes: &[u8]) -> Option<FileEntry> {
    let (key, rest) = bytes.split_first_chunk::<KEY_BYTES>()?;
    let (source, rest) = rest.split_first_chunk::<8>()?;
    let (inode_and_user, rest) = rest.split_first_chunk::<8>()?;
    let (target, rest) = rest.split_first_chunk::<8>()?;
    let &[flags] = rest else { return None };
    Some(FileEntry {
        key: u128::from_le_bytes(*key),
        source: u64::from_le_bytes(*source),
        inode_and_user: u64::from_le_bytes(*inode_and_user),
        target: u64::from_le_bytes(*target),
        is_recent: flags & IS_RECENT != 0,
        is_durable: flags & IS_DURABLE != 0,
    })
}

/// What the records of earlier runs say. A later record of a file replaces an earlier one.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) header: Option<Header>,
    pub(super) has_header: bool,
    /// The parts of the header that were read, and their number.
    parts: (Vec<u8>, u32),
    pub(super) files: HashMap<u128, FileEntry>,
    pub(super) names: HashMap<u128, Kind>,
    pub(super) final_modes: HashMap<u128, u32>,
}

impl Contents {
    pub(super) fn take(&mut self, record: &[u8]) -> io::Result<()> {
        let taken = match record.split_first() {
            Some((&HEADER, rest)) if !self.has_header => self.take_header(rest),
            Some((&NAMES, rest)) if self.has_header => self.take_names(rest),
            Some((&FINAL_MODE, rest)) if self.has_header => self.take_final_mode(rest),
            Some((&FILES, rest)) if self.has_header => self.take_files(rest),
            _ => None,
        };
        let strange =
            || io::Error::new(io::ErrorKind::InvalidData, "it has records of another kind");
        taken.ok_or_else(strange)
    }

    fn take_header(&mut self, bytes: &[u8]) -> Option<()> {
        let (number, rest) = bytes.split_first_chunk::<4>()?;
        let (&is_last, part) = rest.split_first()?;
        let (read, count) = &mut self.parts;
        match u32::from_le_bytes(*number) {
            // What an earlier run has left is no header.
            0 => (read.clear(), *count = 0),
            number if number == *count => ((), ()),
            _ => return None,
        };
        read.extend(part);
        *count += 1;
        if is_last != 0 {
            self.header = Some(Header::decode(&std::mem::take(read))?);
            self.has_header = true;
        }
        Some(())
    }

    fn take_names(&mut self, bytes: &[u8]) -> Option<()> {
        for name in bytes.chunks(KEY_BYTES + 1) {
            let (key, kind) = name.split_first_chunk::<KEY_BYTES>()?;
            let &[kind] = kind else { return None };
            self.names.insert(u128::from_le_bytes(*key), kind);
        }
        Some(())
    }

    fn take_final_mode(&mut self, bytes: &[u8]) -> Option<()> {
        let (key, mode) = bytes.split_first_chunk::<KEY_BYTES>()?;
        let mode = u32::from_le_bytes(mode.try_into().ok()?);
        self.final_modes.insert(u128::from_le_bytes(*key), mode);
        Some(())
    }

    fn take_files(&mut self, bytes: &[u8]) -> Option<()> {
        for bytes in bytes.chunks(FILE_BYTES) {
            let entry = file(bytes)?;
            self.files.insert(entry.key, entry);
        }
        Some(())
    }
}

/// The command line that a manifest belongs to, and the copies that it means.
pub(super) struct Header {
    /// A random number, which no other manifest has.
    pub(super) number: u64,
    /// What must not change between the runs: pairs of a description and a value.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    copies: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Header {
    pub(super) fn of(request: &Request, copies: Vec<Copy>) -> Result<Header, Usage> {
        let bytes = |text: OsString| text.into_vec();
        let mut fields = names(request)?;
        let options = option_fields(&request.options).into_iter();
        fields.extend(options.map(|(name, value)| (name.to_owned(), value.into_bytes())));
        let fields = fields.into_iter().map(|(name, value)| (name.into_bytes(), value));
        let copies = copies.into_iter().map(|copy| (bytes(copy.source), bytes(copy.target)));
        Ok(Header { number: random(), fields: fields.collect(), copies: copies.collect() })
    }

    pub(super) fn copies(&self) -> Vec<Copy> {
        let name = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let copy =
            |(source, target): &_| Copy { source: name(source), target: name(target), below: None };
        self.copies.iter().map(copy).collect()
    }

    /// Encodes the header as records.
    pub(super) fn encode(&self) -> Vec<Vec<u8>> {
        let bytes = self.bytes();
        let mut parts = (0u32..).zip(bytes.chunks(PART_BYTES)).peekable();
        let mut records = Vec::new();
        while let Some((number, part)) = parts.next() {
            let is_last = u8::from(parts.peek().is_none());
            records.push([&[HEADER], &number.to_le_bytes()[..], &[is_last], part].concat());
        }
        records
    }

    /// Returns numbers, then texts that end in a zero byte, which none of them has.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.number.to_le_bytes());
        bytes.extend((self.fields.len() as u32).to_le_bytes());
        bytes.extend([FORMAT, &[0]].concat());
        for (name, value) in self.fields.iter().chain(&self.copies) {
            bytes.extend([name, &[0][..], value, &[0]].concat());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Header> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let mut texts = rest.strip_suffix(&[0])?.split(|&byte| byte == 0).map(<[u8]>::to_vec);
        if texts.next()? != FORMAT {
            return None;
        }
        let mut pairs = Vec::new();
        while let Some(first) = texts.next() {
            pairs.push((first, texts.next()?));
        }
        let copies = pairs.split_off(count.min(pairs.len()));
        Some(Header { number: u64::from_le_bytes(*number), fields: pairs, copies })
    }

    /// Fails if the manifest belongs to another command line than the one that is `given`.
    pub(super) fn check(&self, given: &Header, path: &OsStr) -> Result<(), Usage> {
        let shown = |field: Option<&(Vec<u8>, Vec<u8>)>| match field {
            None => "nothing".to_owned(),
            Some((name, value)) => {
                format!("{} {}", String::from_utf8_lossy(name), quote(OsStr::from_bytes(value)))
            }
        };
        let most = self.fields.len().max(given.fields.len());
        let differs = (0..most).find(|&at| self.fields.get(at) != given.fields.get(at));
        let Some(at) = differs else { return Ok(()) };
        Err(Usage::plain(format!(
            "manifest {} belongs to another copy, with {} instead of {}; repeat that command line, or \
             name another manifest",
            quote(path),
            shown(self.fields.get(at)),
            shown(given.fields.get(at)),
        )))
    }
}

/// Returns the names of the command line as they were given. If one of them is relative, the
/// working directory comes first: elsewhere they name other files.
fn names(request: &Request) -> Result<Vec<(String, Vec<u8>)>, Usage> {
    let names = request.names.iter().map(|name| ("the name", name));
    let directory = request.target_directory.iter().map(|name| ("the target directory", name));
    let field = |(what, name): (&str, &OsString)| (what.to_owned(), name.clone().into_vec());
    let mut fields: Vec<_> = names.chain(directory).map(field).collect();
    if fields.iter().any(|(_, name)| !name.starts_with(b"/")) {
        let here = std::env::current_dir().map_err(|e| {
            Usage::plain(format!("--resume: cannot name the working directory: {}", reason(&e)))
        })?;
        fields.insert(0, field(("the working directory", &here.into_os_string())));
    }
    Ok(fields)
}

/// Returns the options on which the result depends.
fn option_fields(options: &Options) -> Vec<(&'static str, String)> {
    let preserve = options.preserve;
    let flag = |is_set: bool| if is_set { "yes" } else { "no" }.to_owned();
    vec![
        ("recursion", flag(options.recursive)),
        ("links to follow", format!("{:?}", options.follow)),
        ("mode preserved", flag(preserve.mode)),
        ("default mode", flag(options.no_preserve_mode)),
        ("ownership preserved", flag(preserve.ownership)),
        ("timestamps preserved", flag(preserve.timestamps)),
        ("links preserved", flag(preserve.links)),
        ("xattr preserved", flag(preserve.xattr)),
        ("attributes required", flag(options.must_preserve)),
        ("xattr required", flag(options.must_preserve_xattr)),
        ("--force", flag(options.force)),
        ("--remove-destination", flag(options.remove_first)),
        ("--one-file-system", flag(options.one_file_system)),
        ("--strip-trailing-slashes", flag(options.strip_slashes)),
        ("--no-target-directory", flag(options.no_target_directory)),
        ("--reflink", format!("{:?}", options.reflink)),
        ("--sparse", format!("{:?}", options.sparse)),
        ("POSIXLY_CORRECT", flag(options.posix)),
        ("--fsync", flag(options.fsync)),
        ("--verify", flag(options.verify)),
        ("umask", format!("{:03o}", options.umask)),
    ]
}

/// Fails for options whose result depends on targets that an interrupted run may have left.
pub(super) fn check_options(request: &Request) -> Result<(), Usage> {
    let options = &request.options;
    let refused = [
        (options.replace == Replace::Ask, "-i"),
        (options.replace == Replace::Skip, "-n or --update=none"),
        (options.replace == Replace::Refuse, "--update=none-fail"),
        (options.only_newer, "-u"),
        (options.backup.is_some(), "--backup"),
        (options.hard_link, "--link"),
        (options.symbolic_link, "--symbolic-link"),
        (options.attributes_only, "--attributes-only"),
        (options.parents, "--parents"),
        (options.recursive && options.as_regular, "--copy-contents"),
        (request.dry_run, "--dry-run"),
    ];
    match refused.iter().find(|(is_set, _)| *is_set) {
        Some((_, name)) => Err(format!(
            "--resume cannot be combined with {name}: what an interrupted copy has left would change \
             the result"
        )
        .into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> Header {
        let names = names.iter().map(|name| OsString::from(*name)).collect();
        let request = Request { names, ..Request::default() };
        let copy = |source: &str| Copy { source: source.into(), target: "t\n".into(), below: None };
        let header = Header::of(&request, vec![copy("/a\nb"), copy("")]);
        header.unwrap_or_else(|usage| panic!("{}", usage.text))
    }

    #[test]
    fn records_are_read_as_written() {
        let mut contents = Contents::default();
        let header = header(&["/a\nb", "/c"]);
        let entry = FileEntry {
            key: 7 << 100,
            source: 1,
            inode_and_user: 3,
            target: 2,
            is_recent: true,
            is_durable: false,
        };
        let other = FileEntry { key: 8, is_recent: false, is_durable: true, ..entry };
        let names = [(1, libc::DT_DIR), (2 << 90, libc::DT_LNK)];
        let records = [names_to_create(&names), final_mode(1, 0o555)];
        let files = [files(&[other, entry]), files(&[entry])];
        for record in header.encode().iter().chain(&records).chain(&files) {
            contents.take(record).unwrap();
        }
        let read = contents.header.unwrap();
        assert_eq!((read.number, &read.fields), (header.number, &header.fields));
        assert_eq!(read.copies, header.copies);
        assert_eq!(contents.names, HashMap::from(names));
        assert_eq!(contents.final_modes, HashMap::from([(1, 0o555)]));
        assert_eq!(contents.files, HashMap::from([(entry.key, entry), (8, other)]));
    }

    #[test]
    fn strange_records_are_refused() {
        let whole = header(&["/a"]).encode().remove(0);
        let entry = FileEntry {
            key: 1,
            source: 1,
            inode_and_user: 1,
            target: 1,
            is_recent: true,
            is_durable: true,
        };
        let files = files(&[entry]);
        for record in [&b""[..], b"x", b"H", &whole[..40], &files, b"N"] {
            assert!(Contents::default().take(record).is_err(), "{record:?}");
        }
        let mut contents = Contents::default();
        contents.take(&whole).unwrap();
        assert!(contents.take(&whole).is_err());
        assert!(contents.take(&files[..files.len() - 1]).is_err());
        assert!(contents.take(&names_to_create(&[(1, 4)])[..KEY_BYTES + 1]).is_err());
    }

    #[test]
    fn long_header_is_read_from_its_last_beginning() {
        let names: Vec<String> = (0..2).map(|n| format!("/{n}").repeat(PART_BYTES / 2)).collect();
        let header = header(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let records = header.encode();
        assert_eq!(records.len(), 3);
        let mut contents = Contents::default();
        // The first run was killed after two of the records.
        for record in records[..2].iter().chain(&records) {
            assert!(!contents.has_header);
            contents.take(record).unwrap();
        }
        let read = contents.header.unwrap();
        assert_eq!((&read.fields, &read.copies), (&header.fields, &header.copies));
        // A part is missing.
        let mut contents = Contents::default();
        contents.take(&records[0]).unwrap();
        assert!(contents.take(&records[2]).is_err());
    }

    #[test]
    fn another_command_line_is_named() {
        let first = header(&["/a", "/b"]);
        let check =
            |other: &Header| first.check(other, OsStr::new("m")).map_err(|usage| usage.text).err();
        assert_eq!(check(&header(&["/a", "/b"])), None);
        let text = check(&header(&["/a", "/c"])).unwrap();
        assert!(text.contains("with the name '/b' instead of the name '/c'"), "{text}");
        let mut other = header(&["/a", "/b"]);
        other.fields.last_mut().unwrap().1 = b"077".to_vec();
        assert!(check(&other).unwrap().contains("instead of umask '077'"));
    }
}
