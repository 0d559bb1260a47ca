//! `threads`: a thread for each transaction at once, with pread and pwrite. One lock guards the
//! pool. It is held while a page is searched or changed, and not during I/O. A thread that finds no
//! free frame writes a changed page back and takes its frame.

use super::{Outcome, collect, memory, outcome};
use crate::db::Job;
use crate::db::engine::{Engine, Eviction, Platform, offset, whole};
use crate::db::tree::PAGE_BYTES;
use crate::joined;
use crate::meter::Gate;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::thread::{self, Thread};

pub(super) fn run(job: &Job) -> io::Result<Outcome> {
    let platform = Threads { file: job.store.open()?, pages: PhantomData };
    let mut memory = memory(job);
    let eviction = Eviction::ByTransactions { batch: 1 };
    let engine = &Engine::new(job, platform, memory.chunks_mut(PAGE_BYTES), eviction)?;
    let gate = Gate::new(job.fibers);
    let latencies = thread::scope(|scope| {
        let start = |_| {
            let mut party = gate.party();
            thread::Builder::new().spawn_scoped(scope, move || {
                party.enter()?;
                engine.work()
            })
        };
        // If a thread cannot be started, its party is dropped, and the other threads give up.
        let threads: Vec<_> = (0..job.fibers).map(start).collect();
        collect(threads.into_iter().map(|thread| joined(thread.map_err(no_thread)?.join())))
    });
    let usage = gate.usage().unwrap_or_default();
    let counts = engine.counts();
    let calls = (!job.durable).then_some(counts.reads + counts.writes);
    outcome(job, engine, usage, latencies, calls)
}

fn no_thread(error: io::Error) -> io::Error {
    crate::no_thread(&error, "choose fewer --fibers, or ")
}

struct Threads<'a> {
    file: File,
    pages: PhantomData<&'a mut [u8]>,
}

impl<'a> Platform for Threads<'a> {
    type Page = &'a mut [u8];
    type Token = Thread;
    type Cell<T> = Mutex<T>;

    fn bytes<'p>(page: &'p mut &'a mut [u8]) -> &'p mut [u8] {
        page
    }

    fn read(&self, number: u32, page: &mut &'a mut [u8]) -> io::Result<()> {
        whole(self.file.read_at(page, offset(number))?, number)
    }

    fn write(&self, pages: &[(u32, &&'a mut [u8])]) -> io::Result<()> {
        super::write_each(&self.file, pages)
    }

    fn token(&self) -> Thread {
        thread::current()
    }

    fn wait(&self) {
        thread::park();
    }

    fn wake(&self, token: Thread) {
        token.unpark();
    }
}
