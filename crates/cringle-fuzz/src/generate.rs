//! Drawing a program.

use super::{
    Body, Combine, Cut, Delay, End, Never, Over, Program, REGION_BYTES, Share, Shared, Span, Stmt,
    Way,
};
use cringle::sim::Rng;
use std::sync::Arc;
use std::time::Duration;

const MOST_FIBERS: usize = 24;
const MOST_STMTS: u64 = 200;
const DEEPEST: usize = 4;

pub(super) fn program(seed: u64) -> Program {
    let mut rng = Rng::stream(seed, "program");
    let files = rng.between(1, 3) as usize;
    let stmts_left = rng.magnitude(4, MOST_STMTS);
    let mut generator = Generator { rng, files, next: vec![0; files], fibers: 0, stmts_left };
    let root = generator.body(Nesting::default());
    let regions = generator.next.iter().copied().max().expect("there is a file");
    Program { files, regions, root }
}

struct Generator {
    rng: Rng,
    files: usize,
    /// The next free region of each file.
    next: Vec<usize>,
    fibers: usize,
    stmts_left: u64,
}

/// Where a body is.
#[derive(Clone, Copy, Default)]
struct Nesting {
    file: usize,
    depth: usize,
    /// Nothing is said about its part of the files.
    loose: bool,
    /// It is certain to be cut short, so it may wait for what never comes.
    mortal: bool,
    /// It is in a protected call: a fiber outside of that may end before it.
    shielded: bool,
    /// Its file is another fiber's, too.
    borrows_file: bool,
}

impl Nesting {
    fn below(self) -> Nesting {
        Nesting { depth: self.depth + 1, borrows_file: true, ..self }
    }

    fn doomed(self) -> Nesting {
        Nesting { loose: true, mortal: true, ..self.below() }
    }
}

impl Generator {
    fn body(&mut self, nesting: Nesting) -> Arc<Body> {
        let Nesting { file, loose, .. } = nesting;
        let region = self.next[file];
        self.next[file] += 1;
        self.fibers += 1;
        let mut stmts = Vec::new();
        for _ in 0..self.rng.magnitude(1, 32) {
            if self.stmts_left == 0 {
                break;
            }
            self.stmts_left -= 1;
            stmts.push(self.stmt(nesting));
        }
        if nesting.mortal && self.rng.one_in(4) {
            stmts.truncate(self.rng.below(3) as usize);
            stmts.push(self.never());
        }
        Arc::new(Body { file, region, loose, stmts })
    }

    fn never(&mut self) -> Stmt {
        let all = [Never::Byte, Never::Readiness, Never::Unpark, Never::Timer];
        Stmt::Never { what: all[self.rng.below(4) as usize] }
    }

