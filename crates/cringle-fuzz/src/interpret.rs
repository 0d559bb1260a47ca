//! Doing what a program says, with the library.

use super::env::{Env, Stop};
use super::expected::alone;
use super::frames::Frame;
use super::peers::{OnDrop, Presence, never, on_exits, park, talk};
use super::{
    Body, Combine, End, REGION_BYTES, Span, Stmt, Way, bytes_of, cancels, combine, fold,
    fold_bytes, own_name, shared, transfer,
};
use cringle::fiber::{self, JoinHandle};
use cringle::fs::File;
use cringle::sim::Checker;
use std::cell::Cell;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(super) type Digest = Result<u64, Stop>;

/// The whole of one fiber: what it has seen, as a number.
pub(super) fn run_body(env: &Arc<Env>, body: &Arc<Body>, parents: Option<&File>) -> Digest {
    env.count_body(true);
    let unwound = Cell::new(true);
    let _ends = OnDrop(|| {
        if unwound.get() {
            env.cut_short();
        }
        env.count_body(false);
    });
    let digest = run_stmts(env, body, parents);
    unwound.set(false);
    digest
}

/// What a body that may be cut short came to: nothing, or what it does in any case.
pub(super) fn finished(env: &Env, body: &Body, digest: Digest) -> Digest {
    match digest {
        Ok(digest) if digest != alone(body) => {
            Err(env.fail(Checker::Outcome, "what was not cut short came to something else"))
        }
        Err(Stop) => Err(env.cut_short()),
        digest => digest,
    }
}

fn run_stmts(env: &Arc<Env>, body: &Arc<Body>, parents: Option<&File>) -> Digest {
    let own;
    let file = match parents {
        Some(file) => file,
        None => {
            own = env.open(&super::file_name(body.file), false)?;
            &own
        }
    };
    let (content, own, later) = (vec![0; REGION_BYTES], None, Vec::new());
    let mut running = Running { env, body, file, content, own, digest: 0, later };
    for stmt in &body.stmts {
        running.perform(stmt)?;
    }
    for handle in std::mem::take(&mut running.later) {
        let child = running.joined(handle.join())?;
        running.digest = fold(running.digest, child);
    }
    Ok(running.digest)
}

struct Running<'a> {
    env: &'a Arc<Env>,
    body: &'a Arc<Body>,
    file: &'a File,
    /// What its region holds.
    content: Vec<u8>,
    /// The file of its own, and what that holds.
    own: Option<(File, Vec<u8>)>,
    digest: u64,
    later: Vec<JoinHandle<Digest>>,
}

