//! Tests which features this kernel's rings have, by using each; nothing is deduced from the
//! version.

mod probes;
mod table;

use super::child::{Answer, ask_child};
use super::raw::{self, Params};
use cringle::runtime;
use io_uring::{IoUring, Parameters};
use serde::Serialize;
use std::io;

/// A feature of the ring.
#[derive(Clone)]
pub(crate) struct Feature {
    pub name: String,
    /// The first Linux release that has it.
    pub since: &'static str,
    /// Whether the library's driver uses it.
    pub used: bool,
    /// The consequence of lacking it.
    pub cost: &'static str,
    probe: Probe,
}

/// Whether a ring has reported a feature.
type Bit = fn(&Parameters) -> bool;

/// How to test for a feature.
#[derive(Clone, Copy)]
enum Probe {
    /// Create a ring with these flags.
    Setup(u32),
    /// Ask the parameters of a ring, in which it reports features.
    Bit(Bit),
    /// Look for all of these opcodes in those that a ring supports.
    Ops(&'static [u8]),
    /// Call this function, which uses the feature.
    Run(fn() -> Presence),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Presence {
    Present,
    Missing,
    Unknown,
}

/// A feature and whether this kernel has it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub name: String,
    pub since: &'static str,
    pub used_by_the_driver: bool,
    pub state: Presence,
    pub cost_of_lacking_it: &'static str,
}

/// The ops without which the driver refuses a ring.
const NEEDED_OPS: [(u8, &str); 14] = runtime::Features::NEEDED_OPS;

/// The feature bits without which the driver refuses a ring; all are older than Linux 6.1.
const NEEDED_BITS: [(Bit, &str); 3] = [
    (Parameters::is_feature_nodrop, "FEAT_NODROP"),
    (Parameters::is_feature_rw_cur_pos, "FEAT_RW_CUR_POS"),
    (Parameters::is_feature_ext_arg, "FEAT_EXT_ARG"),
];

pub(crate) struct Features {
    pub found: Vec<Finding>,
    /// What the driver requires and this kernel lacks; `None` if that could not be tested.
    pub too_old: Option<Vec<&'static str>>,
    /// Why some features could not be tested.
    pub note: Option<String>,
}

/// Tests every feature, in one child.
pub(crate) fn all() -> Features {
    let answer = ask_child(|reply| {
        let ring = PlainRing::create();
        for feature in table::all() {
            reply.send(feature.test(&ring) as i32);
        }
        for known in ring.needed() {
            reply.send(known as i32);
        }
    });
    from_answer(answer)
}

/// Reports every feature as unknown, for this reason.
pub(crate) fn unknown(why: &str) -> Features {
    from_answer(Answer { unanswered: Some(why.into()), ..Answer::default() })
}

fn from_answer(answer: Answer) -> Features {
    let presence = |at: usize| match answer.numbers.get(at) {
        Some(0) => Presence::Present,
        Some(1) => Presence::Missing,
        _ => Presence::Unknown,
    };
    let table = table::all();
    let found = table.iter().enumerate().map(|(at, feature)| Finding {
        name: feature.name.clone(),
        since: feature.since,
        used_by_the_driver: feature.used,
        state: presence(at),
        cost_of_lacking_it: feature.cost,
    });
    let names = NEEDED_BITS.iter().map(|(_, name)| *name);
    let names: Vec<_> = names.chain(NEEDED_OPS.iter().map(|(_, name)| *name)).collect();
    let needed = || names.iter().enumerate().map(|(at, name)| (presence(table.len() + at), *name));
    let known = needed().all(|(presence, _)| presence != Presence::Unknown);
    let lacking = needed().filter(|(presence, _)| *presence == Presence::Missing);
    let note = answer.unanswered.clone().or_else(|| {
        let signal = answer.signal?;
        Some(format!("signal {signal} killed the child that tested them"))
    });
    Features {
        found: found.collect(),
        too_old: known.then(|| lacking.map(|(_, name)| name).collect()),
        note,
    }
}

/// A ring without flags, which every kernel can create, and the opcodes that it reports.
struct PlainRing {
    ring: Option<IoUring>,
    ops: Option<io_uring::Probe>,
}

impl PlainRing {
    fn create() -> PlainRing {
        let ring = IoUring::new(1).ok();
        let mut ops = io_uring::Probe::new();
        let asked = ring.as_ref().map(|ring| ring.submitter().register_probe(&mut ops));
        let ops = asked.is_some_and(|asked| asked.is_ok()).then_some(ops);
        PlainRing { ring, ops }
    }

    fn bit(&self, has: Bit) -> Presence {
        self.ring.as_ref().map_or(Presence::Unknown, |ring| Presence::when(has(ring.params())))
    }

    fn ops(&self, codes: &[u8]) -> Presence {
        let all = |ops: &io_uring::Probe| codes.iter().all(|code| ops.is_supported(*code));
        self.ops.as_ref().map_or(Presence::Unknown, |ops| Presence::when(all(ops)))
    }

    fn needed(&self) -> impl Iterator<Item = Presence> {
        let bits = NEEDED_BITS.iter().map(|(bit, _)| self.bit(*bit));
        bits.chain(NEEDED_OPS.iter().map(|(code, _)| self.ops(&[*code])))
    }
}

impl Feature {
    fn test(&self, ring: &PlainRing) -> Presence {
        match self.probe {
            Probe::Setup(flags) => {
                let made = raw::setup(1, &mut Params::with_flags(flags)).map(drop);
                Presence::by(made, libc::EINVAL)
            }
            Probe::Bit(bit) => ring.bit(bit),
            Probe::Ops(codes) => ring.ops(codes),
            Probe::Run(attempt) => attempt(),
        }
    }
}

impl Presence {
    fn when(it_is: bool) -> Presence {
        if it_is { Presence::Present } else { Presence::Missing }
    }

    /// `Present` for success, `Missing` for this error; any other error proves nothing.
    fn by(result: io::Result<()>, error: i32) -> Presence {
        match result {
            Ok(()) => Presence::Present,
            Err(e) if e.raw_os_error() == Some(error) => Presence::Missing,
            Err(_) => Presence::Unknown,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Presence::Present => "yes",
            Presence::Missing => "no",
            Presence::Unknown => "?",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_after_the_childs_death_are_unknown() {
        let died = Answer { numbers: vec![0, 1], signal: Some(libc::SIGSYS), unanswered: None };
        let features = from_answer(died);
        assert_eq!(features.found[0].state, Presence::Present);
        assert_eq!(features.found[1].state, Presence::Missing);
        assert!(features.found[2..].iter().all(|found| found.state == Presence::Unknown));
        assert_eq!(features.too_old, None);
        assert!(features.note.unwrap().contains("signal 31"));
    }

    #[test]
    fn missing_requirements_are_named() {
        let mut all = vec![0; table::all().len()];
        all.extend([0, 0, 1]);
        all.extend(vec![0; NEEDED_OPS.len()]);
        let features = from_answer(Answer { numbers: all, ..Answer::default() });
        assert_eq!(features.too_old, Some(vec!["FEAT_EXT_ARG"]));
    }
}
