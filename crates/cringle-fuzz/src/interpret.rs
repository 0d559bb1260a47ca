//! Runs a program on the library and checks what each statement observes.

use super::env::{Env, Stop};
use super::expected::whole_digest;
use super::frames::Frame;
use super::peers::{OnDrop, Presence, never, on_exits, park, talk};
use super::{
    Body, Combine, End, REGION_BYTES, Span, Stmt, Way, bytes_of, cancels, combine, fold,
    fold_bytes, own_name, shared, transfer,
};
use cringle::fiber::{self, JoinHandle};
use cringle::fs::File;
use cringle::runtime;
use cringle::sim::Checker;
use std::cell::Cell;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(super) type Digest = Result<u64, Stop>;

/// Runs a fiber's body and returns a digest of what it observed.
pub(super) fn run_body(env: &Arc<Env>, body: &Arc<Body>, parents: Option<&File>) -> Digest {
    env.count_body(true);
    let is_unwinding = Cell::new(true);
    let _ends = OnDrop(|| {
        if is_unwinding.get() {
            env.ended_early();
        }
        env.count_body(false);
    });
    let digest = run_stmts(env, body, parents);
    is_unwinding.set(false);
    digest
}

/// Checks the result of a body that may be cancelled: it ends early, or with the digest of a whole
/// run.
pub(super) fn finished(env: &Env, body: &Body, digest: Digest) -> Digest {
    match digest {
        Ok(digest) if digest != whole_digest(body) => {
            Err(env.fail(Checker::Outcome, "a body that ran to its end has an unexpected digest"))
        }
        Err(Stop) => Err(env.ended_early()),
        digest => digest,
    }
}

fn run_stmts(env: &Arc<Env>, body: &Arc<Body>, parents: Option<&File>) -> Digest {
    let opened;
    let file = match parents {
        Some(file) => file,
        None => {
            opened = env.open(&super::file_name(body.file), false)?;
            &opened
        }
    };
    let (content, written) = (vec![0; REGION_BYTES], Vec::new());
    let (own, later) = (None, Vec::new());
    let mut interpreter = Interpreter { env, body, file, content, written, own, digest: 0, later };
    for stmt in &body.stmts {
        interpreter.perform(stmt)?;
    }
    for handle in std::mem::take(&mut interpreter.later) {
        let child = interpreter.joined(handle.join())?;
        interpreter.observe(child);
    }
    Ok(interpreter.digest)
}

/// Returns the worker on which the body of a new fiber has to start, if any worker is chosen: with
/// several workers, a third of the fibers are placed.
fn place_of(body: &Body) -> Option<usize> {
    let workers = runtime::workers().filter(|&workers| workers > 1)?;
    body.region.is_multiple_of(3).then_some(body.region / 3 % workers)
}

fn spawned<T>(result: io::Result<T>) -> T {
    result.expect("a stack can be mapped")
}

struct Interpreter<'a> {
    env: &'a Arc<Env>,
    body: &'a Arc<Body>,
    file: &'a File,
    /// The expected content of the fiber's region.
    content: Vec<u8>,
    /// The parts of the region that were written.
    written: Vec<Span>,
    /// The file that only this fiber uses, and its expected content.
    own: Option<(File, Vec<u8>)>,
    digest: u64,
    /// Fibers to join at the end of the body.
    later: Vec<JoinHandle<Digest>>,
}

