//! `threads`: a thread for each transaction at once, with pread and pwrite. One lock guards the
//! pool. It is held while a page is searched or changed, and not during I/O. A thread that finds no
//! free frame writes a changed page back and takes its frame.

use super::{Outcome, memory, outcome};
use crate::db::Job;
use crate::db::engine::{Engine, Eviction, Platform, offset, whole};
use crate::db::tree::PAGE_BYTES;
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
    let latencies = gate.on_threads(job.fibers, "choose fewer --fibers, or ", |_, mut party| {
        party.enter()?;
        engine.work()
    });
    let usage = gate.usage().unwrap_or_default();
    let counts = engine.counts();
    let calls = (!job.durable).then_some(counts.reads + counts.writes);
    outcome(job, engine, usage, latencies, calls)
}

struct Threads<'a> {
    file: File,
    pages: PhantomData<&'a mut [u8]>,
}

impl<'a> Platform for Threads<'a> {
    type Page = &'a mut [u8];
    type Token = Thread;
    type Cell<T> = Mutex<T>;

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
