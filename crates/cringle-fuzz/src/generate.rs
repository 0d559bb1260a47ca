//! Generates a program from a seed.

use super::{
    Body, CancelBy, Combine, Delay, End, Never, Program, REGION_BYTES, Share, Shared, Span, Stmt,
    Transport, Way,
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

/// The surroundings of a body.
#[derive(Clone, Copy, Default)]
struct Nesting {
    file: usize,
    depth: usize,
    /// Whether it may be cancelled, so that the content of its region is not determined.
    loose: bool,
    /// Whether it is certain to be cancelled, so that it may wait without an event.
    mortal: bool,
    /// Whether it is in a protected call. A fiber outside of the call may end before it.
    shielded: bool,
    /// Whether another fiber uses the same file handle.
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
            8 if self.rng.one_in(2) => Stmt::Reopen,
            8 => Stmt::Stat,
            9 => Stmt::Append { len: self.rng.magnitude(1, 3000) as usize, salt: self.rng.next() },
            10 => Stmt::CutAndRead,
            11 => Stmt::Panic { payload: self.rng.next() },
            12 => Stmt::Park { yields: self.rng.below(4) },
            13 => Stmt::Unblock { value: self.rng.next() },
            14 => Stmt::Talk {
                len: self.rng.magnitude(1, 200_000) as usize,
                salt: self.rng.next(),
                over: [Transport::Pipe, Transport::SocketPair, Transport::Connection]
                    [self.rng.below(3) as usize],
                ready: self.rng.one_in(2),
            },
            15 => Stmt::Unwind { span: self.span(), salt: self.rng.next() },
            16..19 => Stmt::Share(self.share()),
            19..21 if !nesting.shielded => self.spawn(nesting),
            19..23 => self.scope(nesting),
            23..26 => self.cancel_scope(nesting),
            26..28 => Stmt::Timeout { limit: self.limit(), body: self.body(nesting.doomed()) },
            28 | 29 => {
                // It runs to its end, even if an outer scope is cancelled.
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
        let daemons = if self.rng.one_in(3) {
            (0..self.rng.between(1, 2)).map(|_| self.body(nesting.doomed())).collect()
        } else {
            Vec::new()
        };
        let exits = self.rng.below(4) as usize;
        Stmt::Scope { children: self.children(nesting.below()), daemons, exits }
    }

    fn cancel_scope(&mut self, nesting: Nesting) -> Stmt {
        let all = [
            CancelBy::Owner,
            CancelBy::Child,
            CancelBy::Sibling,
            CancelBy::Failure,
            CancelBy::Panic,
        ];
        Stmt::CancelScope {
            how: all[self.rng.below(5) as usize],
            delay: self.delay(),
            children: self.children(nesting.doomed()),
            exits: self.rng.below(4) as usize,
        }
    }

    fn combine(&mut self, nesting: Nesting) -> Stmt {
        let all = [
            Combine::Join,
            Combine::JoinAll,
            Combine::ParMap,
            Combine::ParMapWorkers,
            Combine::Race,
            Combine::Any,
        ];
        let by = all[self.rng.below(6) as usize];
        let bodies = match by {
            // One runs to its end; the other may wait until it is cancelled.
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
            has_deadlines: !self.rng.one_in(3),
            cancel_after: self.rng.one_in(3).then(|| self.delay()),
            salt: self.rng.next(),
        }
    }

    fn delay(&mut self) -> Delay {
        if self.rng.one_in(2) {
            Delay::Yields(self.rng.below(8))
        } else {
            Delay::Sleep(self.limit())
        }
    }

    /// Draws a limit to the nanosecond, so that the limit in an error identifies its deadline.
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
        // Other fibers may move the cursor of a borrowed file.
        let count = if borrows_file { ways.len() - 1 } else { ways.len() };
        ways[self.rng.below(count as u64) as usize]
    }
}
