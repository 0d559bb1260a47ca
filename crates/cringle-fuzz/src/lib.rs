//! Random programs: what the library is tested with, in a simulation and against the ring.
//!
//! A [`Program`] is drawn from a seed: fibers that spawn, scope, sleep, park, write, read, sync,
//! talk and panic, that cancel each other, run out of time, and share locks and channels. What it computes does not depend on what ends when or what has to be tried again,
//! because each fiber writes to a part of the files that is its own: so there is one right outcome,
//! which [`Program::expected`] finds without the library, and a simulation with any faults, or the
//! ring, must come to the same. Fibers that are cut short (left behind, cancelled, out of time) have
//! parts of their own too, about which nothing is said. What holds of them all the same is checked
//! where it happens: whoever is told of a cancel or a deadline has one around it that has come
//! (`frames`), what ended by itself came to what it should, and nothing shared is lost.
//!
//! A new kind of statement is a variant of `Stmt`: the compiler names the three places (drawing it,
//! expecting it, doing it) that have to know it.
//!
//! ```
//! use cringle_fuzz::{Program, check};
//!
//! check(17)?;
//!
//! let program = Program::new(17);
//! let place = std::env::temp_dir().join(format!("cringle-program-{}", std::process::id()));
//! std::fs::create_dir_all(&place)?;
//! assert_eq!(program.run_on_ring(1, &place)?, program.expected());
//! # std::fs::remove_dir_all(&place)?;
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

pub use check::{Checked, check};
pub use expected::Outcome;

use cringle::sim::Rng;
use statement::{Body, Combine, Cut, Delay, End, Never, Over, Share, Shared, Span, Stmt, Way};
use std::sync::Arc;

/// Bytes of a file that belong to one fiber.
const REGION_BYTES: usize = 2048;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Program {
    /// How many files the regions are in.
    files: usize,
    /// How many regions each file has.
    regions: usize,
    root: Arc<Body>,
}

impl Program {
    /// The program of this seed.
    pub fn new(seed: u64) -> Program {
        generate::program(seed)
    }

    /// How many fibers run it, without the helpers that some statements start.
    pub fn fibers(&self) -> usize {
        let mut count = 0;
        expected::each_body(&self.root, &mut |_| count += 1);
        count
    }

    /// How many operations may wait for a peer at once, at most: one of each fiber that makes such,
    /// and one of its helper.
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

/// The name of a fiber's own file.
fn own_name(body: &Body) -> String {
    format!("own-{}-{}", body.file, body.region)
}

/// The bytes that a statement writes.
fn bytes_of(salt: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(salt);
    let words = std::iter::repeat_with(|| rng.next().to_le_bytes());
    words.flatten().take(len).collect()
}

/// What a fiber has seen so far, as one number.
fn fold(digest: u64, value: u64) -> u64 {
    Rng::new(digest.rotate_left(17) ^ value).next()
}

fn fold_bytes(digest: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let digest = words.iter().fold(digest, |digest, word| fold(digest, u64::from_le_bytes(*word)));
    rest.iter().fold(digest, |digest, &byte| fold(digest, byte.into()))
}
