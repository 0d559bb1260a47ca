//! The exceptions to the limits, each with its reason, from `xtask/tidy.json`.

use super::Finding;
use super::sources::root;
use crate::Result;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::HashSet;

/// A file or function that may exceed a limit.
#[derive(Deserialize)]
struct Exception {
    /// `path/to/file.rs`, or `path/to/file.rs::function`.
    place: String,
    reason: String,
}

pub(super) struct Exceptions {
    list: Vec<Exception>,
    used: RefCell<HashSet<usize>>,
}

impl Exceptions {
    pub(super) fn read() -> Result<Exceptions> {
        let text = std::fs::read_to_string(root().join("xtask/tidy.json"))?;
        let list: Vec<Exception> = serde_json::from_str(&text)?;
        if let Some(bare) = list.iter().find(|one| one.reason.trim().is_empty()) {
            return Err(format!("xtask/tidy.json: {} has no reason", bare.place).into());
        }
        Ok(Exceptions { list, used: RefCell::default() })
    }

    #[cfg(test)]
    pub(super) fn none() -> Exceptions {
        Exceptions { list: Vec::new(), used: RefCell::default() }
    }

    pub(super) fn allow(&self, place: &str) -> bool {
        let found = self.list.iter().position(|one| one.place == place);
        self.used.borrow_mut().extend(found);
        found.is_some()
    }

    /// Returns a finding for each exception that is no longer needed.
    pub(super) fn unused(&self) -> Vec<Finding> {
        let used = self.used.borrow();
        let unused = self.list.iter().enumerate().filter(|(index, _)| !used.contains(index));
        let finding = |(_, one): (usize, &Exception)| Finding {
            file: "xtask/tidy.json".into(),
            line: 1,
            text: format!("{} needs no exception; remove it", one.place),
        };
        unused.map(finding).collect()
    }
}
