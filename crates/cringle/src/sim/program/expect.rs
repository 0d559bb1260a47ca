//! What a program must come to, found without the library.

use super::{Body, End, Program, REGION_BYTES, Span, Stmt, bytes_of, fold, fold_bytes, own_name};
use std::collections::BTreeMap;

/// What a program came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// All that its fibers read, were told and returned.
    pub digest: u64,
    /// The content of its files by name; parts about which nothing is said are zero.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Program {
    /// What it must come to, on whatever it runs.
    pub fn expected(&self) -> Outcome {
        let mut files = BTreeMap::new();
        for file in 0..self.files {
            files.insert(super::file_name(file), vec![0; self.file_bytes()]);
        }
        let digest = expect(&self.root, &mut files);
        Outcome { digest, files }
    }

    /// Has zeroes where nothing is said: in the parts of fibers that are left behind.
    pub(super) fn mask(&self, files: &mut BTreeMap<String, Vec<u8>>) {
        for file in 0..self.files {
            let content = files.entry(super::file_name(file)).or_default();
            content.resize(self.file_bytes(), 0);
        }
        each_body(&self.root, &mut |body| {
            if body.loose {
                let content = files.get_mut(&super::file_name(body.file)).expect("it is there");
                content[body.region * REGION_BYTES..][..REGION_BYTES].fill(0);
                files.remove(&own_name(body));
            }
        });
    }
}

/// Calls `f` with every body of the program.
pub(super) fn each_body(body: &Body, f: &mut impl FnMut(&Body)) {
    f(body);
    for stmt in &body.stmts {
        match stmt {
            Stmt::Spawn { body, .. } => each_body(body, f),
            Stmt::Scope { children } => children.iter().for_each(|(_, child)| each_body(child, f)),
            _ => {}
        }
    }
}

fn expect(body: &Body, files: &mut BTreeMap<String, Vec<u8>>) -> u64 {
    let mut digest = 0;
    let mut later = Vec::new();
    let shared = super::file_name(body.file);
    let at = |span: &Span| body.region * REGION_BYTES + span.start;
    for stmt in &body.stmts {
        match stmt {
            Stmt::Yield | Stmt::Sleep { .. } | Stmt::Sync { .. } | Stmt::Never { .. } => {}
            Stmt::Reopen | Stmt::Stat | Stmt::Park { .. } => digest = fold(digest, 1),
            Stmt::Write { span, salt, .. } => {
                let file = files.get_mut(&shared).expect("it was made");
                file[at(span)..][..span.len].copy_from_slice(&bytes_of(*salt, span.len));
            }
            Stmt::Unwind { span, salt } => {
                digest = fold(digest, *salt);
                let file = files.get_mut(&shared).expect("it was made");
                file[at(span)..][..span.len].copy_from_slice(&bytes_of(*salt, span.len));
            }
            Stmt::Read { span, .. } => {
                digest = fold_bytes(digest, &files[&shared][at(span)..][..span.len]);
            }
            Stmt::Append { len, salt } => {
                files.entry(own_name(body)).or_default().extend(bytes_of(*salt, *len));
            }
            Stmt::CutAndRead => {
                let file = files.entry(own_name(body)).or_default();
                file.truncate(file.len() / 2);
                digest = fold_bytes(digest, file);
            }
            Stmt::Spawn { end, body, .. } => {
                // What a detached one does is in its own part, which is masked.
                let mut aside = BTreeMap::new();
                let child = match end {
                    End::Detached => {
                        aside.clone_from(files);
                        expect(body, &mut aside)
                    }
                    End::JoinedNow | End::JoinedLater => expect(body, files),
                };
                match end {
                    End::JoinedNow => digest = fold(digest, child),
                    End::JoinedLater => later.push(child),
                    End::Detached => {}
                }
            }
            Stmt::Scope { children } => {
                for (_, child) in children {
                    digest = fold(digest, expect(child, files));
                }
            }
            Stmt::Panic { payload } => digest = fold(digest, *payload),
            Stmt::Unblock { value } => digest = fold(digest, value.wrapping_mul(3)),
            Stmt::Talk { len, salt, .. } => digest = fold_bytes(digest, &bytes_of(*salt, *len)),
        }
    }
    later.into_iter().fold(digest, fold)
}