impl Interpreter<'_> {
    fn perform(&mut self, stmt: &Stmt) -> Result<(), Stop> {
        let (env, file) = (self.env, self.file);
        match stmt {
            Stmt::Yield => fiber::yield_now(),
            Stmt::Sleep { micros } => fiber::sleep(Duration::from_micros(*micros)),
            Stmt::Write { span, salt, way } => self.write(*span, *salt, *way)?,
            Stmt::Read { span, way } => self.read(*span, *way)?,
            Stmt::Sync { data_only } => self.sync(*data_only)?,
            Stmt::Reopen => self.reopen()?,
            Stmt::Stat => {
                let metadata = env.persist(|| file.metadata())?;
                self.observe(metadata.is_file().into());
            }
            Stmt::Append { len, salt } => self.append(&bytes_of(*salt, *len))?,
            Stmt::CutAndRead => self.cut_and_read()?,
            Stmt::Spawn { local, end, body } => self.spawn(*local, *end, body)?,
            Stmt::Scope { children, daemons, exits } => self.scope(children, daemons, *exits)?,
            Stmt::CancelScope { how, delay, children, exits } => {
                cancels::cancel_scope(env, file, *how, *delay, children, *exits)?;
                self.observe(1);
            }
            Stmt::Timeout { limit, body } => {
                cancels::timeout(env, file, *limit, body)?;
                self.observe(1);
            }
            Stmt::Protect { cancelled, body } => {
                let child = cancels::protect(env, file, *cancelled, body)?;
                self.observe(child);
            }
            Stmt::Combine { by, bodies } => {
                let digests = combine::combine(env, file, *by, bodies)?;
                match by {
                    Combine::Race | Combine::Any => self.observe(1),
                    _ => digests.into_iter().for_each(|digest| self.observe(digest)),
                }
            }
            Stmt::Share(share) => {
                shared::share(env, share)?;
                self.observe(1);
            }
            Stmt::Panic { payload } => self.join_a_panic(*payload)?,
            Stmt::Unwind { span, salt } => self.unwind(*span, *salt)?,
            Stmt::Never { what } => never(env, *what)?,
            Stmt::Park { yields } => {
                park(*yields);
                self.observe(1);
            }
            Stmt::Unblock { value } => self.observe(fiber::unblock(|| value.wrapping_mul(3))),
            Stmt::Talk { len, salt, over, ready } => {
                let bytes = bytes_of(*salt, *len);
                // After a reset, `persist` tries again with a new connection.
                let received = env.persist(|| talk(bytes.clone(), *over, *ready))?;
                self.digest = fold_bytes(self.digest, &received);
            }
        }
        Ok(())
    }

    /// Adds a value that the fiber has observed to its digest.
    fn observe(&mut self, value: u64) {
        self.digest = fold(self.digest, value);
    }

    /// Returns the offset of a part of the fiber's region in its file.
    fn offset(&self, span: Span) -> u64 {
        (self.body.region * REGION_BYTES + span.start) as u64
    }

    /// Records what the fiber is about to write, and returns the bytes.
    fn prepare_write(&mut self, span: Span, salt: u64) -> Vec<u8> {
        let bytes = bytes_of(salt, span.len);
        self.content[span.start..][..span.len].copy_from_slice(&bytes);
        self.written.push(span);
        self.env.will_write(self.body, &self.content);
        bytes
    }

    fn write(&mut self, span: Span, salt: u64, way: Way) -> Result<(), Stop> {
        let bytes = self.prepare_write(span, salt);
        transfer::write(self.env, self.file, way, &bytes, self.offset(span))
    }

    fn read(&mut self, span: Span, way: Way) -> Result<(), Stop> {
        // The file may end within the region, where nothing was written yet.
        let end = ((self.body.region + 1) * REGION_BYTES) as u64;
        let bytes = transfer::read(self.env, self.file, way, span.len, self.offset(span), end)?;
        if bytes != self.content[span.start..][..span.len] {
            let text = format!("a read by {way:?} differs from what was written: {span:?}");
            return Err(self.env.fail(Checker::Outcome, text));
        }
        self.digest = fold_bytes(self.digest, &bytes);
        Ok(())
    }

    fn sync(&mut self, data_only: bool) -> Result<(), Stop> {
        let (env, name) = (self.env, super::file_name(self.body.file));
        let mut again: Option<File> = None;
        for tries in 0.. {
            let file = again.as_ref().unwrap_or(self.file);
            let result = if data_only { file.sync_data() } else { file.sync_all() };
            let Err(e) = result else { break };
            env.may_try_again(tries, &e)?;
            // After a failure each sync through the handle fails.
            let file = env.open(&name, false)?;
            self.write_again(&file)?;
            again = Some(file);
        }
        self.env.has_synced(self.body, &self.content);
        Ok(())
    }

    /// Writes all of the region again. A sync that failed may have lost any part of it that was not
    /// on the disk, and no later sync would write that.
    fn write_again(&self, file: &File) -> Result<(), Stop> {
        #[cfg(test)]
        if self.env.sabotage == Some(cringle::sim::Sabotage::SyncRepeated) {
            return Ok(());
        }
        self.written.iter().try_for_each(|&span| {
            let bytes = &self.content[span.start..][..span.len];
            self.env.persist(|| file.write_all_at(bytes, self.offset(span)))
        })
    }

    fn reopen(&mut self) -> Result<(), Stop> {
        let again = self.env.open(&super::file_name(self.body.file), false)?;
        // An error of `close` leaves the descriptor closed as well.
        let _ = again.close();
        self.observe(1);
        Ok(())
    }

    fn spawn(&mut self, local: bool, end: End, body: &Arc<Body>) -> Result<(), Stop> {
        let place = place_of(body);
        let (env, body) = (self.env.within(Frame::root()), Arc::clone(body));
        let run = move || run_body(&env, &body, None);
        let handle = match place {
            _ if local => fiber::spawn_local(run),
            Some(worker) => spawned(fiber::Builder::new().worker(worker).spawn(run)),
            None => fiber::spawn(run),
        };
        match end {
            End::JoinedNow => {
                let child = self.joined(handle.join())?;
                self.observe(child);
            }
            End::JoinedLater => self.later.push(handle),
            End::Detached => drop(handle),
        }
        Ok(())
    }

    /// Joins a fiber that panics, and observes its payload.
    fn join_a_panic(&mut self, payload: u64) -> Result<(), Stop> {
        let panics = fiber::spawn(move || std::panic::resume_unwind(Box::new(payload)));
        let received: u64 = match panics.join() {
            Err(payload) if payload.is::<cringle::Cancelled>() => {
                return Err(self.env.ended_early());
            }
            Err(payload) => payload.downcast().map_or(0, |number| *number),
            Ok(()) => 0,
        };
        self.observe(received);
        Ok(())
    }

    /// Spawns a scoped fiber that panics, and whose destructor writes while it unwinds.
    fn unwind(&mut self, span: Span, salt: u64) -> Result<(), Stop> {
        let bytes = self.prepare_write(span, salt);
        let at = self.offset(span);
        let (env, file) = (self.env, self.file);
        let joined = fiber::scope(|s| {
            let panics = s.spawn_local(|| {
                let _writes = OnDrop(|| {
                    let _ = transfer::write(env, file, Way::At, &bytes, at);
                });
                std::panic::resume_unwind(Box::new(salt))
            });
            panics.join()
        });
        match joined.map_err(|payload| payload.downcast::<u64>()) {
            Err(Ok(payload)) => self.observe(*payload),
            Err(Err(_)) | Ok(()) => return Err(Stop),
        }
        Ok(())
    }

    fn joined(&self, result: fiber::Result<Digest>) -> Digest {
        match result {
            Ok(digest) => digest,
            Err(payload) if payload.is::<cringle::Cancelled>() => Err(self.env.ended_early()),
            Err(_) => Err(self.env.fail(Checker::Panic, "a fiber panicked")),
        }
    }

    fn scope(
        &mut self,
        children: &[(bool, Arc<Body>)],
        daemons: &[Arc<Body>],
        exits: usize,
    ) -> Result<(), Stop> {
        let inside = Arc::new(AtomicUsize::new(0));
        #[cfg(test)]
        self.leave_one_behind(&inside);
        let others = Arc::new(AtomicUsize::new(0));
        let serving = self.env.within(Frame::daemon(self.env, &others));
        let results: Vec<_> = fiber::scope(|s| {
            let _opens = Presence::of(&others);
            on_exits(self.env, s, exits, &inside);
            for (number, body) in daemons.iter().enumerate() {
                let (presence, env, file) = (Presence::of(&inside), &serving, self.file);
                let serve = move || {
                    let _presence = presence;
                    let _ = finished(env, body, run_body(env, body, Some(file)));
                };
                match number {
                    0 => s.spawn_daemon(serve),
                    _ => s.spawn_daemon_local(serve),
                }
            }
            let handles: Vec<_> = children
                .iter()
                .map(|(local, body)| {
                    let presences = [Presence::of(&inside), Presence::of(&others)];
                    let (env, file) = (self.env, self.file);
                    let run = move || {
                        let _presences = presences;
                        run_body(env, body, Some(file))
                    };
                    match place_of(body) {
                        _ if *local => s.spawn_local(run),
                        Some(worker) => {
                            spawned(fiber::Builder::new().worker(worker).spawn_scoped(s, run))
                        }
                        None => s.spawn(run),
                    }
                })
                .collect();
            handles.into_iter().map(|handle| handle.join()).collect()
        });
        let left = inside.load(Ordering::Acquire);
        if left > 0 {
            let text = format!("{left} fibers of a scope outlive it");
            return Err(self.env.fail(Checker::Scopes, text));
        }
        for result in results {
            let child = self.joined(result)?;
            self.observe(child);
        }
        Ok(())
    }

    /// With the sabotage of scopes, leaves a fiber running that the scope seems to own.
    #[cfg(test)]
    fn leave_one_behind(&self, inside: &Arc<AtomicUsize>) {
        if self.env.sabotage == Some(cringle::sim::Sabotage::ScopeNotJoined) {
            let presence = Presence::of(inside);
            fiber::spawn_local(move || {
                let _presence = presence;
                fiber::sleep(Duration::from_secs(3600));
            });
        }
    }

    /// Takes the fiber's own file and its content; opens it at the first use.
    fn own_file(&mut self) -> Result<(File, Vec<u8>), Stop> {
        match self.own.take() {
            Some(own) => Ok(own),
            None => Ok((self.env.open(&own_name(self.body), true)?, Vec::new())),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let (file, mut content) = self.own_file()?;
        let before = content.len() as u64;
        let mut first = true;
        self.env.persist(|| {
            // A failed attempt may have written a part.
            if !std::mem::take(&mut first) {
                file.set_len(before)?;
            }
            (&file).write_all(bytes)
        })?;
        content.extend_from_slice(bytes);
        self.own = Some((file, content));
        Ok(())
    }

    fn cut_and_read(&mut self) -> Result<(), Stop> {
        let (file, mut content) = self.own_file()?;
        content.truncate(content.len() / 2);
        self.env.persist(|| file.set_len(content.len() as u64))?;
        let read = self.env.persist(|| {
            let mut read = Vec::new();
            (&file).rewind()?;
            (&file).read_to_end(&mut read)?;
            // A read that returns 0 before the end of the file is an injected fault.
            if read.len() < content.len() {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(read)
            }
        })?;
        if read != content {
            let text = format!("{} holds bytes that were never written", own_name(self.body));
            return Err(self.env.fail(Checker::Outcome, text));
        }
        self.digest = fold_bytes(self.digest, &read);
        self.own = Some((file, content));
        Ok(())
    }
}
