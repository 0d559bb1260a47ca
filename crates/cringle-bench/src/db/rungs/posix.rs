//! `posix`: pread and pwrite, one after the other.

use super::{Outcome, memory, one_by_one};
use crate::db::Job;
use crate::db::engine::{Platform, offset, whole};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;

pub(super) fn run(job: &Job) -> io::Result<Outcome> {
    let posix = Posix { file: job.store.open()?, pages: PhantomData };
    one_by_one(job, posix, &mut memory(job), 1)
}

struct Posix<'a> {
    file: File,
    pages: PhantomData<&'a mut [u8]>,
}

impl<'a> Platform for Posix<'a> {
    type Page = &'a mut [u8];
    type Token = ();
    type Cell<T> = RefCell<T>;

    fn read(&self, number: u32, page: &mut &'a mut [u8]) -> io::Result<()> {
        whole(self.file.read_at(page, offset(number))?, number)
    }

    fn write(&self, pages: &[(u32, &&'a mut [u8])]) -> io::Result<()> {
        super::write_each(&self.file, pages)
    }

    fn token(&self) {}

    fn wait(&self) {
        unreachable!("one transaction after the other never finds a busy page");
    }

    fn wake(&self, (): ()) {}
}
