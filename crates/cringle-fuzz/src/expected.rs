//! Computes the outcome of a program without the library.

use super::{
    Body, Combine, End, Program, REGION_BYTES, Span, Stmt, bytes_of, fold, fold_bytes, own_name,
};
use std::collections::BTreeMap;

/// The outcome of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// A digest of everything that its fibers read, received and returned.
    pub digest: u64,
    /// The content of its files by name; regions whose content is not determined are zero.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Program {
    /// Returns the outcome that the program must have on every driver.
    pub fn expected(&self) -> Outcome {
        let mut files = BTreeMap::new();
        for file in 0..self.files {
            files.insert(super::file_name(file), vec![0; self.file_bytes()]);
        }
        let digest = expect(&self.root, &mut files);
        Outcome { digest, files }
    }

    /// Sets regions whose content is not determined to zero, and removes such fibers' own files.
    pub(super) fn mask(&self, files: &mut BTreeMap<String, Vec<u8>>) {
        for file in 0..self.files {
            let content = files.entry(super::file_name(file)).or_default();
            content.resize(self.file_bytes(), 0);
        }
        each_body(&self.root, &mut |body| {
            if body.loose {
                let name = super::file_name(body.file);
                let content = files.get_mut(&name).expect("every file was inserted above");
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
            Stmt::Timeout { body, .. } | Stmt::Protect { body, .. } => each_body(body, f),
            Stmt::Scope { children, daemons, .. } => {
                children.iter().for_each(|(_, child)| each_body(child, f));
                daemons.iter().for_each(|daemon| each_body(daemon, f));
            }
            Stmt::CancelScope { children, .. } => {
                children.iter().for_each(|(_, child)| each_body(child, f));
            }
            Stmt::Combine { bodies, .. } => bodies.iter().for_each(|body| each_body(body, f)),
            _ => {}
        }
    }
}

/// Returns the digest of a body that runs to its end.
pub(super) fn whole_digest(body: &Body) -> u64 {
    expect(body, &mut BTreeMap::new())
}

/// Returns a part of a body's region, after extending the file with zeroes to hold it.
fn part<'f>(files: &'f mut BTreeMap<String, Vec<u8>>, body: &Body, span: &Span) -> &'f mut [u8] {
    let at = body.region * REGION_BYTES + span.start;
    let file = files.entry(super::file_name(body.file)).or_default();
    file.resize(file.len().max(at + span.len), 0);
    &mut file[at..][..span.len]
}

fn expect(body: &Body, files: &mut BTreeMap<String, Vec<u8>>) -> u64 {
    let mut digest = 0;
    let mut later = Vec::new();
    for stmt in &body.stmts {
        match stmt {
            Stmt::Yield | Stmt::Sleep { .. } | Stmt::Sync { .. } | Stmt::Never { .. } => {}
            Stmt::Reopen | Stmt::Stat | Stmt::Park { .. } => digest = fold(digest, 1),
            Stmt::Write { span, salt, .. } => {
                part(files, body, span).copy_from_slice(&bytes_of(*salt, span.len));
            }
            Stmt::Unwind { span, salt } => {
                digest = fold(digest, *salt);
                part(files, body, span).copy_from_slice(&bytes_of(*salt, span.len));
            }
            Stmt::Read { span, .. } => {
                digest = fold_bytes(digest, part(files, body, span));
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
                match end {
                    End::JoinedNow => digest = fold(digest, expect(body, files)),
                    End::JoinedLater => later.push(expect(body, files)),
                    // It writes only to its own region, which is masked.
                    End::Detached => {}
                }
            }
            Stmt::Scope { children, .. } => {
                for (_, child) in children {
                    digest = fold(digest, expect(child, files));
                }
            }
            Stmt::Protect { body, .. } => digest = fold(digest, expect(body, files)),
            Stmt::Combine { by: Combine::Race | Combine::Any, .. } => digest = fold(digest, 1),
            Stmt::Combine { bodies, .. } => {
                for body in bodies {
                    digest = fold(digest, expect(body, files));
                }
            }
            Stmt::CancelScope { .. } | Stmt::Timeout { .. } | Stmt::Share(_) => {
                digest = fold(digest, 1)
            }
            Stmt::Panic { payload } => digest = fold(digest, *payload),
            Stmt::Unblock { value } => digest = fold(digest, value.wrapping_mul(3)),
            Stmt::Talk { len, salt, .. } => digest = fold_bytes(digest, &bytes_of(*salt, *len)),
        }
    }
    later.into_iter().fold(digest, fold)
}
