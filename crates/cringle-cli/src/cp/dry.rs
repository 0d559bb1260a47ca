//! `--dry-run`: the lines of `-v`, and the complaints that can be foreseen. Nothing is changed.

use super::messages::{complain, complain_of, quote, say};
use super::options::Options;
use super::plan::Copy;
use std::path::PathBuf;

pub(super) fn run(options: &Options, copies: Vec<Copy>) {
    for copy in copies {
        let mut stack = vec![(PathBuf::from(copy.source), PathBuf::from(copy.target), true)];
        while let Some((source, target, top)) = stack.pop() {
            let metadata = if options.follows(top) {
                std::fs::metadata(&source)
            } else {
                std::fs::symlink_metadata(&source)
            };
            let metadata = match metadata {
                Ok(metadata) => metadata,
                Err(e) => {
                    complain_of(&format!("cannot stat {}", quote(&source)), &e);
                    continue;
                }
            };
            if metadata.is_dir() && !options.recursive {
                let name = quote(&source);
                complain(&format!("-r not specified; omitting directory {name}"));
                continue;
            }
            say(&format!("{} -> {}", quote(&source), quote(&target)));
            if !metadata.is_dir() {
                continue;
            }
            match std::fs::read_dir(&source) {
                Err(e) => complain_of(&format!("cannot access {}", quote(&source)), &e),
                Ok(entries) => {
                    let below = entries
                        .flatten()
                        .map(|entry| (entry.path(), target.join(entry.file_name()), false));
                    stack.extend(below);
                }
            }
        }
    }
}
