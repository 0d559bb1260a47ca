//! Drawing a program.

use super::{Body, End, Never, Program, REGION_BYTES, Span, Stmt, Way};
use crate::driver::sim::Rng;
use std::sync::Arc;

const MOST_FIBERS: usize = 24;
const MOST_STMTS: u64 = 200;
const DEEPEST: usize = 4;

pub(super) fn program(seed: u64) -> Program {
    let mut rng = Rng::stream(seed, "program");
    let files = rng.between(1, 3) as usize;
    let stmts_left = rng.magnitude(4, MOST_STMTS);
    let mut draw = Draw { rng, files, next: vec![0; files], fibers: 0, stmts_left };
    let root = draw.body(0, 0, false, false);
    let regions = draw.next.iter().copied().max().expect("there is a file");
    Program { files, regions, root }
}

struct Draw {
    rng: Rng,
    files: usize,
    /// The next free region of each file.
    next: Vec<usize>,
    fibers: usize,
    stmts_left: u64,
}

impl Draw {
    fn body(&mut self, file: usize, depth: usize, loose: bool, borrows_file: bool) -> Arc<Body> {
        let region = self.next[file];
        self.next[file] += 1;
        self.fibers += 1;
        let mut stmts = Vec::new();
        for _ in 0..self.rng.magnitude(1, 32) {
            if self.stmts_left == 0 {
                break;
            }
            self.stmts_left -= 1;
            stmts.push(self.stmt(file, depth, loose, borrows_file));
        }
        Arc::new(Body { file, region, loose, stmts })
    }

    fn stmt(&mut self, file: usize, depth: usize, loose: bool, borrows_file: bool) -> Stmt {
        if loose && self.rng.one_in(8) {
            let all = [Never::Byte, Never::Readiness, Never::Unpark, Never::Timer];
            return Stmt::Never { what: all[self.rng.below(4) as usize] };
        }
        let may_spawn = depth < DEEPEST && self.fibers < MOST_FIBERS;
        match self.rng.below(if may_spawn { 21 } else { 16 }) {
            0 => Stmt::Yield,
            1 => Stmt::Sleep { micros: self.rng.magnitude(1, 5_000) },
            2..5 => {
                let (span, way) = (self.span(), self.way(borrows_file));
                Stmt::Write { span, salt: self.rng.next(), way }
            }
            5 | 6 => Stmt::Read { span: self.span(), way: self.way(borrows_file) },
            7 => Stmt::Sync { data_only: self.rng.one_in(2) },
            8 => match self.rng.one_in(2) {
                true => Stmt::Reopen,
                false => Stmt::Stat,
            },
            9 => Stmt::Append { len: self.rng.magnitude(1, 3000) as usize, salt: self.rng.next() },
            10 => Stmt::CutAndRead,
            11 => Stmt::Panic { payload: self.rng.next() },
            12 => Stmt::Park { yields: self.rng.below(4) },
            13 => Stmt::Unblock { value: self.rng.next() },
            14 => Stmt::Talk {
                len: self.rng.magnitude(1, 200_000) as usize,
                salt: self.rng.next(),
                socket: self.rng.one_in(2),
                ready: self.rng.one_in(2),
            },
            15 => Stmt::Unwind { span: self.span(), salt: self.rng.next() },
            16..19 => self.spawn(depth, loose),
            _ => self.scope(file, depth, loose),
        }
    }

    fn spawn(&mut self, depth: usize, loose: bool) -> Stmt {
        let end = match self.rng.below(4) {
            0 => End::JoinedNow,
            1 => End::Detached,
            _ => End::JoinedLater,
        };
        let file = self.rng.below(self.files as u64) as usize;
        let loose = loose || end == End::Detached;
        Stmt::Spawn {
            local: self.rng.one_in(2),
            end,
            body: self.body(file, depth + 1, loose, false),
        }
    }

    fn scope(&mut self, file: usize, depth: usize, loose: bool) -> Stmt {
        let children = (0..self.rng.between(1, 4))
            .map(|_| (self.rng.one_in(2), self.body(file, depth + 1, loose, true)));
        Stmt::Scope { children: children.collect() }
    }

    fn span(&mut self) -> Span {
        let len = self.rng.magnitude(1, REGION_BYTES as u64) as usize;
        Span { start: self.rng.between(0, (REGION_BYTES - len) as u64) as usize, len }
    }

    fn way(&mut self, borrows_file: bool) -> Way {
        let ways = [Way::At, Way::Vectored, Way::Batch, Way::BatchExact, Way::Fixed, Way::Cursor];
        // The cursor of a borrowed file is not this fiber's alone.
        let count = if borrows_file { ways.len() - 1 } else { ways.len() };
        ways[self.rng.below(count as u64) as usize]
    }
}
