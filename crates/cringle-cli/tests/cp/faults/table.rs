//! The rows and columns of the matrix: faults and ways of copying.

use cringle_testing::fuse::{ALWAYS, Change, Op, Rules};

/// The side of the copy that lies on the faulty file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Source,
    Target,
    Both,
}

pub(super) struct Fault {
    pub(super) name: &'static str,
    /// The side that the fault affects.
    pub(super) of: Side,
    pub(super) rules: fn(u64) -> Rules,
}

const fn fault(name: &'static str, of: Side, rules: fn(u64) -> Rules) -> Fault {
    Fault { name, of, rules }
}

fn fails(op: Op, errno: i32, from: u64) -> Rules {
    Rules::failing(op, errno, from, ALWAYS)
}

/// Fails once, after a number of successes.
fn later(op: Op, errno: i32, after: usize) -> Rules {
    let mut rules = Rules::failing(op, errno, 0, 1);
    rules.failures[0].after = after;
    rules
}

pub(super) const FAULTS: &[Fault] = &[
    fault("no fault", Side::Both, |_| Rules::default()),
    fault("no fault, direct", Side::Both, |_| Rules::default().direct()),
    fault("open of the source: EIO", Side::Source, |_| fails(Op::Open, libc::EIO, 0)),
    fault("lookup: EIO", Side::Source, |_| fails(Op::Lookup, libc::EIO, 0)),
    fault("stat: EIO", Side::Source, |_| fails(Op::Getattr, libc::EIO, 0)),
    fault("stat: EIO once", Side::Both, |_| later(Op::Getattr, libc::EIO, 0)),
    fault("stat: EIO the second time", Side::Both, |_| later(Op::Getattr, libc::EIO, 1)),
    fault("stat: EIO the third time", Side::Both, |_| later(Op::Getattr, libc::EIO, 2)),
    fault("stat: EIO the fourth time", Side::Both, |_| later(Op::Getattr, libc::EIO, 3)),
    fault("read: EIO at once", Side::Source, |_| fails(Op::Read, libc::EIO, 0)),
    fault("read: EIO in the middle", Side::Source, |n| fails(Op::Read, libc::EIO, n / 2)),
    fault("read: EIO in the middle, direct", Side::Source, |n| {
        fails(Op::Read, libc::EIO, n / 2).direct()
    }),
    fault("read: EIO for the last byte, direct", Side::Source, |n| {
        fails(Op::Read, libc::EIO, n.saturating_sub(1)).direct()
    }),
    fault("read: EIO at the end, direct", Side::Source, |n| fails(Op::Read, libc::EIO, n).direct()),
    fault("read: EACCES in the middle", Side::Source, |n| fails(Op::Read, libc::EACCES, n / 2)),
    fault("read: EIO once", Side::Source, |n| Rules::failing(Op::Read, libc::EIO, n / 2, 1)),
    fault("read: EAGAIN in the middle", Side::Source, |n| {
        fails(Op::Read, libc::EAGAIN, n / 2).direct()
    }),
    fault("attributes of the source: EIO", Side::Source, |_| fails(Op::Xattr, libc::EIO, 0)),
    fault("open: EINTR three times", Side::Both, |_| Rules::failing(Op::Open, libc::EINTR, 0, 3)),
    fault("read: EINTR three times", Side::Source, |n| {
        Rules::failing(Op::Read, libc::EINTR, n / 2, 3).direct()
    }),
    fault("reads of 1000 bytes", Side::Source, |_| Rules {
        longest_read: 1000,
        ..Rules::default().direct()
    }),
    fault("reads of 1000 bytes, EIO in the middle", Side::Source, |n| Rules {
        longest_read: 1000,
        ..fails(Op::Read, libc::EIO, n / 2).direct()
    }),
    fault("claims to be empty", Side::Source, |_| Rules {
        claims: Some(0),
        ..Rules::default().direct()
    }),
    fault("claims half its size", Side::Source, |n| Rules {
        claims: Some(n / 2),
        ..Rules::default().direct()
    }),
    fault("claims half its size, reads of just that", Side::Source, |n| Rules {
        claims: Some(n / 2),
        longest_read: (n / 2) as usize,
        ..Rules::default().direct()
    }),
    fault("claims more than it has", Side::Source, |n| Rules {
        claims: Some(n + 70_000),
        ..Rules::default().direct()
    }),
    fault("grows", Side::Source, |n| Rules {
        change: Some(Change { at: n / 2, length: n as usize + 5000, for_one_read: false }),
        ..Rules::default().direct()
    }),
    fault("grows at its end", Side::Source, |n| Rules {
        change: Some(Change { at: n, length: n as usize + 300_000, for_one_read: false }),
        ..Rules::default().direct()
    }),
    fault("shrinks", Side::Source, |n| Rules {
        longest_read: 1 + n as usize / 4,
        change: Some(Change { at: n / 2, length: n as usize / 3, for_one_read: false }),
        ..Rules::default().direct()
    }),
    fault("is truncated for one read", Side::Source, |n| Rules {
        longest_read: 1 + n as usize / 4,
        change: Some(Change { at: n / 2, length: 0, for_one_read: true }),
        ..Rules::default().direct()
    }),
    fault("looks sparse", Side::Source, |_| Rules { no_blocks: true, ..Rules::default() }),
    fault("looks sparse, reads of 1000 bytes", Side::Source, |_| Rules {
        no_blocks: true,
        longest_read: 1000,
        ..Rules::default().direct()
    }),
    fault("looks sparse, EIO in the middle", Side::Source, |n| Rules {
        no_blocks: true,
        ..fails(Op::Read, libc::EIO, n / 2).direct()
    }),
    fault("looks sparse, claims half its size", Side::Source, |n| Rules {
        no_blocks: true,
        claims: Some(n / 2),
        ..Rules::default().direct()
    }),
    fault("looks sparse, claims more than it has", Side::Source, |n| Rules {
        no_blocks: true,
        claims: Some(n + 70_000),
        ..Rules::default().direct()
    }),
    fault("looks sparse, grows", Side::Source, |n| Rules {
        no_blocks: true,
        change: Some(Change { at: n / 2, length: n as usize + 5000, for_one_read: false }),
        ..Rules::default().direct()
    }),
    fault("looks sparse, seek: EIO", Side::Source, |_| Rules {
        no_blocks: true,
        ..fails(Op::Seek, libc::EIO, 0)
    }),
    fault("looks sparse, seek: EIO in the middle", Side::Source, |n| Rules {
        no_blocks: true,
        ..fails(Op::Seek, libc::EIO, n / 2)
    }),
    fault("looks sparse, each hole is where it was looked for", Side::Source, |_| Rules {
        no_blocks: true,
        seek_lies: Some(u64::MAX),
        ..Rules::default()
    }),
    fault("looks sparse, each hole is at 0", Side::Source, |_| Rules {
        no_blocks: true,
        seek_lies: Some(0),
        ..Rules::default()
    }),
    fault("directory: EIO", Side::Source, |_| fails(Op::Readdir, libc::EIO, 0)),
    fault("create: EACCES", Side::Target, |_| fails(Op::Create, libc::EACCES, 0)),
    fault("create: ENOSPC once", Side::Target, |_| Rules::failing(Op::Create, libc::ENOSPC, 0, 1)),
    fault("open of the target: EIO", Side::Target, |_| fails(Op::Open, libc::EIO, 0)),
    fault("mkdir: ENOSPC", Side::Target, |_| fails(Op::Mkdir, libc::ENOSPC, 0)),
    fault("write: ENOSPC at once", Side::Target, |_| fails(Op::Write, libc::ENOSPC, 0)),
    fault("write: ENOSPC in the middle", Side::Target, |n| fails(Op::Write, libc::ENOSPC, n / 2)),
    fault("write: ENOSPC in the middle, direct", Side::Target, |n| {
        fails(Op::Write, libc::ENOSPC, n / 2).direct()
    }),
    fault("write: EIO in the middle", Side::Target, |n| fails(Op::Write, libc::EIO, n / 2)),
    fault("write: EFBIG in the middle", Side::Target, |n| fails(Op::Write, libc::EFBIG, n / 2)),
    fault("write: EIO once", Side::Target, |n| Rules::failing(Op::Write, libc::EIO, n / 2, 1)),
    fault("write: EINTR three times", Side::Target, |n| {
        Rules::failing(Op::Write, libc::EINTR, n / 2, 3).direct()
    }),
    fault("writes of 1000 bytes", Side::Target, |_| Rules {
        longest_write: 1000,
        ..Rules::default().direct()
    }),
    fault("writes nothing from the middle", Side::Target, |n| Rules {
        full_at: Some(n / 2),
        ..Rules::default().direct()
    }),
    fault("remove: EIO", Side::Target, |_| fails(Op::Unlink, libc::EIO, 0)),
    fault("remove: EIO, write: ENOSPC in the middle", Side::Target, |n| {
        let mut rules = fails(Op::Unlink, libc::EIO, 0);
        rules.failures.extend(fails(Op::Write, libc::ENOSPC, n / 2).failures);
        rules
    }),
    fault("reads and writes of 777 and 1000 bytes", Side::Both, |_| Rules {
        longest_read: 777,
        longest_write: 1000,
        ..Rules::default().direct()
    }),
    fault("close: EIO", Side::Target, |_| fails(Op::Flush, libc::EIO, 0)),
    fault("close: ENOSPC", Side::Target, |_| fails(Op::Flush, libc::ENOSPC, 0)),
    fault("close: EINTR", Side::Target, |_| fails(Op::Flush, libc::EINTR, 0)),
    fault("fsync: EIO", Side::Target, |_| fails(Op::Fsync, libc::EIO, 0)),
    fault("fsync: EINVAL", Side::Target, |_| fails(Op::Fsync, libc::EINVAL, 0)),
    fault("fsync: EIO once", Side::Target, |_| Rules::failing(Op::Fsync, libc::EIO, 0, 1)),
    fault("truncate: EIO", Side::Target, |_| fails(Op::Truncate, libc::EIO, 0)),
    fault("attributes: EPERM", Side::Target, |_| fails(Op::Setattr, libc::EPERM, 0)),
    fault("attributes: EIO", Side::Target, |_| fails(Op::Setattr, libc::EIO, 0)),
    fault("rename: EIO", Side::Target, |_| fails(Op::Rename, libc::EIO, 0)),
    fault("rename: EBUSY", Side::Target, |_| fails(Op::Rename, libc::EBUSY, 0)),
    fault("stores another byte", Side::Target, |_| Rules { spoils: true, ..Rules::default() }),
    fault("copies nothing within", Side::Both, |_| Rules {
        longest_range: Some(0),
        ..Rules::default()
    }),
    fault("copies 1000 bytes within", Side::Both, |_| Rules {
        longest_range: Some(1000),
        ..Rules::default()
    }),
    fault("copy within: EIO", Side::Both, |_| fails(Op::CopyRange, libc::EIO, 0)),
    fault("copy within: EIO in the middle", Side::Both, |n| fails(Op::CopyRange, libc::EIO, n / 2)),
    fault("copy within: EPERM", Side::Both, |_| fails(Op::CopyRange, libc::EPERM, 0)),
    fault("copy within: ENOSPC", Side::Both, |_| fails(Op::CopyRange, libc::ENOSPC, 0)),
];

