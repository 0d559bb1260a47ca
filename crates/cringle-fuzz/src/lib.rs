//! Random programs that test the library, in the simulator and on the ring.
//!
//! A [`Program`] is generated from a seed. Its fibers spawn, open scopes, sleep, park, write, read,
//! sync, talk and panic; they cancel each other, have deadlines, and share locks and channels. Each
//! fiber writes only to its own region of the files, so that the result depends neither on the
//! order of completions nor on retries. The program therefore has one correct outcome, which
//! [`Program::expected`] computes without the library and which every run must have.
//!
//! Fibers that may end early (detached, cancelled, past a deadline) have regions too, whose content
//! is not determined. The interpreter checks them while they run: a cancel or a deadline that a
//! fiber observes must have a cause around it (`frames`), a body that ran to its end must have the
//! digest of a whole run, and no shared value may be lost.
//!
//! A new kind of statement is a variant of `Stmt`. The compiler then names the three modules that
//! must handle it: `generate`, `expected` and `interpret`.
//!
//! ```
//! use cringle_fuzz::{Program, check};
//!
//! check(17)?;
//!
//! let program = Program::new(17);
//! let directory = std::env::temp_dir().join(format!("cringle-program-{}", std::process::id()));
//! std::fs::create_dir_all(&directory)?;
//! assert_eq!(program.run_on_ring(1, &directory)?, program.expected());
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The readers of these pages are developers.
#![allow(rustdoc::private_intra_doc_links)]

mod cancels;
mod channels;
mod check;
mod combine;
mod env;
mod expected;
mod frames;
mod generate;
mod handover;
mod interpret;
mod locks;
mod parcels;
mod peers;
mod shared;
mod statement;
#[cfg(test)]
mod tests;
mod transfer;

pub use check::{Checked, check, check_balanced, check_on};
pub use expected::Outcome;

use cringle::sim::Rng;
use statement::{
    Body, CancelBy, Combine, Delay, End, Never, Share, Shared, Span, Stmt, Transport, Way,
};
use std::sync::Arc;

/// The size of the region that a fiber has in a file.
const REGION_BYTES: usize = 2048;

/// A random program; see the [crate](self).
#[derive(Clone, Debug)]
pub struct Program {
    /// The number of files with regions.
    files: usize,
    /// The number of regions in each file.
    regions: usize,
    root: Arc<Body>,
}

impl Program {
    /// Generates the program of this seed.
    pub fn new(seed: u64) -> Program {
        generate::program(seed)
    }

    /// Returns the number of fibers, without the helpers that some statements start.
    pub fn fibers(&self) -> usize {
        let mut count = 0;
        expected::each_body(&self.root, &mut |_| count += 1);
        count
    }

    /// Returns the largest number of operations that may wait for a peer at once: one for each
    /// fiber with such statements, and one for its helper.
    fn most_waiting(&self) -> u32 {
        let mut count = 0;
        expected::each_body(&self.root, &mut |body| {
            let waits = |stmt: &Stmt| match stmt {
                Stmt::Talk { .. } => 2,
                Stmt::Never { what: Never::Byte | Never::Readiness } => 1,
                _ => 0,
            };
            count += body.stmts.iter().map(waits).max().unwrap_or(0);
        });
        count
    }

    fn file_bytes(&self) -> usize {
        self.regions * REGION_BYTES
    }
}

fn file_name(file: usize) -> String {
    format!("shared-{file}")
}

/// Returns the name of the file that only this fiber uses.
fn own_name(body: &Body) -> String {
    format!("own-{}-{}", body.file, body.region)
}

/// Returns the bytes that a statement with this salt writes.
fn bytes_of(salt: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(salt);
    let words = std::iter::repeat_with(|| rng.next().to_le_bytes());
    words.flatten().take(len).collect()
}

/// Adds a value to a digest.
fn fold(digest: u64, value: u64) -> u64 {
    Rng::new(digest.rotate_left(17) ^ value).next()
}

fn fold_bytes(digest: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let digest = words.iter().fold(digest, |digest, word| fold(digest, u64::from_le_bytes(*word)));
    rest.iter().fold(digest, |digest, &byte| fold(digest, byte.into()))
}