impl Running<'_> {
    fn perform(&mut self, stmt: &Stmt) -> Result<(), Stop> {
        let env = self.env;
        match stmt {
            Stmt::Yield => fiber::yield_now(),
            Stmt::Sleep { micros } => fiber::sleep(Duration::from_micros(*micros)),
            Stmt::Write { span, salt, way } => {
                let bytes = bytes_of(*salt, span.len);
                self.content[span.start..][..span.len].copy_from_slice(&bytes);
                env.will_write(self.body, &self.content);
                let at = (self.body.region * REGION_BYTES + span.start) as u64;
                transfer::write(env, self.file, *way, &bytes, at)?;
            }
            Stmt::Read { span, way } => {
                let at = (self.body.region * REGION_BYTES + span.start) as u64;
                // What was never written may be beyond the file's end.
                let end = (self.body.region + 1) * REGION_BYTES;
                let bytes = transfer::read(env, self.file, *way, span.len, at, end as u64)?;
                if bytes != self.content[span.start..][..span.len] {
                    let text = format!("a read by {way:?} is not what was written: {span:?}");
                    return Err(env.fail(Checker::Outcome, text));
                }
                self.digest = fold_bytes(self.digest, &bytes);
            }
            Stmt::Sync { data_only } => {
                env.persist(|| match data_only {
                    true => self.file.sync_data(),
                    false => self.file.sync_all(),
                })?;
                env.has_synced(self.body, &self.content);
            }
            Stmt::Reopen => {
                let again = env.open(&super::file_name(self.body.file), false)?;
                // Its errors come after the descriptor has gone.
                let _ = again.close();
                self.digest = fold(self.digest, 1);
            }
            Stmt::Stat => {
                let metadata = env.persist(|| self.file.metadata())?;
                self.digest = fold(self.digest, metadata.is_file().into());
            }
            Stmt::Append { len, salt } => self.append(&bytes_of(*salt, *len))?,
            Stmt::CutAndRead => self.cut_and_read()?,
            Stmt::Spawn { local, end, body } => {
                let handle = self.spawn(*local, body);
                match end {
                    End::JoinedNow => {
                        let child = self.joined(handle.join())?;
                        self.digest = fold(self.digest, child);
                    }
                    End::JoinedLater => self.later.push(handle),
                    End::Detached => drop(handle),
                }
            }
            Stmt::Scope { children, daemons, exits } => self.scope(children, daemons, *exits)?,
            Stmt::Cut { how, delay, children, exits } => {
                cancels::cut(env, self.file, *how, *delay, children, *exits)?;
                self.digest = fold(self.digest, 1);
            }
            Stmt::Timeout { limit, body } => {
                cancels::timeout(env, self.file, *limit, body)?;
                self.digest = fold(self.digest, 1);
            }
            Stmt::Protect { cancelled, body } => {
                let child = cancels::protect(env, self.file, *cancelled, body)?;
                self.digest = fold(self.digest, child);
            }
            Stmt::Combine { by, bodies } => {
                let digests = combine::combine(env, self.file, *by, bodies)?;
                match by {
                    Combine::Race | Combine::Any => self.digest = fold(self.digest, 1),
                    _ => self.digest = digests.into_iter().fold(self.digest, fold),
                }
            }
            Stmt::Share(share) => {
                shared::share(env, share)?;
                self.digest = fold(self.digest, 1);
            }
            Stmt::Panic { payload } => {
                let payload = *payload;
                let panics = fiber::spawn(move || std::panic::resume_unwind(Box::new(payload)));
                let told: u64 = match panics.join() {
                    Err(told) if told.is::<u64>() => *told.downcast().expect("it was asked"),
                    Err(told) if told.is::<cringle::Cancelled>() => return Err(env.cut_short()),
                    Err(_) | Ok(()) => 0,
                };
                self.digest = fold(self.digest, told);
            }
            Stmt::Unwind { span, salt } => self.unwind(*span, *salt)?,
            Stmt::Never { what } => never(env, *what)?,
            Stmt::Park { yields } => {
                park(*yields);
                self.digest = fold(self.digest, 1);
            }
            Stmt::Unblock { value } => {
                self.digest = fold(self.digest, fiber::unblock(|| value.wrapping_mul(3)));
            }
            Stmt::Talk { len, salt, over, ready } => {
                let bytes = bytes_of(*salt, *len);
                // A connection that was reset is made again.
                let heard = env.persist(|| talk(bytes.clone(), *over, *ready))?;
                self.digest = fold_bytes(self.digest, &heard);
            }
        }
        Ok(())
    }

    /// A fiber of a scope panics and writes on its way out.
    fn unwind(&mut self, span: Span, salt: u64) -> Result<(), Stop> {
        let bytes = bytes_of(salt, span.len);
        self.content[span.start..][..span.len].copy_from_slice(&bytes);
        self.env.will_write(self.body, &self.content);
        let at = (self.body.region * REGION_BYTES + span.start) as u64;
        let (env, file) = (self.env, self.file);
        let told = fiber::scope(|s| {
            let panics = s.spawn_local(|| {
                let _writes = OnDrop(|| {
                    let _ = transfer::write(env, file, Way::At, &bytes, at);
                });
                std::panic::resume_unwind(Box::new(salt))
            });
            panics.join()
        });
        match told.map_err(|payload| payload.downcast::<u64>()) {
            Err(Ok(payload)) => self.digest = fold(self.digest, *payload),
            Err(Err(_)) | Ok(()) => return Err(Stop),
        }
        Ok(())
    }

    fn spawn(&self, local: bool, body: &Arc<Body>) -> JoinHandle<Digest> {
        let (env, body) = (self.env.within(Frame::root()), Arc::clone(body));
        let run = move || run_body(&env, &body, None);
        if local { fiber::spawn_local(run) } else { fiber::spawn(run) }
    }

    fn joined(&self, result: fiber::Result<Digest>) -> Digest {
        match result {
            Ok(digest) => digest,
            Err(payload) if payload.is::<cringle::Cancelled>() => Err(self.env.cut_short()),
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
                    if *local { s.spawn_local(run) } else { s.spawn(run) }
                })
                .collect();
            handles.into_iter().map(|handle| handle.join()).collect()
        });
        let left = inside.load(Ordering::Acquire);
        if left > 0 {
            let text = format!("{left} fibers are left of a scope that has ended");
            return Err(self.env.fail(Checker::Scopes, text));
        }
        for result in results {
            let child = self.joined(result)?;
            self.digest = fold(self.digest, child);
        }
        Ok(())
    }

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
            // A part may have been written when the rest failed.
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
            // An end that came early is a fault, not the file's.
            if read.len() < content.len() {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(read)
            }
        })?;
        if read != content {
            let text = format!("{} holds what nobody wrote", own_name(self.body));
            return Err(self.env.fail(Checker::Outcome, text));
        }
        self.digest = fold_bytes(self.digest, &read);
        self.own = Some((file, content));
        Ok(())
    }
}