/// The file that exists under the target's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    Nothing,
    File,
    /// It has a second name, so it is written in place.
    TwoNames,
}

pub(super) struct Way {
    pub(super) flags: &'static [&'static str],
    pub(super) tree: bool,
    pub(super) before: Before,
}

/// Each cell has a manifest of its own.
pub(super) const RESUME: &str = "--resume=MANIFEST";

const fn way(flags: &'static [&'static str], tree: bool, before: Before) -> Way {
    Way { flags, tree, before }
}

pub(super) const WAYS: &[Way] = &[
    way(&[], false, Before::Nothing),
    way(&[], false, Before::File),
    way(&[], false, Before::TwoNames),
    way(&["-a"], true, Before::Nothing),
    way(&["-aT"], true, Before::File),
    way(&["-r", "--jobs=1"], true, Before::Nothing),
    way(&["-rT", "--jobs=16"], true, Before::File),
    way(&["--reflink=never"], false, Before::Nothing),
    way(&["-r", "--reflink=never"], true, Before::Nothing),
    way(&["-p", "--sparse=always"], false, Before::Nothing),
    way(&["-r", "--sparse=always"], true, Before::Nothing),
    way(&["--sparse=always"], false, Before::File),
    way(&["--sparse=never"], false, Before::Nothing),
    way(&["-rT", "--sparse=never"], true, Before::TwoNames),
    way(&["--verify"], false, Before::Nothing),
    way(&["-aT", "--verify"], true, Before::File),
    way(&["--fsync"], false, Before::Nothing),
    way(&["--fsync"], false, Before::File),
    way(&["--fsync"], false, Before::TwoNames),
    way(&["-a", "--fsync"], true, Before::Nothing),
    way(&["-aT", "--fsync", "--verify"], true, Before::File),
    way(&["--block-size=4k", "-p"], false, Before::Nothing),
    way(&["--block-size=4k", "--reflink=never", "--sparse=never"], false, Before::File),
    way(&["--block-size=1m", "-r"], true, Before::Nothing),
    way(&["--block-size=4k", "--uncached"], false, Before::File),
    way(&["--backup=numbered"], false, Before::File),
    way(&["--backup=simple", "-p", "--fsync"], false, Before::File),
    way(&["-p", "--remove-destination"], false, Before::File),
    way(&["-f"], false, Before::File),
    way(&["-p", RESUME], false, Before::Nothing),
    way(&["-aT", RESUME], true, Before::File),
    way(&["-r", RESUME, "--fsync"], true, Before::Nothing),
    way(&[RESUME], false, Before::TwoNames),
];