    fn stmt(&mut self, nesting: Nesting) -> Stmt {
        if nesting.mortal && self.rng.one_in(8) {
            return self.never();
        }
        let borrows_file = nesting.borrows_file;
        let may_spawn = nesting.depth < DEEPEST && self.fibers < MOST_FIBERS;
        match self.rng.below(if may_spawn { 31 } else { 19 }) {
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
                over: [Over::Pipe, Over::SocketPair, Over::Connection][self.rng.below(3) as usize],
                ready: self.rng.one_in(2),
            },
            15 => Stmt::Unwind { span: self.span(), salt: self.rng.next() },
            16..19 => Stmt::Share(self.share()),
            19..21 if !nesting.shielded => self.spawn(nesting),
            19..23 => self.scope(nesting),
            23..26 => self.cut(nesting),
            26..28 => Stmt::Timeout { limit: self.limit(), body: self.body(nesting.doomed()) },
            28 | 29 => {
                // It goes to its end, whatever is around it.
                let within = Nesting { mortal: false, shielded: true, ..nesting.below() };
                let cancelled = (!self.rng.one_in(3)).then(|| self.delay());
                Stmt::Protect { cancelled, body: self.body(within) }
            }
            _ => self.combine(nesting),
        }
    }

    fn spawn(&mut self, nesting: Nesting) -> Stmt {
        let end = match self.rng.below(4) {
            0 => End::JoinedNow,
            1 => End::Detached,
            _ => End::JoinedLater,
        };
        let file = self.rng.below(self.files as u64) as usize;
        let detached = end == End::Detached;
        let child = Nesting {
            file,
            depth: nesting.depth + 1,
            loose: nesting.loose || detached,
            mortal: nesting.mortal || detached,
            shielded: false,
            borrows_file: false,
        };
        Stmt::Spawn { local: self.rng.one_in(2), end, body: self.body(child) }
    }

    fn children(&mut self, nesting: Nesting) -> Vec<(bool, Arc<Body>)> {
        (0..self.rng.between(1, 4)).map(|_| (self.rng.one_in(2), self.body(nesting))).collect()
    }

    fn scope(&mut self, nesting: Nesting) -> Stmt {
        let daemons = match self.rng.one_in(3) {
            true => (0..self.rng.between(1, 2)).map(|_| self.body(nesting.doomed())).collect(),
            false => Vec::new(),
        };
        let exits = self.rng.below(4) as usize;
        Stmt::Scope { children: self.children(nesting.below()), daemons, exits }
    }

    fn cut(&mut self, nesting: Nesting) -> Stmt {
        let all = [Cut::Owner, Cut::Child, Cut::Sibling, Cut::Failure, Cut::Panic];
        Stmt::Cut {
            how: all[self.rng.below(5) as usize],
            delay: self.delay(),
            children: self.children(nesting.doomed()),
            exits: self.rng.below(4) as usize,
        }
    }

    fn combine(&mut self, nesting: Nesting) -> Stmt {
        let all = [Combine::Join, Combine::JoinAll, Combine::ParMap, Combine::Race, Combine::Any];
        let by = all[self.rng.below(5) as usize];
        let bodies = match by {
            // One goes to its end, the other need not.
            Combine::Race | Combine::Any => {
                let wins = Nesting { loose: true, ..nesting.below() };
                let mut both = vec![self.body(wins), self.body(nesting.doomed())];
                both.rotate_left(self.rng.below(2) as usize);
                both
            }
            _ => vec![self.body(nesting.below()), self.body(nesting.below())],
        };
        Stmt::Combine { by, bodies }
    }

    fn share(&mut self) -> Share {
        let what = match self.rng.below(12) {
            0 => Shared::Mutex,
            1 => Shared::RwLock,
            2 => Shared::Semaphore,
            3 => Shared::Condvar,
            4 => Shared::Barrier,
            5 => Shared::WaitGroup,
            6 => Shared::Mpsc(self.rng.one_in(3).then(|| self.rng.below(3) as usize)),
            7 => Shared::Mpmc(self.rng.below(3) as usize),
            8 => Shared::Oneshot,
            9 => Shared::Tokens,
            10 => Shared::Patience { rwlock: self.rng.one_in(2) },
            _ => Shared::Watch,
        };
        Share {
            what,
            fibers: self.rng.between(2, 5) as usize,
            rounds: self.rng.between(1, 6) as usize,
            local: self.rng.one_in(2),
            hurried: !self.rng.one_in(3),
            cut: self.rng.one_in(3).then(|| self.delay()),
            salt: self.rng.next(),
        }
    }

    fn delay(&mut self) -> Delay {
        match self.rng.one_in(2) {
            true => Delay::Yields(self.rng.below(8)),
            false => Delay::Sleep(self.limit()),
        }
    }

    /// Odd to the nanosecond, so that an error tells by its limit which deadline it is from.
    fn limit(&mut self) -> Duration {
        let nanos = self.rng.below(1000);
        Duration::from_nanos(self.rng.magnitude(1, 5_000) * 1000 + nanos)
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
